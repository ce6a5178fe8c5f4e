package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOnlyOurOwnPagesChangeAnything(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	action := writeTo(w.channel("Mills"))
	for address, fields := range map[string]string{
		"/channels": formOf("name", "Evil", "owner", "Eve"),
		action:      formOf("user", "Eve", "title", "evil", "text", "evil"),
		"/delete?name=Mills&incarnation=" + string(w.channel("Mills").Incarnation): formOf("once", "1"),
	} {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"},
			{"Sec-Fetch-Site", "cross-site", "Origin", "http://127.0.0.1:8090"},
		} {
			w.do(http.MethodPost, address, fields, append(header, "Content-Type", formType)...).is(http.StatusForbidden).says("nothing was done")
		}
		w.do(http.MethodPost, address, fields, "Content-Type", formType, "Host", "evil.example").is(http.StatusMisdirectedRequest)
	}
	if list := w.get("/"); strings.Contains(list.page, "Evil") || w.depth() != 0 || len(w.titles("Mills")) != 0 {
		t.Errorf("other pages changed something: %s", list.page)
	}
	w.do(http.MethodPost, action, formOf("user", "Ann", "title", "ours", "text", "text"), "Content-Type", formType, "Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:8090").is(http.StatusSeeOther)
}

func TestForeignNamesSeeNothing(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	if r := w.do(http.MethodGet, "/", "", "Host", "evil.example").is(http.StatusMisdirectedRequest); strings.Contains(r.page, "Mills") {
		t.Errorf("got %s", r.page)
	}
}

func TestEveryPageHasTheHeaders(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	for _, r := range []*reply{
		w.get("/"), w.get("/channel?name=Mills"), w.get("/delete?name=Mills"), w.get("/nothing"), w.get("/static/style.css"), w.post("/channels", "name", "", "owner", ""),
		w.do(http.MethodPost, "/channels", "", "Origin", "null"), w.post("/channels", "name", "new", "owner", "Ann"),
	} {
		h := r.Header()
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("got %v", h)
		}
		if strings.HasPrefix(h.Get("Content-Type"), "text/html") && r.Code != http.StatusSeeOther && h.Get("Cache-Control") != "no-store" {
			t.Errorf("got %v, want that nothing is kept", h)
		}
	}
	if strings.Contains(policy, "script") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy allows scripts: %s", policy)
	}
}

// FuzzAddress: no address makes a page fail.
func FuzzAddress(f *testing.F) {
	w := newWorld(f)
	w.make("Mills")
	for range 6 {
		w.write("Mills", "title")
	}
	f.Add("/channel?name=Mills&from=x", "")
	f.Add("/", "name=x")
	f.Fuzz(func(t *testing.T, address, body string) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if r.URL, err = r.URL.Parse("/" + strings.TrimLeft(address, "/")); err != nil || r.URL.Host != "127.0.0.1" {
				return
			}
			r.Header.Set("Content-Type", formType)
			recorder := httptest.NewRecorder()
			w.server.ServeHTTP(recorder, r)
			if recorder.Code >= http.StatusInternalServerError {
				t.Errorf("%s %s: got %d: %s", method, address, recorder.Code, recorder.Body)
			}
		}
	})
}
