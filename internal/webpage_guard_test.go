package internal_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/webpage"
)

var reached = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func TestForeignPagesChangeNothing(t *testing.T) {
	guarded := webpage.Guard{}.Handler(reached)
	for _, c := range []struct {
		method, header, value string
		status                int
	}{
		{http.MethodPost, "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{http.MethodPost, "Sec-Fetch-Site", "same-site", http.StatusForbidden},
		{http.MethodDelete, "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{http.MethodPost, "Origin", "http://evil.example", http.StatusForbidden},
		{http.MethodPost, "Origin", "null", http.StatusForbidden},
		{http.MethodPost, "Origin", "http://127.0.0.1:1", http.StatusForbidden}, // another port
		{http.MethodPost, "Origin", "http://127.0.0.1:8090", http.StatusNoContent},
		{http.MethodPost, "Sec-Fetch-Site", "same-origin", http.StatusNoContent},
		{http.MethodPost, "Sec-Fetch-Site", "none", http.StatusNoContent},
		{http.MethodPost, "X-Client", "curl", http.StatusNoContent},
		{http.MethodGet, "Sec-Fetch-Site", "cross-site", http.StatusNoContent}, // a link
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8090/", nil)
		r.Header.Set(c.header, c.value)
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s with %s: %s: got %d, want %d", c.method, c.header, c.value, w.Code, c.status)
		}
	}
}

func TestForeignNamesAreNotAnswered(t *testing.T) {
	guarded := webpage.Guard{Hosts: []string{"Blog.Example"}}.Handler(reached)
	for host, known := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:99": true, "[::1]:8090": true, "[::1]": true, "localhost:8090": true, "LOCALHOST": true, "localhost.": true, "x.localhost": true,
		"192.168.1.2:8090": true, "blog.example:80": true, "blog.example.": true,
		"": false, "evil.example": false, "evil.example:8090": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false,
		"notlocalhost": false, "blog.example.evil": false, "0x7f000001": false, "127.1": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		want := http.StatusMisdirectedRequest
		if known {
			want = http.StatusNoContent
		}
		if w.Code != want {
			t.Errorf("host %q: got %d, want %d", host, w.Code, want)
		}
	}
}

// Refusals have them too.
func TestEveryResponseHasTheHeaders(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "evil.example"} {
		for policy, want := range map[string]string{"": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", "default-src 'self'": "default-src 'self'"} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Host = host
			r.Header.Set("Origin", "http://evil.example")
			w := httptest.NewRecorder()
			webpage.Guard{Policy: policy}.Handler(reached).ServeHTTP(w, r)
			for name, value := range map[string]string{
				"Content-Security-Policy": want, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s, %s: got %q, want %q", host, name, got, value)
				}
			}
			if w.Code < 400 || strings.TrimSpace(w.Body.String()) == "" {
				t.Errorf("%s: got %d %q, want a refusal with a reason", host, w.Code, w.Body)
			}
		}
	}
}
