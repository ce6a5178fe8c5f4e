package emulator

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// authenticate refuses a request that is not authorized. Failures never contain a signature or a
// token, nor the string to sign, which contains the receipt.
func (c *call) authenticate() *failure {
	given := firstValue(c.request.Header, "Authorization")
	if c.accountState == nil && (given != "" || c.query.has("sig")) {
		// The service has no address for an unknown account. Azurite responds like this.
		return errResourceNotFound.with(queuexml.Detail{Name: "Reason", Value: "The account is not known to this emulator."})
	}
	if given == "" {
		if c.query.has("sig") {
			return c.authenticateSAS("")
		}
		if c.version < challengeVersion { // there are no public queues
			return errResourceNotFound
		}
		return errNoAuthentication
	}
	scheme, credentials, ok := strings.Cut(given, " ")
	if !ok {
		return errInvalidAuthentication
	}
	switch {
	case scheme == "SharedKey":
		c.credential = "key"
		return c.authenticateKey(credentials, sharedKey)
	case scheme == "SharedKeyLite":
		c.credential = "key"
		return c.authenticateKey(credentials, sharedKeyLite)
	case strings.EqualFold(scheme, "Bearer"):
		if c.query.has("sig") {
			return c.authenticateSAS(credentials)
		}
		c.credential = "token"
		parsed, f := c.authenticateToken(credentials)
		c.claims = &parsed
		if f == nil && (c.operation == GetQueueACL || c.operation == SetQueueACL) {
			return denied("Bearer tokens are not for access policies: no built-in queue role allows getAcl or setAcl.")
		}
		return f
	}
	return denied("The schemes are SharedKey, SharedKeyLite and Bearer.")
}

// challengeVersion is the first version in which the service tells clients without credentials,
// or with an invalid token, where to get a token (Authorize with Microsoft Entra ID, "Bearer
// challenge"). Before, it responded as if the resource did not exist.
const challengeVersion = "2019-12-12"

func denied(detail string) *failure {
	return errAuthenticationFailed.with(queuexml.Detail{Name: "AuthenticationErrorDetail", Value: detail})
}

// maxSkew is the largest difference between a request's date and now (Authorize with Shared Key,
// "Specifying the Date header").
const maxSkew = 15 * time.Minute

// typicalSignedText is the usual length of the string to sign, in bytes.
const typicalSignedText = 512

// accountState is an account's key and request quota.
type accountState struct {
	key    []byte    // never changes
	hashes sync.Pool // hash.Hash keyed with the key

	requests *tokenBucket // request quota; nil for none. Set before the server serves
}

func newAccount(key []byte) *accountState {
	a := &accountState{key: slices.Clone(key)}
	a.hashes.New = func() any { return hmac.New(sha256.New, a.key) }
	return a
}

// authenticateKey refuses a request that is not signed with the account's key. credentials are
// the account and the signature.
func (c *call) authenticateKey(credentials string, scheme signingScheme) *failure {
	name, encoded, ok := strings.Cut(strings.TrimSpace(credentials), ":")
	if !ok {
		return errInvalidAuthentication
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return errInvalidAuthentication
	}
	if name != c.account {
		return denied("The account that signed is not the account in the address.")
	}
	if f := c.server.checkDate(c.request.Header); f != nil {
		return f
	}
	if f := scheme.check(c); f != nil {
		return f
	}
	if c.signedWith(scheme, c.resource, signature) {
		return nil
	}
	// Documented is the address of the primary location, but clients sign the
	// address that they call. Both mean the same.
	if primary, ok := c.primaryResource(); ok && c.signedWith(scheme, primary, signature) {
		return nil
	}
	return denied("The signature does not match: check the account key.")
}

// signedWith reports whether a signature is that of the request with this path, in either order
// of its headers.
func (c *call) signedWith(scheme signingScheme, resource string, signature []byte) bool {
	c.collated = false
	c.signedText = scheme.appendText(c, c.signedText[:0], resource)
	if c.accountState.signed(c.signedText, signature) {
		return true
	}
	if !collates(c.request.Header) {
		return false
	}
	c.collated = true
	c.signedText = scheme.appendText(c, c.signedText[:0], resource)
	return c.accountState.signed(c.signedText, signature)
}

// signed compares in constant time, so that a signature cannot be guessed byte by byte.
func (a *accountState) signed(text, signature []byte) bool {
	h := a.hashes.Get().(hash.Hash)
	defer a.hashes.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	return hmac.Equal(h.Sum(sum[:0]), signature)
}

