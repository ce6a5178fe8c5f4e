package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/web"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

const serveHelp = `Usage: mosaic serve [flags]

Serves a page on which mosaics are made, and the roles that make them, until Ctrl-C. Processors
are processes of their own, so that they can be killed.

Flags:

  -addr HOST:PORT    where the page is served (default 127.0.0.1:8088; port 0 is any free one);
                     it has no password, so another address than 127.0.0.1 gives it to others
  -open              open the page in a browser
  -tiles DIR         a folder of photographs to choose from; repeatable
  -processors N      processors that are started (default 2); with 0, the page alone:
                     mosaic controller and mosaic processor work elsewhere on the same account,
                     which -account must name
  -data DIR          where jobs, and the queues if there is no account, are kept
                     (default: the folder millrace-mosaic in your data directory)
  -price DOLLARS     price of 10,000 requests, to show what mosaics cost (default: unknown)
  -host NAME         name under which the page may be asked for besides localhost and
                     addresses; repeatable
  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else a durable server in this process):
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
  -blobs DIR         where pictures are stored; the same for all processes on the account
                     (default: that of mosaic processor, or in -data without an account)
`

// serving is the command serve.
type serving struct {
	addr       string
	open       bool
	tiles      repeated
	hosts      repeated
	processors int
	data       string
	price      float64
	account    account.Flag
	blobs      string

	show   *display
	logger *slog.Logger
}

// repeated is a flag that may be given several times.
type repeated []string

// String implements flag.Value.
func (r *repeated) String() string { return strings.Join(*r, ", ") }

// Set implements flag.Value.
func (r *repeated) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("it must not be empty")
	}
	*r = append(*r, text)
	return nil
}

const (
	defaultAddr       = "127.0.0.1:8088"
	defaultProcessors = 2
	maxProcessors     = 64

	// shutdownGrace is how long requests may take after the first signal.
	shutdownGrace = 5 * time.Second
)

func serveCommand() cli.Command {
	return cli.Command{Name: "serve", Does: "serve a page that makes mosaics", Help: serveHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			s := &serving{}
			if err := s.parse(args); err != nil {
				return err
			}
			s.show = newDisplay(stdout, stderr)
			defer s.show.Close()
			s.logger = plainlog.New(s.show)
			return millrace.Run(ctx, s)
		}}
}

func (s *serving) parse(args []string) error {
	f := cli.NewFlags("mosaic serve")
	f.StringVar(&s.addr, "addr", defaultAddr, "")
	f.BoolVar(&s.open, "open", false, "")
	f.Var(&s.tiles, "tiles", "")
	f.Var(&s.hosts, "host", "")
	f.IntVar(&s.processors, "processors", defaultProcessors, "")
	f.StringVar(&s.data, "data", "", "")
	f.Float64Var(&s.price, "price", 0, "")
	f.StringVar(&s.account.Given, "account", "", "")
	f.StringVar(&s.blobs, "blobs", "", "")
	if _, err := cli.ParseFlags(f, args, "addr", "data", "account", "blobs"); err != nil {
		return err
	}
	if s.processors < 0 || s.processors > maxProcessors {
		return cli.UsageErrorf("-processors %d is outside 0…%d", s.processors, maxProcessors)
	}
	if !(s.price >= 0 && s.price < 1e6) { // not a number too
		return cli.UsageErrorf("-price %v is not a price in dollars, such as 0.004", s.price)
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return cli.UsageErrorf("-addr %s is not HOST:PORT, such as %s", s.addr, defaultAddr)
	}
	for _, dir := range s.tiles {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return cli.UsageErrorf("-tiles %s is not a folder", dir)
		}
	}
	return nil
}

// Halt does nothing: a second signal reaches the runners within directly.
func (*serving) Halt() {}

