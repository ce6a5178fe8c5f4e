package main

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/internal/azuritetest"
)

// asVideo makes this test binary the program itself.
const asVideo = "VIDEO_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asVideo) != "" {
		main()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// output collects what a program writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// address waits until the pages are served, and returns where.
func address(t *testing.T, out *output) string {
	t.Helper()
	at := ""
	azuritetest.Until(t, "the pages are served", func() bool {
		if found := regexp.MustCompile(`videos are at (http://[^/]+)/`).FindStringSubmatch(out.String()); found != nil {
			at = found[1]
		}
		return at != ""
	})
	return at
}

// run runs the program in this process until the end of the test, and returns the address of its pages.
func run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, ended := new(output), make(chan int, 1)
	go func() { ended <- command(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), out, out) }() // waited for below
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 {
			t.Errorf("the program ended with status %d: %s", status, out)
		}
	})
	return address(t, out)
}

// process runs the program in a process of its own.
func process(t *testing.T, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	cmd, out := exec.Command(os.Args[0], args...), new(output)
	cmd.Env = append(os.Environ(), asVideo+"=1", "XDG_DATA_HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // likewise
	})
	return cmd, out
}

// fetch sends a request, with headers given as name and value in turn, and returns the answer after redirects.
func fetch(t *testing.T, method, url string, body io.Reader, headers ...string) (status int, at, page string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Request.URL.Path, string(text)
}

func get(t *testing.T, url string) string {
	t.Helper()
	_, _, page := fetch(t, http.MethodGet, url, nil)
	return page
}

// upload sends a form with a clip, and with fields given as name and value in turn.
func upload(t *testing.T, site string, clip []byte, fields ...string) (status int, at, page string) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = form.WriteField(fields[i], fields[i+1]) // a buffer does not fail
	}
	file, _ := form.CreateFormFile("clip", "clip.gif") // likewise
	_, _ = file.Write(clip)
	_ = form.Close()
	return fetch(t, http.MethodPost, site+"/upload", &b, "Content-Type", form.FormDataContentType())
}

func testFilm(t *testing.T, width, height, frames int) []byte {
	t.Helper()
	clip, err := film(width, height, frames, 1)
	if err != nil {
		t.Fatal(err)
	}
	return clip
}

// watched waits until all formats of a video are there.
func watched(t *testing.T, site, video string) (page string) {
	t.Helper()
	azuritetest.Until(t, "the clip is converted", func() bool {
		page = get(t, site+video)
		return !strings.Contains(page, `http-equiv="refresh"`)
	})
	return page
}

// V-01: what a visitor uploads is converted, played, found, and found by its new credits once they are corrected.
func TestAVisitorUploadsWatchesAndFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("makes films")
	}
	site := run(t)
	name := newName()
	fields := []string{"name", name, "title", "The Mill <b>", "actors", "Ann Weir, Tom Race", "directors", "Ada", "keywords", "water, wheel", "news", "1"}
	status, at, page := upload(t, site, testFilm(t, 64, 36, 5), fields...)
	if status != http.StatusOK || at != "/watch/"+name {
		t.Fatalf("the upload led to %d %s: %s", status, at, page)
	}
	if _, again, _ := upload(t, site, testFilm(t, 64, 36, 5), fields...); again != at {
		t.Errorf("sent twice, the form led to %s and %s", at, again)
	}
	page = watched(t, site, at)
	for _, want := range []string{"The Mill &lt;b&gt;", "Ann Weir, Tom Race", `src="/clips/` + name + `/large.gif"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	for _, f := range formats {
		if status, _, content := fetch(t, http.MethodGet, site+"/clips/"+name+"/"+f.Name, nil); status != http.StatusOK || http.DetectContentType([]byte(content)) != f.kind {
			t.Errorf("%s: got %d, %s", f.Name, status, http.DetectContentType([]byte(content)))
		}
	}
	finds := func(query string, want bool) {
		t.Helper()
		azuritetest.Until(t, query+" finds as it should", func() bool {
			return strings.Contains(get(t, site+"/search?q="+query), `href="/watch/`+name+`"`) == want
		})
	}
	finds("actor:weir+whe*", true)

	correct := func(version, title string) int {
		status, _, _ := fetch(t, http.MethodPost, site+at, strings.NewReader("version="+version+"&title="+title), "Content-Type", "application/x-www-form-urlencoded")
		return status
	}
	if first, second := correct("2", "Pond"), correct("2", "Lake"); first != http.StatusOK || second != http.StatusConflict {
		t.Errorf("two corrections of one version: got %d and %d, want 200 and 409", first, second)
	}
	finds("title:pond", true)
	finds("actor:weir", false)
	if list := get(t, site); strings.Count(list, `href="/watch/`) != 7 || !strings.Contains(list, "Pond") {
		t.Errorf("the list has not the samples and one more: %s", list)
	}
}

