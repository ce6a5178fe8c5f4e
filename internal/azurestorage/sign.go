package azurestorage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Sign authorizes a request without a body with the location's key or signature, for requests that no SDK
// has. The request has all its headers x-ms-… and its query, except for what Sign adds. With TokenAuth it
// adds nothing.
func (at Location) Sign(r *http.Request) error {
	switch at.Auth {
	case SASAuth:
		r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+at.Signature, "&")
	case KeyAuth:
		key, err := base64.StdEncoding.DecodeString(at.Key)
		if err != nil {
			return fmt.Errorf("sign with the account's key: %w", at.RedactError(err))
		}
		r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
		h := hmac.New(sha256.New, key)
		h.Write([]byte(at.stringToSign(r)))
		r.Header.Set("Authorization", "SharedKey "+at.Account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	case TokenAuth:
	}
	return nil
}

// stringToSign is that of "Authorize with Shared Key" for a request without a body and without standard
// headers.
func (at Location) stringToSign(r *http.Request) string {
	const standardHeaders = 11 // all empty
	var b strings.Builder
	b.WriteString(r.Method + strings.Repeat("\n", standardHeaders+1))
	var names []string
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString(name + ":" + strings.TrimSpace(r.Header.Get(name)) + "\n")
	}
	b.WriteString("/" + at.Account + r.URL.EscapedPath())
	parameters := map[string][]string{}
	names = names[:0]
	query, _ := url.ParseQuery(r.URL.RawQuery) // as the caller made it
	for name, values := range query {
		lower := strings.ToLower(name)
		if parameters[lower] == nil {
			names = append(names, lower)
		}
		parameters[lower] = append(parameters[lower], values...)
	}
	slices.Sort(names)
	for _, name := range names {
		slices.Sort(parameters[name])
		b.WriteString("\n" + name + ":" + strings.Join(parameters[name], ","))
	}
	return b.String()
}
