package azurestorage

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Sign authorizes a request that no SDK sends with the location's key or signature. The request has all its headers and
// its query, except for what Sign adds. With TokenAuth it adds nothing.
func (at Location) Sign(r *http.Request) {
	switch at.Auth {
	case SASAuth:
		newSignature(at).sign(r)
	case KeyAuth:
		newSigner(at).sign(r)
	case TokenAuth:
	}
}

// withSignature is the policy of a shared access signature, a query.
type withSignature string

// newSignature escapes the signature as the SDKs do: pasted text has spaces.
func newSignature(at Location) withSignature {
	values, _ := url.ParseQuery(at.Signature) // Parse has refused another
	return withSignature(values.Encode())
}

// Do implements [policy.Policy].
func (s withSignature) Do(r *policy.Request) (*http.Response, error) {
	s.sign(r.Raw())
	return r.Next()
}

func (s withSignature) sign(r *http.Request) {
	r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+string(s), "&")
}

// signer is the policy of an account's key, "Authorize with Shared Key". Those of the SDKs take as long as the rest of a
// request, because they parse and sort by way of maps.
type signer struct {
	account string
	idle    sync.Pool // of *signing
}

// signing is what signing a request needs; it is used again.
type signing struct {
	mac     hash.Hash
	sum     []byte
	text    []byte
	headers []string
	query   []parameter
}

type parameter struct{ name, value string }

func newSigner(at Location) *signer {
	s := &signer{account: at.Account}
	key, _ := base64.StdEncoding.DecodeString(at.Key) // Parse has refused another
	s.idle.New = func() any { return &signing{mac: hmac.New(sha256.New, key)} }
	return s
}

// Do implements [policy.Policy].
func (s *signer) Do(r *policy.Request) (*http.Response, error) {
	s.sign(r.Raw())
	return r.Next()
}

func (s *signer) sign(r *http.Request) {
	with := s.idle.Get().(*signing)
	defer s.idle.Put(with)
	added := new([2]string) // of this request alone: a transport may change its headers
	if r.Header.Get("X-Ms-Date") == "" {
		added[0] = httpDate(time.Now())
		r.Header["X-Ms-Date"] = added[:1:1]
	}
	with.write(s.account, r)
	with.mac.Reset()
	with.mac.Write(with.text)
	with.sum = with.mac.Sum(with.sum[:0])
	with.text = append(append(append(with.text[:0], "SharedKey "...), s.account...), ':')
	with.text = base64.StdEncoding.AppendEncode(with.text, with.sum)
	added[1] = string(with.text)
	r.Header["Authorization"] = added[1:]
}

// lastDate is what httpDate returned last. Formatting a date takes as long as hashing the request.
var lastDate atomic.Pointer[date]

type date struct {
	second int64
	text   string
}

func httpDate(now time.Time) string {
	last := lastDate.Load()
	if last == nil || last.second != now.Unix() {
		last = &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
		lastDate.Store(last)
	}
	return last.text
}

// write writes the string to sign.
func (s *signing) write(account string, r *http.Request) {
	text := append(append(s.text[:0], r.Method...), "\n\n\n"...) // no encoding, no language
	if r.ContentLength > 0 {
		text = strconv.AppendInt(text, r.ContentLength, 10)
	}
	text = append(append(append(text, "\n\n"...), r.Header.Get("Content-Type")...), "\n\n\n\n\n\n\n"...) // the date is in x-ms-date
	s.headers = s.headers[:0]
	for name := range r.Header {
		if len(name) > 5 && strings.EqualFold(name[:5], "x-ms-") {
			s.headers = append(s.headers, name)
		}
	}
	slices.SortFunc(s.headers, compareLower)
	for _, name := range s.headers {
		text = append(appendLower(text, name), ':')
		text = append(append(text, strings.TrimSpace(r.Header[name][0])...), '\n')
	}
	text = append(append(append(text, '/'), account...), r.URL.EscapedPath()...)
	s.query = s.query[:0]
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); part != "" {
			name, _ = url.QueryUnescape(name) // as the caller made it
			value, _ = url.QueryUnescape(value)
			s.query = append(s.query, parameter{name, value})
		}
	}
	slices.SortFunc(s.query, func(a, b parameter) int { return cmp.Or(compareLower(a.name, b.name), cmp.Compare(a.value, b.value)) })
	for i, p := range s.query {
		if i > 0 && compareLower(p.name, s.query[i-1].name) == 0 {
			text = append(text, ',')
		} else {
			text = append(appendLower(append(text, '\n'), p.name), ':')
		}
		text = append(text, p.value...)
	}
	s.text = text
}

// compareLower compares two names in lower case.
func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func appendLower(text []byte, name string) []byte {
	for i := range len(name) {
		text = append(text, lower(name[i]))
	}
	return text
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
