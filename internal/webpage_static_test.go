package internal_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/millrace/millrace/internal/webpage"
)

// baseSheet returns the base stylesheet of all fronts.
func baseSheet(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("webpage/" + webpage.Base)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStaticServesItsFilesOnly(t *testing.T) {
	missing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h, err := webpage.Static(fstest.MapFS{"style.css": {Data: []byte("p {}")}}, missing)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/{file}", h)
	get := func(address, etag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, address, nil)
		r.Header.Set("If-None-Match", etag)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	for name, text := range map[string]string{"style.css": "p {}", webpage.Base: baseSheet(t)} {
		w := get("/static/"+name, "")
		if w.Code != http.StatusOK || w.Body.String() != text || w.Header().Get("Content-Type") != "text/css; charset=utf-8" {
			t.Errorf("%s: got %d %s %q", name, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if again := get("/static/"+name, w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s, with its ETag: got %d", name, again.Code)
		}
	}
	for _, name := range []string{"other.css", "..", "%2e%2e%2fguard.go"} {
		if w := get("/static/"+name, ""); w.Code == http.StatusOK {
			t.Errorf("%s: got %d %q", name, w.Code, w.Body)
		}
	}
	if w := get("/static/other.css", ""); w.Code != http.StatusTeapot {
		t.Errorf("other.css: got %d, want the answer of notFound", w.Code)
	}
}

// Contrast as WCAG computes it.
func TestTextIsReadableInBothSchemes(t *testing.T) {
	type pair [2]string // light and dark
	colours := make(map[string]pair)
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)`).FindAllStringSubmatch(baseSheet(t), -1) {
		colours[m[1]] = pair{m[2], m[3]}
	}
	const text, control = 4.5, 3
	for _, c := range []struct {
		front, back string
		least       float64
	}{
		{"ink", "paper", text}, {"ink", "sheet", text}, {"ink", "wash", text}, {"ink", "alarm-wash", text},
		{"soft", "paper", text}, {"soft", "sheet", text},
		{"accent", "paper", text}, {"accent", "sheet", text}, {"on-accent", "accent", text},
		{"alarm", "paper", text}, {"alarm", "alarm-wash", text},
		{"edge", "paper", control}, {"edge", "sheet", control}, {"accent", "line", control},
	} {
		front, ok := colours[c.front]
		back, found := colours[c.back]
		if !ok || !found {
			t.Fatalf("the sheet has no colour %s or %s", c.front, c.back)
		}
		for i, scheme := range []string{"light", "dark"} {
			a, b := luminance(t, front[i]), luminance(t, back[i])
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < c.least {
				t.Errorf("%s on %s, %s: contrast %.2f, want %v or more", c.front, c.back, scheme, got, c.least)
			}
		}
	}
}

// luminance is the relative luminance of a colour such as 1b2125.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}