// Whatever is uploaded, the visitor is told, and others are served.
func TestHostileUploadsHurtNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("uploads many clips")
	}
	site := run(t)
	film := testFilm(t, 64, 36, 5)
	many := &gif.GIF{}
	for range maxFrames + 1 {
		many.Image, many.Delay = append(many.Image, image.NewPaletted(image.Rect(0, 0, 1, 1), color.Palette{color.Black})), append(many.Delay, 0)
	}
	var crowd bytes.Buffer
	if err := gif.EncodeAll(&crowd, many); err != nil {
		t.Fatal(err)
	}
	wide := bytes.Clone(film)
	wide[6], wide[7] = 0xff, 0xff
	for what, c := range map[string]struct {
		clip   []byte
		fields []string
		status int
		says   string
	}{
		"no GIF":           {[]byte("<html>"), []string{"title", "x"}, http.StatusBadRequest, "must be an animated GIF"},
		"nothing":          {nil, []string{"title", "x"}, http.StatusBadRequest, "must be an animated GIF"},
		"a header":         {film[:13], []string{"title", "x"}, http.StatusBadRequest, "Not a clip"},
		"too wide":         {wide, []string{"title", "x"}, http.StatusBadRequest, "65535×36"},
		"too many frames":  {crowd.Bytes(), []string{"title", "x"}, http.StatusBadRequest, "501 frames"},
		"too large":        {make([]byte, maxBytes+100_000), []string{"title", "x"}, http.StatusRequestEntityTooLarge, "8 MB"},
		"no title":         {film, nil, http.StatusBadRequest, "blank"},
		"a control":        {film, []string{"title", "a\x1b[2J"}, http.StatusBadRequest, "control characters"},
		"a name elsewhere": {film, []string{"title", "x", "name", "../../x"}, http.StatusBadRequest, "not one of this site"},
	} {
		fields := c.fields
		if what != "a name elsewhere" {
			fields = append(fields, "name", newName())
		}
		if status, _, page := upload(t, site, c.clip, fields...); status != c.status || !strings.Contains(page, c.says) {
			t.Errorf("%s: got %d %s, want %d with %q", what, status, page, c.status, c.says)
		}
	}
	// This one looks like a clip until it is decoded.
	_, at, _ := upload(t, site, film[:len(film)/2], "title", "half", "name", newName())
	if page := watched(t, site, at); !strings.Contains(page, "could not be converted") {
		t.Errorf("half a clip: got %s", page)
	}
	if list := get(t, site); strings.Count(list, `href="/watch/`) != 7 || !strings.Contains(list, "could not be converted") {
		t.Errorf("the list: got %s", list)
	}
	_, at, _ = upload(t, site, film, "title", "whole", "name", newName())
	if page := watched(t, site, at); !strings.Contains(page, "large.gif") {
		t.Errorf("a good clip after them: got %s", page)
	}
	for path, status := range map[string]int{
		"/watch/x": 404, "/watch/" + newName(): 404, "/clips/" + newName() + "/small.gif": 404, "/clips/x/..%2f..%2fx": 404, "/nothing": 404,
		"/search?q=alien:x": 400, "/search?q=sea**": 400, "/search": 200, "/upload": 200, "/static/base.css": 200, "/?after=%00": 200,
	} {
		if got, _, page := fetch(t, http.MethodGet, site+path, nil); got != status {
			t.Errorf("%s: got %d, want %d: %s", path, got, status, page)
		}
	}
}

func TestOtherSitesUploadNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the site again")
	}
	site := run(t)
	for _, headers := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Host", "evil.example"}} {
		if status, _, page := fetch(t, http.MethodPost, site+"/upload", strings.NewReader("x"), headers...); status != http.StatusForbidden && status != http.StatusMisdirectedRequest {
			t.Errorf("%v: got %d: %s", headers, status, page)
		}
	}
}

func TestTheCommandLine(t *testing.T) {
	t.Setenv(account.Variable, "")
	for args, want := range map[string]struct {
		status int
		out    string
	}{
		"-h":                   {0, "Usage:"},
		"demo -h":              {0, "Usage: video demo"},
		"-slots 3":             {2, "-slots 3 is outside 4…64"},
		"-lease 1ms":           {2, "-lease 1ms is outside"},
		"-lease 5":             {2, "see video -h"},
		"-addr nowhere":        {2, "-addr nowhere is not HOST:PORT"},
		"-addr 127.0.0.1:x":    {1, "choose another address with -addr"},
		"-role boss":           {2, "-role boss is not web, worker or both"},
		"-role web":            {2, "-role web needs -account"},
		"-colour":              {2, "see video -h"},
		"clip.gif":             {2, `unknown command "clip.gif"`},
		"demo -videos 9":       {2, "-videos 9 is outside 10…500"},
		"-account nonsense":    {2, "-account"},
		"demo -slots 65 extra": {2, `unexpected argument "extra"`},
	} {
		out := new(output)
		if status := command(t.Context(), strings.Fields(args), out, out); status != want.status || !strings.Contains(out.String(), want.out) || status != 0 && strings.Count(out.String(), "\n") != 1 {
			t.Errorf("video %s: got status %d and %q, want %d and %q, an error on one line", args, status, out, want.status, want.out)
		}
	}
}

