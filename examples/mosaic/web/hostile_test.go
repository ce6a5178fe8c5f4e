package web

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// clean checks that refused requests left nothing.
func (s *site) clean() {
	s.t.Helper()
	if got := s.w.entries(jobsFolder); len(got) != 0 {
		s.t.Errorf("%s: got %q, want nothing", jobsFolder, got)
	}
}

// hugePNG declares more pixels than it has.
func hugePNG() string {
	p := picturePNG(8, 8)
	copy(p[16:], []byte{0, 0, 0x40, 0, 0, 0, 0x40, 0})
	binary.BigEndian.PutUint32(p[29:], crc32.ChecksumIEEE(p[12:29]))
	return string(p)
}

func TestPicturesThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	good := string(picturePNG(64, 64))
	for _, c := range []struct {
		name, content string
		status        int
	}{
		{"empty.png", "", http.StatusBadRequest},
		{"text.png", "hello", http.StatusUnprocessableEntity},
		{"page.html", "<!doctype html><script>alert(1)</script>", http.StatusUnprocessableEntity},
		{"picture.svg", `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`, http.StatusUnprocessableEntity},
		{"cut.png", good[:len(good)/2], http.StatusUnprocessableEntity},
		{"cut in its header.png", good[:20], http.StatusUnprocessableEntity},
		{"damaged.png", good[:60] + "xxxx" + good[64:], http.StatusUnprocessableEntity},
		{"cut.gif", "GIF89a\xff\xff\xff\xff\x00\x00\x00", http.StatusRequestEntityTooLarge},
		{"cut.jpg", "\xff\xd8\xff\xe0\x00\x10JFIF", http.StatusUnprocessableEntity},
		{"huge.png", hugePNG(), http.StatusRequestEntityTooLarge},
		{"smaller than a tile.png", string(picturePNG(3, 3)), http.StatusUnprocessableEntity},
	} {
		r := s.post("/jobs", field{name: "picture", value: c.content, file: c.name})
		if r.status != c.status || len(r.failure(t)) < 10 || strings.Contains(r.failure(t), s.w.data) {
			t.Errorf("%s: got %d %q, want %d with a reason", c.name, r.status, r.failure(t), c.status)
		}
	}
	s.clean()
}

func TestFormsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	builtin := field{name: "builtin", value: "1"}
	for _, c := range []struct {
		name   string
		fields []field
	}{
		{"no picture", nil},
		{"two pictures", append(s.small(), s.small()...)},
		{"a picture and the built-in one", append(s.small(), builtin)},
		{"a tile of no size", []field{builtin, {name: "tile", value: "0"}}},
		{"a huge tile", []field{builtin, {name: "tile", value: "65"}}},
		{"a tile that is no number", []field{builtin, {name: "tile", value: "1e3"}}},
		{"a negative tint", []field{builtin, {name: "tint", value: "-1"}}},
		{"a strong tint", []field{builtin, {name: "tint", value: "41"}}},
		{"an impossible reuse", []field{builtin, {name: "reuse", value: "101"}}},
		{"a scale of nothing", []field{builtin, {name: "scale", value: "0"}}},
		{"a scale that is no number", []field{builtin, {name: "scale", value: "NaN"}}},
		{"a scale too large", []field{builtin, {name: "scale", value: "64.1"}}},
		{"a size of tiles that is not offered", []field{builtin, {name: "tile", value: "17"}}},
		{"negative slices", []field{builtin, {name: "slices", value: "-1"}}},
		{"thousands of slices", []field{builtin, {name: "slices", value: "501"}}},
		{"an unknown field", []field{builtin, {name: "path", value: "/etc/passwd"}}},
		{"a long field", []field{builtin, {name: "tile", value: strings.Repeat("1", 1000)}}},
		{"many fields", append(make([]field, 0), manyFields()...)},
	} {
		if r := s.post("/jobs", c.fields...); r.status != http.StatusBadRequest || len(r.failure(t)) < 10 {
			t.Errorf("%s: got %d %q, want 400 with a reason", c.name, r.status, r.failure(t))
		}
	}
	body, kind := multipartForm(s.small()...)
	for name, r := range map[string]reply{
		"another type":   s.do(http.MethodPost, "/jobs", strings.NewReader("builtin=1"), "Content-Type", "application/x-www-form-urlencoded"),
		"cut short":      s.do(http.MethodPost, "/jobs", bytes.NewReader(body.Bytes()[:body.Len()/2]), "Content-Type", kind),
		"cut at its end": s.do(http.MethodPost, "/jobs", bytes.NewReader(body.Bytes()[:body.Len()-8]), "Content-Type", kind),
		"no boundary":    s.do(http.MethodPost, "/jobs", strings.NewReader("x"), "Content-Type", "multipart/form-data"),
	} {
		if r.status != http.StatusBadRequest && r.status != http.StatusUnsupportedMediaType {
			t.Errorf("%s: got %d %s, want it refused", name, r.status, r.body)
		}
	}
	s.clean()
}

func manyFields() (all []field) {
	for range 21 {
		all = append(all, field{name: "builtin", value: "1"})
	}
	return all
}

func TestALargeUploadIsRefusedBeforeItIsRead(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 64 MiB twice")
	}
	t.Parallel()
	s := setup(t).serve(nil)
	body, kind := multipartForm(field{name: "picture", file: "x.png", value: strings.Repeat("x", maxUpload+form64k)})
	for name, r := range map[string]io.Reader{"chunked": io.MultiReader(bytes.NewReader(body.Bytes())), "with its length": body} {
		if r := s.do(http.MethodPost, "/jobs", r, "Content-Type", kind); r.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: got %d %s, want 413", name, r.status, r.body)
		}
	}
	s.clean()
}

