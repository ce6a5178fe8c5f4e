package web

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/internal/webpage"
	"github.com/millrace/millrace/queue"
)

// Options configure a [Server].
type Options struct {
	// Data is the folder of the jobs. It is required, and created if it does not exist. One server uses it at a time.
	Data string

	// Tiles is the folder of photographs for the tiles. Defaults to "": tiles are generated.
	Tiles string

	// System runs the roles of this process, its client among them. It is required.
	System *roles.System

	// Queue opens a queue of the account for its figures and for redriving. It is required.
	Queue func(name string) (queue.Queue, error)

	// Requests returns how many requests were sent to the queue server. It is required.
	Requests func() int64

	// Busy makes the queue server answer every request with 503, or stops that. Defaults to nil: the server belongs
	// to somebody else, and its figures are read less often, because they cost requests.
	Busy func(on bool) error

	// Processors are the processors that this program started. Nil means that it started no
	// processors.
	Processors *Processors

	// Logger receives errors. It is required.
	Logger *slog.Logger
}

// Limits of the page.
const (
	maxUpload  = 100_000_000 // bytes of a picture
	maxUploads = 4           // at the same time; others are refused
	maxRunning = 2           // jobs at the same time; others wait
)

// Server makes mosaics for the page and serves it. Make one with [Open]. It is safe for concurrent use.
type Server struct {
	options  Options
	logger   *slog.Logger
	shelf    *shelf
	photos   photos
	pages    *template.Template
	handler  http.Handler
	drawing  chan struct{} // held while a part of a mosaic is drawn
	decoding chan struct{} // held while a picture is decoded
	uploads  chan struct{} // held by uploads
	running  chan struct{} // held by jobs that run
	begin    chan *job     // jobs to run
	earlier  []*job        // of earlier runs; new ones may come before Run begins
	stopping chan struct{} // closed when the server stops
	stop     sync.Once
	libs     libraries
	sampler  sampler
}

//go:embed static templates
var files embed.FS

// Open reads the jobs of earlier runs. They continue when the server runs. Close must be called.
func Open(o Options) (*Server, error) {
	s := &Server{
		options: o, logger: o.Logger, drawing: make(chan struct{}, 2), decoding: make(chan struct{}, 1),
		uploads: make(chan struct{}, maxUploads), running: make(chan struct{}, maxRunning),
		begin: make(chan *job), stopping: make(chan struct{}),
	}
	s.photos.folder = o.Tiles
	s.sampler = sampler{server: s, handled: make(map[string]int64)}
	var err error
	if s.pages, err = template.New("").Funcs(template.FuncMap{"count": func(n int) string { return cli.Grouped(int64(n)) }, "queue": queueFigures}).ParseFS(files, "templates/*.html"); err != nil {
		return nil, err
	}
	if s.handler, err = s.routes(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the jobs: %w", err)
	}
	root, err := os.OpenRoot(o.Data)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the jobs: %w", err)
	}
	if s.shelf, err = openShelf(root, o.Logger); err != nil {
		return nil, errors.Join(fmt.Errorf("read the jobs in %s: %w", o.Data, err), root.Close())
	}
	s.libs.root, s.earlier = root, s.shelf.all()
	return s, nil
}

// Close closes the folder of the jobs. Nothing may use the server any more.
func (s *Server) Close() error { return s.shelf.root.Close() }

// Stop ends the streams of events, which would otherwise keep [http.Server.Shutdown] waiting. It may be called any
// number of times.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopping) }) }

// Run makes the mosaics of new jobs, and of unfinished jobs of an earlier run, until ctx ends. It
// implements millrace.Runner.
func (s *Server) Run(ctx context.Context) error {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer s.Stop()
	for _, j := range s.earlier {
		if j.current().State != done && j.current().State != failed {
			jobs.Go(func() { s.work(ctx, j) })
		}
	}
	for {
		select {
		case j := <-s.begin:
			jobs.Go(func() { s.work(ctx, j) })
		case <-ctx.Done():
			return nil
		}
	}
}

// Halt does nothing: Run returns soon after its context ends.
func (s *Server) Halt() {}

// start hands a job to Run. A job of a server that stops is run by the next one.
func (s *Server) start(j *job) {
	select {
	case s.begin <- j:
	case <-s.stopping:
	}
}