// parsedDate is a date header and its parsed value.
type parsedDate struct {
	text string
	at   time.Time
}

// checkDate checks the request's date. It caches the last one: busy clients send the same date
// for a second.
func (s *Server) checkDate(h http.Header) *failure {
	// An x-ms-date replaces Date in the string to sign, even if it is empty, so only it
	// is authentic.
	value := firstValue(h, "Date")
	if dates := h["X-Ms-Date"]; len(dates) > 0 {
		if value = dates[0]; value == "" {
			return denied("The header x-ms-date is empty.")
		}
	}
	if value == "" {
		return denied("The request has no x-ms-date and no Date.")
	}
	last := s.lastParsedDate.Load()
	if last == nil || last.text != value {
		at, err := http.ParseTime(value)
		if err != nil {
			return denied("The date of the request is not in the format of RFC 1123.")
		}
		last = &parsedDate{strings.Clone(value), at}
		s.lastParsedDate.Store(last)
	}
	if skew := time.Since(last.at); skew > maxSkew || skew < -maxSkew {
		return denied("The date of the request is more than 15 minutes off: check the clock.")
	}
	return nil
}

// signingScheme is a way to sign a request with an account's key.
//
// The string to sign has a line for each part of the request, so a part with a line feed could
// pass for two. check refuses a request if another one with a different meaning has the same
// string to sign: whoever sees one signature must not be able to use it for another request.
type signingScheme struct {
	check      func(*call) *failure
	appendText func(c *call, dst []byte, resource string) []byte // appends the string to sign to dst
}

var (
	sharedKey     = signingScheme{(*call).checkStringToSign, (*call).appendStringToSign}
	sharedKeyLite = signingScheme{(*call).checkLiteStringToSign, (*call).appendLiteStringToSign}
)

// signedHeaders are the standard headers whose first values are signed.
var signedHeaders = [...]string{"Content-Encoding", "Content-Language", "Content-Md5", "Content-Type", "Date", "If-Modified-Since",
	"If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

// checkStringToSign refuses a request if another one has the same string to sign. Each parameter
// is a line "name:value", or "name:value,value".
func (c *call) checkStringToSign() *failure {
	if f := c.checkLiteStringToSign(); f != nil {
		return f
	}
	for i, p := range c.query {
		switch {
		case strings.ContainsAny(p.name, "\n:"):
			return denied("The name of a parameter has a line feed or a colon in it, which Shared Key cannot tell from the end of the name.")
		case strings.Contains(p.value, "\n"):
			return denied("The value of the parameter " + p.name + " has a line feed in it, which Shared Key cannot tell from another parameter.")
		case c.query[:i].has(p.name):
			return errInvalidQueryValue.with(
				queuexml.Detail{Name: "QueryParameterName", Value: p.name},
				queuexml.Detail{Name: "Reason", Value: "It is given more than once."})
		}
	}
	return nil
}

// checkLiteStringToSign refuses what neither scheme can distinguish: line feeds in headers, which
// are possible in process only; duplicate headers, whose values are joined by commas; and an
// ambiguous address.
func (c *call) checkLiteStringToSign() *failure {
	for _, name := range signedHeaders {
		if strings.Contains(firstValue(c.request.Header, name), "\n") {
			return denied("The header " + name + " has a line feed in it.")
		}
	}
	for name, values := range c.request.Header {
		if !strings.HasPrefix(name, "X-Ms-") {
			continue
		}
		if len(values) > 1 && !strings.HasPrefix(name, "X-Ms-Meta-") { // metadata is joined by commas as well
			return errInvalidHeaderValue.because("The header is given more than once.").with(queuexml.Detail{Name: "HeaderName", Value: name})
		}
		for _, value := range values {
			if strings.Contains(name, "\n") || strings.Contains(name, ":") || strings.Contains(value, "\n") {
				return denied("A header x-ms-… has a line feed in it.")
			}
		}
	}
	// The signed path starts with the account. So /account/messages is the same for the queue
	// "messages" in path style and for the messages of a queue named like the account in host
	// style. The first is the usual one.
	if c.hostStyle && strings.TrimSuffix(c.queue, secondarySuffix) == c.account {
		return denied("Shared Key cannot distinguish this host-style address of a queue that is named like the account from a path-style one: use the latter, /" +
			c.account + "/" + c.queue + ", or a shared access signature.")
	}
	return nil
}

// primaryResource converts the path of a request to the secondary location to that of the primary
// one. ok is false if there is none.
func (c *call) primaryResource() (resource string, ok bool) {
	if !c.secondary || c.hostStyle {
		return "", false
	}
	location, rest := c.resource, ""
	if end := strings.IndexByte(c.resource[1:], '/'); end >= 0 {
		location, rest = c.resource[:1+end], c.resource[1+end:]
	}
	primary, ok := strings.CutSuffix(location, secondarySuffix)
	return primary + rest, ok
}

// appendStringToSign appends the string to sign for Shared Key: verb, standard headers, x-ms-
// headers and the resource with its parameters (Authorize with Shared Key, "Blob, Queue, and File
// services").
func (c *call) appendStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }

	line(c.request.Method)
	line(firstValue(h, "Content-Encoding"))
	line(firstValue(h, "Content-Language"))
	if n := c.request.ContentLength; n > 0 { // empty when there is no body
		dst = strconv.AppendInt(dst, n, 10)
	}
	line("")
	line(firstValue(h, "Content-Md5"))
	line(firstValue(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("") // x-ms-date stands in for it
	} else {
		line(firstValue(h, "Date"))
	}
	line(firstValue(h, "If-Modified-Since"))
	line(firstValue(h, "If-Match"))
	line(firstValue(h, "If-None-Match"))
	line(firstValue(h, "If-Unmodified-Since"))
	line(firstValue(h, "Range"))

	dst = c.appendHeaders(dst)
	dst = append(dst, '/')
	dst = append(dst, c.account...)
	dst = append(dst, resource...)
	sorted := c.query.sorted()
	for i, p := range sorted {
		if i > 0 && sorted[i-1].name == p.name { // values of one name are joined
			dst = append(dst, ',')
		} else {
			dst = append(dst, '\n')
			dst = append(dst, p.name...)
			dst = append(dst, ':')
		}
		dst = append(dst, p.value...)
	}
	return dst
}

