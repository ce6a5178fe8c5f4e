package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// world is what outlives a server: the account, the blobs and the folder of the jobs.
type world struct {
	t      *testing.T
	engine *localqueue.Engine
	store  *gatedStore
	data   string
	tiles  string // a folder of a few photographs
	log    *lockedBuffer

	down     atomic.Bool // the queue server answers no request of the roles
	requests atomic.Int64
	asked    atomic.Int64 // requests of mosaics
}

func setup(t *testing.T) *world {
	w := &world{t: t, engine: must(localqueue.New(nil)), store: &gatedStore{Manager: blob.Memory()}, data: t.TempDir(), tiles: t.TempDir(), log: new(lockedBuffer)}
	for i := range 12 {
		if err := os.WriteFile(filepath.Join(w.tiles, fmt.Sprintf("%d.png", i)), plainPNG(color.RGBA{uint8(i * 20), uint8(i * 70), uint8(255 - i*20), 255}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// plainPNG is a picture of one colour.
func plainPNG(c color.RGBA) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 80, 80))
	draw.Draw(img, img.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // a buffer
	}
	return b.Bytes()
}

func (w *world) queue(name string) queue.Queue {
	return w.engine.Queue(queue.Name{Account: "mosaics", Queue: name})
}

// counted is a queue of the roles: it counts requests and fails while the server is down.
type counted struct {
	queue.Queue
	w *world
}

func (c counted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	c.w.requests.Add(1)
	if c.Name().Queue == roles.QueueNames()[0] {
		c.w.asked.Add(1)
	}
	if c.w.down.Load() {
		return queue.Message{}, &queue.Error{Op: "enqueue", Queue: c.Name(), Kind: queue.ErrThrottled}
	}
	return c.Queue.Enqueue(ctx, text, o)
}

// gatedStore is a store in which slices are stored only as far as a test lets them.
type gatedStore struct {
	blob.Manager
	gate atomic.Pointer[chan struct{}] // a slice takes one from it; nil is open
}

func (g *gatedStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if gate := g.gate.Load(); gate != nil && ref.Container == "sliceresponse" && path.Base(ref.Name) != "end" {
		select {
		case <-*gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return g.Manager.Create(ctx, ref, r, o)
}

// hold stops slices from being stored. The function it returns lets n of them pass, or all for a negative n.
func (g *gatedStore) hold() (pass func(n int)) {
	gate := make(chan struct{})
	g.gate.Store(&gate)
	return func(n int) {
		if n < 0 {
			g.gate.Store(nil)
			close(gate)
			return
		}
		for range n {
			gate <- struct{}{}
		}
	}
}

// site is a running server.
type site struct {
	*Server
	t    *testing.T
	w    *world
	http *httptest.Server
	stop func() // ends it; may be repeated
}

// withoutSocket makes a site that is used in process, as in a bubble.
func withoutSocket(s *site) { s.http = nil }

// serve runs all roles and the page.
func (w *world) serve(change func(*Options), more ...func(*site)) *site {
	w.t.Helper()
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	open := func(name string) (queue.Queue, error) { return counted{w.queue(name), w}, nil }
	system, err := roles.Open(open, w.store, roles.Options{
		Processors: 2, Grace: 10 * time.Millisecond, Logger: logger,
		Idle: listener.Idle{Min: time.Millisecond, Max: 10 * time.Millisecond},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	o := Options{
		Data: w.data, System: system, Queue: func(name string) (queue.Queue, error) { return w.queue(name), nil },
		Tiles: w.tiles, Requests: w.requests.Load, Logger: logger, Busy: func(bool) error { return nil },
	}
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ran := make(chan error, 1)
	runners := append(system.Runners(), s)
	go func() { ran <- millrace.Run(ctx, runners...) }()
	one := &site{Server: s, t: w.t, w: w, http: httptest.NewUnstartedServer(s)}
	for _, m := range more {
		m(one)
	}
	if one.http != nil {
		one.http.Start()
	}
	one.stop = sync.OnceFunc(func() {
		s.Stop()
		cancel()
		if err := <-ran; err != nil {
			w.t.Errorf("the server: got the error %v, want none", err)
		}
		if one.http != nil {
			one.http.Client().CloseIdleConnections()
			one.http.Close()
		}
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(one.stop)
	return one
}

// reply is a response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("body: got %q, want JSON: %v", r.body, err)
	}
	return v
}

// failure returns the text of an error.
func (r reply) failure(t *testing.T) string {
	t.Helper()
	text, _ := r.json(t)["error"].(string)
	return text
}

// do sends a request. Redirects are not followed.
func (s *site) do(method, path string, body io.Reader, header ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: s.http.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, text}
}

func (s *site) get(path string) reply { s.t.Helper(); return s.do(http.MethodGet, path, nil) }

// want gets an address that must respond with this status.
func (s *site) want(status int, path string) reply {
	s.t.Helper()
	r := s.get(path)
	if r.status != status {
		s.t.Fatalf("GET %s: got %d %s, want %d", path, r.status, r.body, status)
	}
	return r
}

// field is a part of a form; one with a file name is a file.
type field struct {
	name, value string
	file        string
}

func multipartForm(fields ...field) (body *bytes.Buffer, kind string) {
	body = new(bytes.Buffer)
	m := multipart.NewWriter(body)
	for _, f := range fields {
		part, err := m.CreateFormField(f.name)
		if f.file != "" {
			part, err = m.CreateFormFile(f.name, f.file)
		}
		if err == nil {
			_, err = io.WriteString(part, f.value)
		}
		if err != nil {
			panic(err) // a buffer
		}
	}
	if err := m.Close(); err != nil {
		panic(err) // a buffer
	}
	return body, m.FormDataContentType()
}

func (s *site) post(path string, fields ...field) reply {
	s.t.Helper()
	body, kind := multipartForm(fields...)
	return s.do(http.MethodPost, path, body, "Content-Type", kind)
}

// make starts a job and returns its id.
func (s *site) make(fields ...field) string {
	s.t.Helper()
	r := s.post("/jobs", fields...)
	if r.status != http.StatusCreated {
		s.t.Fatalf("POST /jobs: got %d %s, want 201", r.status, r.body)
	}
	return r.json(s.t)["id"].(string)
}

// small is a picture that becomes 8×6 tiles of 8 pixels.
func (s *site) small() []field {
	return []field{{name: "tile", value: "8"}, {name: "picture", value: string(picturePNG(64, 48)), file: "small.png"}}
}

func picturePNG(width, height int) []byte {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.SetRGBA(x, y, color.RGBA{uint8(x * 255 / width), uint8(y * 255 / height), 128, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // a buffer
	}
	return b.Bytes()
}

// event is a server-sent event.
type event struct {
	kind string
	snapshot
	text string
}

// events reads a stream until stop returns true, and returns what it has read.
func (s *site) events(path string, stop func(event) bool) (all []event) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.http.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		s.t.Fatalf("GET %s: got %d %s, want a stream of events", path, answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewReader(answer.Body)
	var e event
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("GET %s: the stream ended after %d events: %v; log: %s", path, len(all), err, s.w.log)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.kind = value
		case "data":
			e.text = value
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				s.t.Fatal(err)
			}
		case "":
			if e.kind == "" {
				continue // a heartbeat
			}
			all = append(all, e)
			if stop(e) {
				return all
			}
			e = event{}
		}
	}
}

// until waits until a job is in a state.
func (s *site) until(id string, want state) snapshot {
	s.t.Helper()
	all := s.events("/jobs/"+id+"/events", func(e event) bool {
		if e.State == failed && want != failed {
			s.t.Fatalf("job: got %s (%s), want %s; log: %s", e.State, e.Error, want, s.w.log)
		}
		return e.State == want
	})
	return all[len(all)-1].snapshot
}

// untilStored waits until n slices of a job are stored.
func (s *site) untilStored(id string, n int) {
	s.t.Helper()
	s.events("/jobs/"+id+"/events", func(e event) bool { return e.Stored >= n })
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// folders lists what is in a folder of the data.
func (w *world) entries(folder string) (names []string) {
	w.t.Helper()
	entries, err := os.ReadDir(w.data + "/" + folder)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