// take waits for a place, or for the end of ctx. The caller calls the function it gets.
func take(ctx context.Context, places chan struct{}) (func(), error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// policy allows the page its own content only. A chosen picture is shown from a blob address before
// it is uploaded.
const policy = "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// slowest is the speed of a connection, in bytes a second, that is fast enough for a large upload or download.
const slowest = 20_000

// timeFor is how long a transfer of so many bytes may take.
func timeFor(bytes int64) time.Time {
	return time.Now().Add(time.Minute + time.Duration(bytes/slowest)*time.Second)
}

// routes returns the handler of all addresses; see the package comment.
func (s *Server) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(timeFor(0)) // a recorder has no deadline
			if err := h(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	missing := func(http.ResponseWriter, *http.Request) error { return errNotFound }
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	assets, err := webpage.Static(static, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, errNotFound) }))
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /static/{file}", assets)
	handle("GET /{$}", s.index)
	handle("GET /sample.jpg", func(w http.ResponseWriter, _ *http.Request) error { return sendJPEG(w, picture.Sample()) })
	handle("GET /events", s.watchStatus)
	handle("POST /jobs", s.newJob)
	handle("GET /jobs/{id}", s.jobPage)
	handle("GET /jobs/{id}/events", s.watchJob)
	handle("GET /jobs/{id}/original", s.original)
	handle("GET /jobs/{id}/slices/{i}", s.slicePreview)
	handle("GET /jobs/{id}/mosaic", s.mosaic)
	handle("GET /jobs/{id}/zoom", s.zoomLevels)
	handle("GET /jobs/{id}/zoom/{level}/{x}/{y}", s.zoomSquare)
	handle("GET /jobs/{id}/cells/{x}/{y}", s.cell)
	handle("GET /jobs/{id}/tiles/{n}", s.tile)
	handle("POST /jobs/{id}/delete", s.deleteJob)
	handle("POST /queues/{name}/redrive", s.redrive)
	handle("POST /processors/{id}/kill", s.killProcessor)
	handle("POST /faults", s.setFaults)
	handle("/", missing)
	guard := webpage.Guard{Policy: policy, Foreign: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(http.StatusForbidden, "this request comes from another page"))
	})}
	return guard.Handler(mux), nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// number returns a number of the path, 0 or more and below a bound.
func number(r *http.Request, name string, bound int) (int, error) {
	text := r.PathValue(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= bound || strconv.Itoa(n) != text {
		return 0, errNotFound
	}
	return n, nil
}

type page struct {
	Title     string
	Jobs      []snapshot // of the index, the newest first
	Job       snapshot   // of a page of a job
	Status    Status
	Form      form
	Error     string
	CanBreak  bool // there are processors to kill and to slow down
	CanBusy   bool
	Photos    string // the folder of the tiles
	TileSizes []int
}

// form has the bounds and defaults of the dials.
type form struct {
	MaxPixels, MaxOutput, MaxSlices int
	Tile, Tint, MaxTint, Reuse      int
}

func (s *Server) page(r *http.Request, title string) page {
	return page{
		Title: title, Status: s.sampler.sample(r.Context()), TileSizes: tileSizes, Photos: s.options.Tiles,
		CanBreak: s.options.Processors != nil, CanBusy: s.options.Busy != nil,
		Form: form{
			MaxPixels: picture.MaxPixels, MaxOutput: picture.MaxOutputPixels, Tile: defaultTile, Tint: layout.DefaultTint,
			MaxTint: layout.MaxTint, Reuse: layout.DefaultReuse, MaxSlices: maxSlices,
		},
	}
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	p := s.page(r, "Mosaic")
	for _, j := range s.shelf.all() {
		snap, _ := j.look()
		p.Jobs = append(p.Jobs, snap)
	}
	s.render(w, http.StatusOK, "index", p)
	return nil
}

func (s *Server) jobPage(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	snap, _ := j.look()
	if r.Header.Get("Accept") == "application/json" {
		respond(w, http.StatusOK, snap)
		return nil
	}
	p := s.page(r, snap.Name)
	p.Job = snap
	s.render(w, http.StatusOK, "job", p)
	return nil
}

// render writes a page whole, so that a template that fails does not leave half of it.
func (s *Server) render(w http.ResponseWriter, status int, name string, data page) {
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name+".html", data); err != nil {
		s.logger.Error("a page cannot be rendered", "page", name, "error", err)
		http.Error(w, "this page cannot be shown: the program's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client has left
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has left
}

// wantsPage reports whether the client is a person who looks at pages.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// answer ends a request that changed something: with JSON, or for a person with a page.
func answer(w http.ResponseWriter, r *http.Request, status int, v any, page string) {
	if wantsPage(r) {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, page, http.StatusSeeOther)
		return
	}
	respond(w, status, v)
}

// stream sends server-sent events: the value of look, whenever its channel is closed, and after the interval.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, event string, interval time.Duration, look func() (any, <-chan struct{})) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	for {
		v, changed := look()
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_ = control.SetWriteDeadline(timeFor(0)) // a recorder has no deadline
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil || control.Flush() != nil {
			return nil //nolint:nilerr // the client has left, or does not read
		}
		select {
		case <-changed:
			time.Sleep(50 * time.Millisecond) // several changes are one event
		case <-time.After(interval):
		case <-r.Context().Done():
			return nil
		case <-s.stopping:
			return nil
		}
	}
}
