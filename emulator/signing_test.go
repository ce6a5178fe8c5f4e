package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sign signs a request for the development account, independently of the
// server's own code: by the text of "Authorize with Shared Key".
func sign(r *http.Request) {
	r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	if r.Header.Get("X-Ms-Version") == "" {
		r.Header.Set("X-Ms-Version", newestVersion)
	}
	r.Header.Set("Authorization", authorization(r, ""))
}

// authorization is the header for a request that is dated by x-ms-date, or by
// Date when that is given.
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
	text += "/" + DevelopmentAccount + r.URL.EscapedPath()
	given, _ := url.ParseQuery(r.URL.RawQuery)
	values := map[string][]string{}
	for name, v := range given {
		name = strings.ToLower(name)
		values[name] = slices.Sorted(slices.Values(append(values[name], v...)))
	}
	for _, name := range sortedNames(values) {
		text += "\n" + name + ":" + strings.Join(values[name], ",")
	}
	key, _ := base64.StdEncoding.DecodeString(DevelopmentKey)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return "SharedKey " + DevelopmentAccount + ":" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signed is a signed request of the in-process server.
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
