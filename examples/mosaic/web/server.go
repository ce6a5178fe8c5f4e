package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/queue"
)

// Options configure a [Server].
type Options struct {
	// Data is the folder of the jobs. It is required, and created if it does not exist. One server uses it at a time.
	Data string

	// System runs the roles of this process, its client among them. It is required.
	System *roles.System

	// Queue opens a queue of the account for its figures and for redriving. It is required.
	Queue func(name string) (queue.Queue, error)

	// Own are the controls of what belongs to this program. Defaults to nil: nothing does.
	Own *Controls

	// OwnServer says that the queue server belongs to this program. Defaults to false.
	OwnServer bool

	// Requests returns how many requests were sent to the queue server. Defaults to none known.
	Requests func() int64

	// Interval is how often the figures of the queues are sent to those who look. Each costs requests if the queue server
	// is not its own. Defaults to 1 s for its own, and 5 s for others.
	Interval time.Duration

	// Price is what requests cost. Defaults to unknown.
	Price Price

	// Libraries are the folders of photographs that users may choose. Defaults to none but the generated tiles.
	Libraries []Folder

	// Limits bound what users may use. Defaults to the defaults of its fields.
	Limits Limits

	// Blobs is the folder through which the pictures of jobs pass, if it counts against Limits.Disk. Defaults to "": it does not.
	Blobs string

	// Queues is the folder of the queues, if it counts against Limits.Disk. Defaults to "": it does not.
	Queues string

	// Reclaim removes what nobody needs any more from Blobs. It is called when there is no room. Defaults to nothing.
	Reclaim func(context.Context) error

	// Hosts are names of this server, besides localhost and addresses. Defaults to none.
	Hosts []string

	// Logger receives errors. Defaults to slog.Default().
	Logger *slog.Logger
}

// Folder is a folder of photographs.
type Folder struct {
	Name string // for people
	Path string
}

// Server makes mosaics for the page and serves it. Make one with [Open]. It is safe for concurrent use.
type Server struct {
	options   Options
	limits    Limits
	logger    *slog.Logger
	root      *os.Root
	shelf     *shelf
	libraries *libraries
	pages     *template.Template
	handler   http.Handler
	drawing   chan struct{} // held while a picture is decoded or a part of a mosaic is drawn
	decoding  chan struct{} // held while a picture is decoded
	uploads   chan struct{} // held by uploads
	admission sync.Mutex    // held while a job is admitted, so that limits hold
	running   chan struct{} // held by jobs that run
	begin     chan *job     // jobs to run
	earlier   []*job        // that earlier runs did not finish; new ones may come before Run begins
	stopping  chan struct{} // closed when the server stops
	stop      sync.Once
	shrunk    *shrunkCache
	squares   *squareCache
	layouts   *cache[string, *layout.Layout]
	status    *sampler
}

// Open reads the jobs of earlier runs. They go on when the server runs. Close must be called.
func Open(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Reclaim == nil {
		o.Reclaim = func(context.Context) error { return nil }
	}
	if o.Requests == nil {
		o.Requests = func() int64 { return 0 }
	}
	pages, err := parsePages()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the jobs: %w", err)
	}
	root, err := os.OpenRoot(o.Data)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the jobs: %w", err)
	}
	s := &Server{
		options: o, limits: o.Limits.withDefaults(), logger: o.Logger, root: root, pages: pages,
		drawing: make(chan struct{}, 2), decoding: make(chan struct{}, 1),
		begin: make(chan *job), stopping: make(chan struct{}),
		shrunk: newShrunkCache(), squares: newSquareCache(), layouts: newLayoutCache(), status: newSampler(o),
	}
	s.uploads = make(chan struct{}, s.limits.Uploads)
	s.running = make(chan struct{}, s.limits.Running)
	if s.shelf, err = openShelf(root, o.Logger); err != nil {
		return nil, errors.Join(fmt.Errorf("read the jobs in %s: %w", o.Data, err), root.Close())
	}
	for _, j := range s.shelf.all() {
		if !j.current().State.ended() {
			s.earlier = append(s.earlier, j)
		}
	}
	if s.libraries, err = openLibraries(s.shelf, o); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	s.handler = s.guarded(s.routes())
	return s, nil
}

// Close closes the folder of the jobs. Nothing may use the server any more.
func (s *Server) Close() error { return s.root.Close() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Stop ends the streams of events, which would otherwise keep [http.Server.Shutdown] waiting. It may be called any
// number of times.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopping) }) }

// Run makes the mosaics of new jobs, and of those that an earlier run did not finish, until ctx ends. It implements
// millrace.Runner.
func (s *Server) Run(ctx context.Context) error {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer s.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, j := range s.earlier {
		jobs.Go(func() { s.work(ctx, j) })
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