// firstValue returns the first value of a header by its canonical name. Header.Get would
// canonicalize the name each time.
func firstValue(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// appendLiteStringToSign appends the string to sign for Shared Key Lite: fewer headers, and only
// the parameter comp (Authorize with Shared Key, "Blob, Queue, and File services (Shared Key
// Lite)").
func (c *call) appendLiteStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }
	line(c.request.Method)
	line(firstValue(h, "Content-Md5"))
	line(firstValue(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("")
	} else {
		line(firstValue(h, "Date"))
	}
	dst = c.appendHeaders(dst)
	dst = append(dst, '/')
	dst = append(dst, c.account...)
	dst = append(dst, resource...)
	if comp, found, _ := c.query.get("comp"); found { // duplicates were refused before
		dst = append(dst, "?comp="...)
		dst = append(dst, comp...)
	}
	return dst
}

// appendHeaders appends a line for each x-ms- header, ordered by name.
func (c *call) appendHeaders(dst []byte) []byte {
	h := c.request.Header
	var room [8]string
	names := room[:0]
	for name := range h { // canonical form, so names are unique
		if strings.HasPrefix(name, "X-Ms-") {
			names = append(names, name)
		}
	}
	if c.collated {
		slices.SortFunc(names, compareCollated)
	} else {
		slices.SortFunc(names, compareLower)
	}
	for _, name := range names {
		for i := range len(name) {
			dst = append(dst, lower(name[i]))
		}
		dst = append(dst, ':')
		for i, value := range h[name] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, strings.Trim(value, " \t")...) // as HTTP does
		}
		dst = append(dst, '\n')
	}
	return dst
}

func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// compareCollated compares names as the clients for Python and JavaScript do, which follow the
// service: hyphens are ignored, and an underscore sorts before digits.
func compareCollated(a, b string) int {
	i, j := 0, 0
	for {
		for i < len(a) && a[i] == '-' {
			i++
		}
		for j < len(b) && b[j] == '-' {
			j++
		}
		if i == len(a) || j == len(b) {
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), compareLower(a, b))
		}
		if c := cmp.Compare(collationWeight(a[i]), collationWeight(b[j])); c != 0 {
			return c
		}
		i, j = i+1, j+1
	}
}

func collationWeight(c byte) byte {
	if c == '_' {
		return '0' - 1
	}
	return lower(c)
}

// collates reports whether the two header orders may differ: only metadata names have
// underscores.
func collates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Ms-Meta-") && strings.IndexByte(name, '_') >= 0 {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