// Run serves until ctx ends.
func (s *serving) Run(ctx context.Context) error {
	err := s.run(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s *serving) run(ctx context.Context) (err error) {
	if s.data == "" {
		if s.data, err = serveFolder(); err != nil {
			return err
		}
	}
	if s.data, err = filepath.Abs(s.data); err != nil {
		return err
	}
	// The address first: a second server must not open the folder of the first.
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("cannot serve the page on %s: %w; choose another address with -addr, such as 127.0.0.1:0 for any free port", s.addr, networkError(err))
	}
	defer func() { _ = listener.Close() }() // closed already, after the server ran
	queues, err := s.openQueues()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queues.close()) }()
	b, err := s.openBlobs(ctx, queues)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return s.serve(ctx, listener, queues, b)
}

// ownAddress reports whether only this machine reaches an address.
func ownAddress(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// networkError returns an error of the network without the address, which its caller names.
func networkError(err error) error {
	if network := (*net.OpError)(nil); errors.As(err, &network) {
		return network.Err
	}
	return err
}

// openBlobs opens the store: in the data if the queues are there too, so that they belong together.
func (s *serving) openBlobs(ctx context.Context, q *servedQueues) (*account.Blobs, error) {
	folder := s.blobs
	if folder == "" && q.server != nil {
		folder = filepath.Join(s.data, "blobs")
	}
	b, err := mosaicProgram.OpenBlobs(ctx, q.account, folder)
	if err != nil {
		return nil, err
	}
	if dir, ok := b.Store.(*blob.Directory); ok {
		s.blobs = filepath.Dir(filepath.Dir(dir.Path(blob.Ref{Container: "any", Name: "any"})))
	}
	return b, nil
}

// serve runs the page and the roles.
func (s *serving) serve(ctx context.Context, listener net.Listener, queues *servedQueues, b *account.Blobs) (err error) {
	played := roles.Client
	if s.processors > 0 {
		played |= roles.Controller
	}
	first, cancel := context.WithTimeout(ctx, queues.account.Patience())
	system, err := roles.Open(first, queues.account.Queue, b.Store, &roles.Options{
		Roles: played, Idle: queues.idle(), Wakeups: queues.account.Wakeups(), Grace: grace, Logger: s.logger, Place: b.Place,
	})
	cancel()
	if err != nil {
		return err
	}
	options := web.Options{
		Data: filepath.Join(s.data, "page"), System: system, Queue: queues.figures, Requests: queues.requests,
		Price: web.Price{Dollars: s.price}, Hosts: s.hosts, Logger: s.logger, Own: &web.Controls{},
	}
	if queues.server != nil {
		options.Own.Busy = queues.server.setBusy
		options.OwnServer = true
		options.Queues = filepath.Join(s.data, "queues")
	}
	if within(s.blobs, s.data) { // else they may be those of others too
		options.Blobs = s.blobs
		options.Reclaim = func(ctx context.Context) error {
			_, err := roles.Clean(ctx, queues.account.Queue, b.Store, nil)
			return err
		}
	}
	runners := system.Runners()
	if s.processors > 0 {
		p := web.NewProcessors(s.processors, s.processorCommand(queues), s.logger)
		options.Own.Processors, options.Own.Slow = p, p.Slow
		runners = append(runners, p)
	}
	for _, dir := range s.tiles {
		options.Libraries = append(options.Libraries, web.Folder{Name: filepath.Base(dir), Path: dir})
	}
	page, err := web.Open(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	address := "http://" + listener.Addr().String() + "/"
	if !ownAddress(listener.Addr()) {
		s.show.Say("Everybody who reaches this machine can use the page and see its pictures: it has no password")
	}
	s.show.Say("The page is at %s; stop with Ctrl-C", address)
	if s.open {
		s.openBrowser(address)
	}
	return millrace.Run(ctx, append(runners, page, &pageServer{page: page, listener: listener, logger: s.logger})...)
}

// processorCommand returns how a processor is started. The account is in its environment, because all users of the machine can
// see the command line.
func (s *serving) processorCommand(queues *servedQueues) func() *exec.Cmd {
	return func() *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		args := []string{servedProcessor}
		if s.blobs != "" {
			args = append(args, "-blobs", s.blobs)
		}
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), account.Variable+"="+queues.account.Location())
		cmd.Stderr = os.Stderr // not through this process, which may be killed
		return cmd
	}
}