// A client that reads or sends nothing does not hold a connection or a place for ever.
func TestEveryTransferHasADeadline(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	for _, c := range []struct {
		method, path string
		read         bool
	}{{http.MethodGet, "/", false}, {http.MethodGet, "/jobs/" + id + "/mosaic", false}, {http.MethodPost, "/jobs", true}, {http.MethodPost, "/faults", true}} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		body, kind := multipartForm(field{name: "kind", value: "none"})
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, body)
		r.Header.Set("Content-Type", kind)
		s.ServeHTTP(w, r)
		if w.write.IsZero() || time.Until(w.write) > time.Hour || c.read && (w.read.IsZero() || time.Until(w.read) > 2*time.Hour) {
			t.Errorf("%s %s: got the deadlines %v and %v", c.method, c.path, w.read, w.write)
		}
	}
}

// deadlines records the deadlines of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		d.read = at
	}
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

func TestTheNumberOfUploadsIsLimited(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	for range maxUploads {
		s.uploads <- struct{}{}
	}
	if r := s.post("/jobs", s.small()...); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, want 503 with Retry-After", r.status, r.body)
	}
	<-s.uploads
	s.until(s.make(s.small()...), done)
}

func TestNamesOfUploadsAreNeverPaths(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics")
	}
	t.Parallel()
	s := setup(t).serve(nil)
	for _, c := range []struct{ name, shown string }{
		{"../../../etc/passwd", "passwd"}, {`C:\Users\x\..\secret.png`, "secret.png"}, {"..", "picture"}, {".hidden", "hidden"},
		{"<script>alert(1)</script>.png", "script.png"}, {"a\u202egnp.exe", "agnp.exe"}, {strings.Repeat("ä", 300) + ".png", strings.Repeat("ä", 60)},
	} {
		id := s.make(field{name: "tile", value: "8"}, field{name: "picture", file: c.name, value: string(picturePNG(64, 48))})
		if got := s.until(id, done).Name; got != c.shown {
			t.Errorf("%q: got the name %q, want %q", c.name, got, c.shown)
		}
		if page := s.do(http.MethodGet, "/jobs/"+id, nil, "Accept", "text/html"); page.status != http.StatusOK || bytes.Contains(page.body, []byte("<script>alert")) {
			t.Errorf("%q: the page has it as it was sent", c.name)
		}
		if got := s.get("/jobs/" + id + "/mosaic").header.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment; filename") || strings.ContainsAny(got, "/\\\r\n") {
			t.Errorf("%q: got the disposition %q", c.name, got)
		}
	}
	for _, id := range s.w.entries(jobsFolder) {
		if len(id) != 26 || strings.ToLower(id) != id {
			t.Errorf("folder: got %q, want an id of ours", id)
		}
	}
}

func TestDisplayNamesAreHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := displayName(rapid.String().Draw(t, "name"))
		if name == "" || utf8.RuneCountInString(name) > 60 || !utf8.ValidString(name) || strings.ContainsAny(name, `/\<>:"|?*`) || strings.HasPrefix(name, ".") ||
			strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("got %q", name)
		}
	})
}

func TestOnlyOurOwnPagesChangeAnything(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	own := s.http.URL
	paths := []string{"/jobs", "/jobs/" + id + "/delete", "/queues/slicerequest/redrive", "/processors/0/kill", "/faults"}
	for _, path := range paths {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"},
			{"Sec-Fetch-Site", "cross-site", "Origin", own},
		} {
			if r := s.do(http.MethodPost, path, nil, header...); r.status != http.StatusForbidden {
				t.Errorf("POST %s with %q: got %d, want 403", path, header, r.status)
			}
		}
		if r := s.get(path); r.status != http.StatusNotFound && r.status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d, want 404 or 405", path, r.status)
		}
	}
	s.want(http.StatusOK, "/jobs/"+id)
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin", "Origin", own}, {"Origin", own}, {}} {
		body, kind := multipartForm(s.small()...)
		if r := s.do(http.MethodPost, "/jobs", body, append(header, "Content-Type", kind)...); r.status != http.StatusCreated {
			t.Errorf("POST /jobs with %q: got %d %s, want 201", header, r.status, r.body)
		}
	}
}

func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	for host, known := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:99": true, "[::1]:8088": true, "localhost:8088": true, "LOCALHOST": true, "x.localhost": true, "192.168.1.2:8088": true,
		"evil.example": false, "mosaic.example": false, "evil.example:8088": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "notlocalhost": false, "0x7f000001": false,
	} {
		if r := s.do(http.MethodGet, "/", nil, "Host", host); (r.status == http.StatusOK) != known {
			t.Errorf("host %q: got %d, want known %v", host, r.status, known)
		}
	}
}

func TestAllResponsesHaveTheHeadersOfSecurity(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	for _, r := range []reply{
		s.get("/"), s.get("/none"), s.get("/jobs/" + id), s.get("/jobs/" + id + "/mosaic"), s.get("/jobs/" + id + "/zoom/0/0/0"), s.get("/static/style.css"),
		s.post("/faults", field{name: "kind", value: "x"}), s.do(http.MethodGet, "/", nil, "Host", "evil.example"), s.do(http.MethodPost, "/jobs", nil, "Origin", "http://evil.example"),
	} {
		if r.status == http.StatusMisdirectedRequest { // it has no page, and so an answer of package webpage
			continue
		}
		if csp := r.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") == "" {
			t.Errorf("%d: got the headers %v", r.status, r.header)
		}
	}
	r := s.get("/static/style.css")
	if again := s.do(http.MethodGet, "/static/style.css", nil, "If-None-Match", r.header.Get("ETag")); again.status != http.StatusNotModified {
		t.Errorf("style that has not changed: got %d, want 304", again.status)
	}
}
