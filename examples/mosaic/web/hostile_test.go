package web

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/layout"
)

// clean checks that refused requests left nothing.
func (s *site) clean() {
	s.t.Helper()
	for _, folder := range []string{jobsFolder, incomingFolder, librariesFolder} {
		if got := s.w.entries(folder); len(got) != 0 {
			s.t.Errorf("%s: got %q, want nothing", folder, got)
		}
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
		{"a scale of three digits", []field{builtin, {name: "scale", value: "1.005"}}},
		{"an unknown library", []field{builtin, {name: "library", value: "../../etc"}}},
		{"an unknown field", []field{builtin, {name: "path", value: "/etc/passwd"}}},
		{"a long field", []field{builtin, {name: "library", value: strings.Repeat("x", maxField+1)}}},
		{"many fields", append(make([]field, 0), manyFields()...)},
	} {
		if r := s.post("/jobs", c.fields...); r.status != http.StatusBadRequest || len(r.failure(t)) < 10 {
			t.Errorf("%s: got %d %q, want 400 with a reason", c.name, r.status, r.failure(t))
		}
	}
	body, kind := multipartForm(s.small()...)
	for name, r := range map[string]reply{
		"another type":    s.do(http.MethodPost, "/jobs", strings.NewReader("builtin=1"), "Content-Type", "application/x-www-form-urlencoded"),
		"cut short":       s.do(http.MethodPost, "/jobs", bytes.NewReader(body.Bytes()[:body.Len()/2]), "Content-Type", kind),
		"cut at its end":  s.do(http.MethodPost, "/jobs", bytes.NewReader(body.Bytes()[:body.Len()-8]), "Content-Type", kind),
		"no boundary":     s.do(http.MethodPost, "/jobs", strings.NewReader("x"), "Content-Type", "multipart/form-data"),
		"another library": s.post("/libraries", field{name: "path", value: "/etc"}),
		"empty library":   s.post("/libraries", field{name: "name", value: "x"}),
	} {
		if r.status != http.StatusBadRequest && r.status != http.StatusUnsupportedMediaType {
			t.Errorf("%s: got %d %s, want it refused", name, r.status, r.body)
		}
	}
	s.clean()
}

func manyFields() (all []field) {
	for range maxFields + 1 {
		all = append(all, field{name: "builtin", value: "1"})
	}
	return all
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		status int
		say    string
	}{
		{"upload", Limits{Upload: 50}, http.StatusRequestEntityTooLarge, "larger than 50 bytes"},
		{"pixels", Limits{Pixels: 32*24 - 1}, http.StatusRequestEntityTooLarge, "32×24"},
		{"output", Limits{Output: 32*24 - 1}, http.StatusUnprocessableEntity, "32×24"},
		{"disk", Limits{Disk: 100}, http.StatusInsufficientStorage, "100 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup(t).serve(func(o *Options) { o.Limits = c.limits })
			r := s.post("/jobs", s.small()...)
			if r.status != c.status || !strings.Contains(r.failure(t), c.say) {
				t.Errorf("got %d %s, want %d and %q", r.status, r.body, c.status, c.say)
			}
			s.clean()
		})
	}
}

func TestALargeUploadIsRefusedBeforeItIsRead(t *testing.T) {
	s := setup(t).serve(func(o *Options) { o.Limits.Upload = 1000 })
	body, kind := multipartForm(field{name: "picture", file: "x.png", value: strings.Repeat("x", 1<<20)})
	// Chunked, so that its length is not known before.
	r := s.do(http.MethodPost, "/jobs", io.MultiReader(body), "Content-Type", kind)
	if r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d %s, want 413", r.status, r.body)
	}
	s.clean()
}

func TestTheNumberOfJobsIsLimited(t *testing.T) {
	s := setup(t).serve(func(o *Options) { o.Limits.Jobs = 1 })
	id := s.make(s.small()...)
	if r := s.post("/jobs", s.small()...); r.status != http.StatusConflict || !strings.Contains(r.failure(t), "delete some") {
		t.Errorf("second job: got %d %s, want 409", r.status, r.body)
	}
	s.until(id, done)
	if r := s.post("/jobs/" + id + "/delete"); r.status != http.StatusOK {
		t.Fatalf("delete: got %d", r.status)
	}
	s.until(s.make(s.small()...), done)
}

func TestTheNumberOfUploadsIsLimited(t *testing.T) {
	s := setup(t).serve(func(o *Options) { o.Limits.Uploads = 1 })
	s.uploads <- struct{}{}
	if r := s.post("/jobs", s.small()...); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, want 503 with Retry-After", r.status, r.body)
	}
	<-s.uploads
	s.until(s.make(s.small()...), done)
}