// within reports whether a path is below a folder.
func within(path, folder string) bool {
	if path == "" {
		return false
	}
	whole, errAbs := filepath.Abs(path)
	rest, err := filepath.Rel(folder, whole)
	return errAbs == nil && err == nil && filepath.IsLocal(rest)
}

// openBrowser shows the page. It is no error if there is no browser.
func (s *serving) openBrowser(address string) {
	if err := browserCommand(address).Start(); err != nil {
		s.show.Say("no browser could be opened: %v", err)
	}
}

// pageServer is a [millrace.Runner] that serves the page.
type pageServer struct {
	page     *web.Server
	listener net.Listener
	logger   *slog.Logger
	server   http.Server
}

// Run serves until ctx ends, and then lets requests finish for a while. Streams of events end at once.
func (p *pageServer) Run(ctx context.Context) error {
	p.server.Handler = p.page
	p.server.ReadHeaderTimeout = 10 * time.Second
	p.server.IdleTimeout = 2 * time.Minute
	p.server.MaxHeaderBytes = 64 << 10
	p.server.ErrorLog = slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug)
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(p.listener) }() // waited for below
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	p.page.Stop()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := p.server.Shutdown(ending); err != nil {
		_ = p.server.Close() // what is left is ended
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Halt closes all connections.
func (p *pageServer) Halt() {
	p.page.Stop()
	_ = p.server.Close() // what is left is ended
}

// servedQueues is the account, and the server that has it if that is our own.
type servedQueues struct {
	account *account.Account
	server  *ownServer // nil if there is an account elsewhere
	lock    io.Closer  // of the data; nil if the server has it
}

// openQueues opens the account that was given, or starts a durable server in this process.
func (s *serving) openQueues() (*servedQueues, error) {
	location, err := s.account.LocationOr("")
	if err != nil {
		return nil, err
	}
	q := &servedQueues{}
	folder := filepath.Join(s.data, "queues")
	switch {
	case location != "" && location != account.Embedded:
		// The queues of the data are not used then, but whoever has them open has all of the data.
		if q.lock, err = openStore(folder); err != nil {
			return nil, err
		}
	case s.processors == 0:
		return nil, cli.UsageErrorf("-processors 0 needs -account: processors elsewhere cannot use the server in this process")
	default:
		if q.server, err = startServer(folder); err != nil {
			return nil, err
		}
		location = q.server.endpoint.ConnectionString()
	}
	if q.account, err = account.Open(location, s.logger); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

func (q *servedQueues) close() (err error) {
	if q.account != nil {
		err = q.account.Close()
	}
	if q.server != nil {
		err = errors.Join(err, q.server.close())
	}
	if q.lock != nil {
		err = errors.Join(err, q.lock.Close())
	}
	return err
}

// figures opens a queue for reading figures: with our own server without a request, and without its faults.
func (q *servedQueues) figures(name string) (queue.Queue, error) {
	if q.server != nil {
		return q.server.queue(name), nil
	}
	return q.account.Queue(name)
}

// requests returns how many requests were sent: by all processes if the server is our own, else by this one.
func (q *servedQueues) requests() int64 {
	if q.server != nil {
		return q.server.server.Counts().Requests()
	}
	return q.account.Requests()
}

// idle is how long listeners wait. A poll of our own server costs nothing.
func (q *servedQueues) idle() scaling.Idle {
	if q.server != nil {
		return scaling.Idle{Min: 50 * time.Millisecond, Max: time.Second}
	}
	return q.account.Idle()
}
