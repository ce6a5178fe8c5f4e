package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sign signs a request for the development account, independently of the server's code, as
// "Authorize with Shared Key" describes it.
func sign(r *http.Request) {
	r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	if r.Header.Get("X-Ms-Version") == "" {
		r.Header.Set("X-Ms-Version", newestVersion)
	}
	r.Header.Set("Authorization", authorization(r, ""))
}

// authorization returns the header for a request that is dated by x-ms-date, or by Date if date
// is not "".
func authorization(r *http.Request, date string) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	text := strings.Join([]string{r.Method, "", "", length, r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"),
		date, "", "", "", "", ""}, "\n") + "\n"
	for _, name := range sortedNames(r.Header) {
		if strings.HasPrefix(name, "x-ms-") {
			text += name + ":" + strings.Join(r.Header.Values(name), ",") + "\n"
		}
	}
	text += "/" + accountOf(r) + r.URL.EscapedPath()
	given, _ := url.ParseQuery(r.URL.RawQuery)
	values := map[string][]string{}
	for name, v := range given {
		name = strings.ToLower(name)
		values[name] = slices.Sorted(slices.Values(append(values[name], v...)))
	}
	for _, name := range sortedNames(values) {
		text += "\n" + name + ":" + strings.Join(values[name], ",")
	}
	return "SharedKey " + accountOf(r) + ":" + mac(DevelopmentKey, text)
}

// lite returns the header for the scheme SharedKeyLite.
func lite(r *http.Request) string {
	text := strings.Join([]string{r.Method, r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"), ""}, "\n") + "\n"
	for _, name := range sortedNames(r.Header) {
		if strings.HasPrefix(name, "x-ms-") {
			text += name + ":" + strings.Join(r.Header.Values(name), ",") + "\n"
		}
	}
	text += "/" + accountOf(r) + r.URL.EscapedPath()
	if comp := r.URL.Query().Get("comp"); comp != "" {
		text += "?comp=" + comp
	}
	return "SharedKeyLite " + accountOf(r) + ":" + mac(DevelopmentKey, text)
}

// accountOf returns the account that a request addresses, in either style.
func accountOf(r *http.Request) string {
	label, _, _ := strings.Cut(r.Host, ".")
	switch account := strings.TrimSuffix(strings.ToLower(label), "-secondary"); account {
	case DevelopmentAccount, "second":
		if strings.Contains(r.Host, ".queue.") {
			return account
		}
	}
	account, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return strings.TrimSuffix(account, "-secondary")
}

// mac returns the HMAC-SHA256 of a text with a key in Base64, in Base64.
func mac(key, text string) string {
	decoded, _ := base64.StdEncoding.DecodeString(key)
	h := hmac.New(sha256.New, decoded)
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// withSAS authorizes a request with a shared access signature only.
func withSAS(r *http.Request, parameters map[string]string) {
	r.Header.Del("Authorization")
	r.Header.Del("x-ms-date")
	query, _ := url.ParseQuery(r.URL.RawQuery)
	for name, value := range parameters {
		if value != "" {
			query.Set(name, value)
		}
	}
	r.URL.RawQuery = query.Encode()
}

// inHours returns the time in n hours, as in signatures and policies.
func inHours(n int) string {
	return time.Now().Add(time.Duration(n) * time.Hour).UTC().Format("2006-01-02T15:04:05Z")
}

// accountSAS authorizes a request with an account SAS with all permissions, signed as "Create an
// account SAS" describes it. The pairs change its parameters; "" omits one.
func accountSAS(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		p := map[string]string{"sv": "2020-08-04", "ss": "bq", "srt": "sco", "sp": "rwdlacup", "se": inHours(1)}
		maps.Copy(p, inPairs(pairs))
		lines := []string{accountOf(r), p["sp"], p["ss"], p["srt"], p["st"], p["se"], p["sip"], p["spr"], p["sv"]}
		if p["sv"] >= "2020-12-06" {
			lines = append(lines, p["ses"])
		}
		p["sig"] = mac(DevelopmentKey, strings.Join(lines, "\n")+"\n")
		withSAS(r, p)
	}
}

// serviceSAS authorizes a request with a service SAS for a queue, signed as "Create a service
// SAS" describes it.
func serviceSAS(queue string, pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		p := map[string]string{"sv": "2026-04-06", "sp": "raup", "se": inHours(1)}
		maps.Copy(p, inPairs(pairs))
		p["sig"] = mac(DevelopmentKey, strings.Join([]string{p["sp"], p["st"], p["se"], "/queue/" + accountOf(r) + "/" + queue,
			p["si"], p["sip"], p["spr"], p["sv"]}, "\n"))
		withSAS(r, p)
	}
}

// delegationSAS authorizes a request with a user delegation SAS for a queue, signed with the key
// as "Create a user delegation SAS" describes it.
func delegationSAS(queue, key string, pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		p := map[string]string{"sv": "2026-04-06", "sp": "raup", "se": inHours(1), "skoid": user, "sktid": tenant, "skt": inHours(-1),
			"ske": inHours(2), "sks": "q", "skv": "2026-04-06"}
		maps.Copy(p, inPairs(pairs))
		p["sig"] = mac(key, strings.Join([]string{p["sp"], p["st"], p["se"], "/queue/" + accountOf(r) + "/" + queue,
			p["skoid"], p["sktid"], p["skt"], p["ske"], p["sks"], p["skv"], p["skdutid"], p["sduoid"], p["sip"], p["spr"], p["sv"]}, "\n"))
		withSAS(r, p)
	}
}

func inPairs(pairs []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// The tenant and user of the tokens.
const (
	tenant = "ab1f708d-50f6-404c-a006-d71b2ac7a606"
	user   = "11059fcc-5514-4800-b5f8-49808b9cfab6"
)

// inSeconds is a time in a claim, relative to when the token is made: a table is made long before
// some of its tests run.
type inSeconds int64

// token returns an unsigned JSON Web Token like those of Microsoft Entra ID. The changes are
// claims; nil omits one.
func token(changes map[string]any) string {
	said := map[string]any{"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/" + tenant + "/",
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "oid": user, "tid": tenant}
	maps.Copy(said, changes)
	maps.DeleteFunc(said, func(_ string, value any) bool { return value == nil })
	for claim, value := range said {
		if later, ok := value.(inSeconds); ok {
			said[claim] = time.Now().Unix() + int64(later)
		}
	}
	payload, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"typ":"JWT","alg":"none"}`)) + "." + encode(payload) + "."
}

// withToken authorizes a request with a bearer token.
func withToken(changes map[string]any) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("x-ms-date")
		r.Header.Set("Authorization", "Bearer "+token(changes))
	}
}

// anonymously removes a request's authorization.
func anonymously(r *http.Request) {
	r.Header.Del("Authorization")
	r.Header.Del("x-ms-date")
}

// signed returns a signed request to the in-process server.
func signed(method, path, body string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+inProcess+"/"+DevelopmentAccount+path, reader)
	if err != nil {
		panic(err)
	}
	sign(r)
	return r
}

// sortedNames returns the keys of headers or parameters in lower case, sorted.
func sortedNames(m map[string][]string) []string {
	var names []string
	for name := range maps.Keys(m) {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return names
}