func TestNamesOfUploadsAreNeverPaths(t *testing.T) {
	s := setup(t).serve(nil)
	for _, c := range []struct{ name, shown string }{
		{"../../../etc/passwd", "passwd"}, {`C:\Users\x\..\secret.png`, "secret.png"}, {"..", "picture"}, {".hidden", "hidden"},
		{"<script>alert(1)</script>.png", "script.png"}, {"a\u202egnp.exe", "agnp.exe"}, {strings.Repeat("ä", 300) + ".png", strings.Repeat("ä", 50)},
	} {
		id := s.make(field{name: "tile", value: "4"}, field{name: "library", value: folderKey(s.w.tiles)}, field{name: "picture", file: c.name, value: string(picturePNG(32, 24))})
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
		name := displayName(rapid.String().Draw(t, "name"), "instead")
		if name == "" || len(name) > 100 || !utf8.ValidString(name) || strings.ContainsAny(name, `/\<>:"|?*`) || strings.HasPrefix(name, ".") ||
			strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("got %q", name)
		}
	})
}

func TestPathsAreRemovedFromErrors(t *testing.T) {
	for text, want := range map[string]string{
		"open /home/ann/mosaic/x.png: permission denied":  "open …: permission denied",
		`open "C:\Users\ann\x": denied`:                   `open "…": denied`,
		"/a/b; /c":                                        "…; …",
		"blob://slicerequest/1/2 is missing, 3/4 are not": "blob://slicerequest/1/2 is missing, 3/4 are not",
	} {
		if got := withoutPaths(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestOnlyOurOwnPagesChangeAnything(t *testing.T) {
	s := setup(t).serve(func(o *Options) { o.Hosts = []string{"mosaic.example"} })
	id := s.make(s.small()...)
	s.until(id, done)
	own := s.http.URL
	paths := []string{"/jobs", "/jobs/" + id + "/delete", "/jobs/" + id + "/retry", "/libraries", "/libraries/x/delete", "/queues/slicerequest/redrive", "/processors/0/kill", "/faults"}
	for _, path := range paths {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"},
			{"Sec-Fetch-Site", "cross-site", "Origin", own},
		} {
			if r := s.do(http.MethodPost, path, nil, header...); r.status != http.StatusForbidden {
				t.Errorf("POST %s with %q: got %d, want 403", path, header, r.status)
			}
		}
		// An address for which GET asks a question changes nothing either.
		if r := s.get(path); r.status != http.StatusNotFound && r.status != http.StatusMethodNotAllowed && !strings.Contains(string(r.body), "Keep it") {
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
	s := setup(t).serve(func(o *Options) { o.Hosts = []string{"Mosaic.Example"} })
	for host, known := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:99": true, "[::1]:8088": true, "localhost:8088": true, "LOCALHOST": true, "x.localhost": true, "192.168.1.2:8088": true, "mosaic.example:80": true, "mosaic.example.": true,
		"evil.example": false, "evil.example:8088": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "notlocalhost": false, "mosaic.example.evil": false, "0x7f000001": false,
	} {
		if r := s.do(http.MethodGet, "/", nil, "Host", host); (r.status == http.StatusOK) != known {
			t.Errorf("host %q: got %d, want known %v", host, r.status, known)
		}
	}
}

func TestAllResponsesHaveTheHeadersOfSecurity(t *testing.T) {
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	for _, r := range []reply{
		s.get("/"), s.get("/none"), s.get("/jobs/" + id), s.get("/jobs/" + id + "/mosaic"), s.get("/jobs/" + id + "/zoom/0/0/0"), s.get("/static/style.css"),
		s.post("/faults", field{name: "kind", value: "x"}), s.do(http.MethodGet, "/", nil, "Host", "evil.example"), s.do(http.MethodPost, "/jobs", nil, "Origin", "http://evil.example"),
	} {
		if csp := r.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") == "" {
			t.Errorf("%d: got the headers %v", r.status, r.header)
		}
	}
	r := s.get("/static/style.css")
	if again := s.do(http.MethodGet, "/static/style.css", nil, "If-None-Match", r.header.Get("ETag")); again.status != http.StatusNotModified {
		t.Errorf("style that has not changed: got %d, want 304", again.status)
	}
}

func TestDefaultsOfTheFormArePossible(t *testing.T) {
	s := setup(t).serve(nil)
	f := s.form()
	if f.DefaultTile > f.MaxTile || f.DefaultReuse != int(layout.DefaultReuse) || f.MaxTint != layout.MaxTint || f.DefaultScale.Check() != nil {
		t.Errorf("form: got %+v", f)
	}
	s.until(s.make(field{name: "builtin", value: "1"}, field{name: "library", value: folderKey(s.w.tiles)}), done)
}

// A large upload is not decoded beside a large picture of the roles.
func TestUploadsShareTheMemoryOfTheRoles(t *testing.T) {
	s := setup(t).serve(nil)
	if err := s.root.WriteFile(incomingFolder+"/one", picturePNG(32, 24), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := s.options.System.Reserve(t.Context(), math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := s.inspect(short, &order{picture: incomingFolder + "/one"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without memory: got the error %v, want that it waited in vain", err)
	}
	free()
	if _, h, err := s.inspect(t.Context(), &order{picture: incomingFolder + "/one"}); err != nil || h.Width != 32 {
		t.Errorf("with memory: got %d pixels, %v", h.Width, err)
	}
}