// V-02: the news do not wait for the large clips that came before them.
func TestTheNewsOvertake(t *testing.T) {
	if testing.Short() {
		t.Skip("converts many clips")
	}
	t.Setenv("TMPDIR", t.TempDir())
	out := new(output)
	if status := command(t.Context(), []string{"demo", "-videos", "10"}, out, out); status != 0 {
		t.Fatalf("got status %d: %s", status, out)
	}
	for _, want := range []string{`(?m)^critical +2 .* [1-9][0-9]*\.[0-9]$`, `(?m)^ordinary +2 `, `(?m)^heavy +6 .* 0\.[0-9]$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("got\n%s\nwant a line as %s", out, want)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// V-03, V-04: web and workers are processes; a clip whose worker is killed is converted by the next one, and is found once.
func TestAKilledWorkerLosesNothing(t *testing.T) {
	server, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // the test is over
	at, data := "-account="+server.ConnectionString(), "-data="+t.TempDir()
	_, said := process(t, "-role=web", "-addr=127.0.0.1:0", at, data)
	site := address(t, said)
	name := newName()
	if status, _, page := upload(t, site, testFilm(t, 480, 270, 24), "name", name, "title", "Survivor"); status != http.StatusOK {
		t.Fatalf("got %d: %s", status, page)
	}
	victim, _ := process(t, "-role=worker", "-lease=2s", at, data)
	azuritetest.Until(t, "the first format is there", func() bool { return strings.Contains(get(t, site+"/watch/"+name), "✓") })
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	if page := get(t, site+"/watch/"+name); !strings.Contains(page, `http-equiv="refresh"`) {
		t.Fatalf("the clip was converted before the worker was killed: %s", page)
	}
	next, out := process(t, "-role=worker", "-lease=2s", at, data)
	watched(t, site, "/watch/"+name)
	azuritetest.Until(t, "it is found", func() bool { return strings.Count(get(t, site+"/search?q=survivor"), `href="/watch/`) == 1 })
	if err := next.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := next.Wait(); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("the worker after Ctrl-C: %v, %s", err, out)
	}
}

// failingStore fails to put the blobs whose names end so, and counts the others.
type failingStore struct {
	blob.Store
	suffix string
	puts   int
}

var errFull = errors.New("the disk is full")

func (s *failingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if s.suffix != "" && strings.HasSuffix(ref.Name, s.suffix) {
		return errFull
	}
	s.puts++
	return s.Store.Put(ctx, ref, r, o)
}

// A clip whose worker failed halfway gets what is missing, and one that is delivered again gets nothing new.
func TestNothingIsMadeTwice(t *testing.T) {
	store := &failingStore{Store: blob.Memory(), suffix: "large.gif"}
	w := &worker{site: &site{clips: store}}
	if err := store.Create(t.Context(), blob.Ref{Container: uploads, Name: "v"}, bytes.NewReader(testFilm(t, 8, 8, 3)), nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		suffix string
		err    error
		puts   int
	}{{"large.gif", errFull, 2}, {"", nil, 3}, {"", nil, 3}} {
		store.suffix = step.suffix
		if err := w.make(t.Context(), "v"); !errors.Is(err, step.err) || store.puts != step.puts {
			t.Errorf("failing %q: got %v and %d formats, want %v and %d", step.suffix, err, store.puts, step.err, step.puts)
		}
	}
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if g, err := gif.DecodeAll(bytes.NewReader(testFilm(t, 8, 8, 3))); err != nil {
		t.Fatal(err)
	} else if _, err := shrink(ended, g, 8); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: got %v", err)
	}
}

// What is measured is what is decoded, and every format of it can be decoded with as many frames.
func FuzzMeasure(f *testing.F) {
	for _, dims := range [][3]int{{1, 1, 1}, {64, 36, 5}, {7, 300, 2}} {
		clip, err := film(dims[0], dims[1], dims[2], 1)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(clip)
		f.Add(clip[:len(clip)/2])
	}
	f.Fuzz(func(t *testing.T, clip []byte) {
		s, err := measure(clip)
		if err != nil || s.pixels > 1e6 {
			return
		}
		g, err := gif.DecodeAll(bytes.NewReader(clip))
		if err != nil {
			return
		}
		if len(g.Image) != s.frames || g.Config.Width != s.width || g.Config.Height != s.height {
			t.Fatalf("measured %v, decoded %d frames of %d×%d", s, len(g.Image), g.Config.Width, g.Config.Height)
		}
		small, err := shrink(t.Context(), g, 100)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := gif.DecodeAll(bytes.NewReader(small)); err != nil || len(again.Image) != s.frames || again.Config.Width != min(100, s.width) {
			t.Fatalf("shrunk: %v", err)
		}
		if _, err := still(t.Context(), g, 100); err != nil {
			t.Fatal(err)
		}
	})
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
