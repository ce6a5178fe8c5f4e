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
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/web"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

const serveHelp = `Usage: mosaic serve [flags]

Serves a page on which mosaics are made, and the roles that make them, until Ctrl-C. Processors
are processes of their own, so that they can be killed.

Flags:

  -addr HOST:PORT    where the page is served (default 127.0.0.1:8088; port 0 is any free one);
                     it has no password, so another address than 127.0.0.1 gives it to others
  -tiles DIR         a folder of photographs for the tiles (default: generated tiles)
  -processors N      processors that are started (default 2); with 0, the page alone:
                     mosaic controller and mosaic processor work elsewhere on the same account,
                     which -account must name
  -data DIR          where mosaics are kept, and the queues if there is no account
                     (default: the folder millrace-mosaic in your data directory)
  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else a durable server in this process):
` + locationHelp + `  -blobs DIR         where pictures are stored; the same for all processes on the account
                     (default: as for mosaic processor, or in -data without an account)
`

type serving struct {
	addr       string
	tiles      string
	processors int
	data       string
	account    account.Flag
	blobs      string

	show   *cli.Show
	logger *slog.Logger
}

func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	const defaultAddr, maxProcessors = "127.0.0.1:8088", 64
	s := &serving{show: cli.NewShow(stdout, stderr)}
	s.logger = plainlog.New(s.show)
	f := cli.NewFlags("mosaic serve")
	f.StringVar(&s.addr, "addr", defaultAddr, "")
	f.StringVar(&s.tiles, "tiles", "", "")
	f.IntVar(&s.processors, "processors", 2, "")
	f.StringVar(&s.data, "data", "", "")
	f.StringVar(&s.account.Given, "account", "", "")
	f.StringVar(&s.blobs, "blobs", "", "")
	if _, err := cli.ParseFlags(f, args, "addr", "tiles", "data", "account", "blobs"); err != nil {
		return err
	}
	if s.processors < 0 || s.processors > maxProcessors {
		return cli.UsageErrorf("-processors %d is outside 0…%d", s.processors, maxProcessors)
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return cli.UsageErrorf("-addr %s is not HOST:PORT, such as %s", s.addr, defaultAddr)
	}
	if s.tiles != "" {
		if info, err := os.Stat(s.tiles); err != nil || !info.IsDir() {
			return cli.UsageErrorf("-tiles %s is not a folder", s.tiles)
		}
	}
	return millrace.Run(ctx, cli.Task(func(ctx context.Context) error { return cli.UnlessStopped(ctx, s.open(ctx)) }))
}

// open opens the queues and the blobs, and serves until ctx ends.
func (s *serving) open(ctx context.Context) (err error) {
	if s.data == "" {
		if s.data, err = mosaicProgram.Folder(); err != nil {
			return fmt.Errorf("there is no place for the data: %w; name a folder with -data", err)
		}
	}
	location, err := s.account.LocationOr("")
	if err != nil {
		return err
	}
	own := location == "" || location == account.Embedded
	if own && s.processors == 0 {
		return cli.UsageErrorf("-processors 0 needs -account: processors elsewhere cannot use the server in this process")
	}
	// The open queues are the lock of the whole data folder, even if the queues in use are elsewhere.
	server, err := openServer(filepath.Join(s.data, "queues"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	if own {
		if location, err = server.start(); err != nil {
			return err
		}
		if s.blobs == "" {
			s.blobs = filepath.Join(s.data, "blobs")
		}
	}
	a, err := account.Open(location, s.logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := mosaicProgram.OpenBlobs(ctx, a, s.blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return s.serve(ctx, server, a, b)
}

// serve runs the page, the roles, and the processors.
func (s *serving) serve(ctx context.Context, server *ownServer, a *account.Account, b *account.Blobs) error {
	options := roles.Options{Roles: roles.Client, Logger: s.logger}
	if s.processors > 0 {
		options.Roles |= roles.Controller
	}
	if server.endpoint != nil { // a poll costs nothing
		options.Idle = listener.Idle{Min: 50 * time.Millisecond, Max: time.Second}
	}
	system, err := openRoles(ctx, a, b, options)
	if err != nil {
		return err
	}
	o := web.Options{Data: filepath.Join(s.data, "page"), Tiles: s.tiles, System: system, Queue: a.Queue, Requests: a.Requests, Logger: s.logger}
	if server.endpoint != nil {
		o.Busy, o.Queue = server.setBusy, server.queue
		o.Requests = func() int64 { return server.server.Counts().Requests() }
	}
	runners := system.Runners()
	if s.processors > 0 {
		o.Processors = web.NewProcessors(s.processors, s.processorCommand(a), s.logger)
		runners = append(runners, o.Processors)
	}
	page, err := web.Open(o)
	if err != nil {
		return err
	}
	defer func() { _ = page.Close() }() // nothing is open any more
	served := cli.Pages(&http.Server{
		Addr: s.addr, Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}, s.show.Say, "The page is at", "Everybody who reaches this machine can use the page and see its pictures: it has no password")
	return millrace.Run(ctx, append(runners, page, served)...)
}

// processorCommand returns how a processor is started. The account is in its environment, because all users of the machine can
// see the command line.
func (s *serving) processorCommand(a *account.Account) func(ctx context.Context, slow time.Duration) *exec.Cmd {
	return func(ctx context.Context, slow time.Duration) *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		// One slice at a time: there are several processors on this machine.
		args := []string{"processor", "-slices-at-once", "1", "-slow", slow.String(), "-until-input-ends"}
		if s.blobs != "" {
			args = append(args, "-blobs", s.blobs)
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), account.Variable+"="+a.Location())
		cmd.Stderr = os.Stderr // not through this process, which may be killed
		return cmd
	}
}

// ownServer is a durable queue server in this process.
type ownServer struct {
	engine   *localqueue.Engine
	server   *emulator.Server
	endpoint *emulator.Endpoint // nil if the queues are elsewhere
}

// openServer opens the queues in a folder, which one program at a time can.
func openServer(dir string) (*ownServer, error) {
	queues, err := filequeue.Open(dir, nil)
	if errors.Is(err, filequeue.ErrLocked) {
		return nil, fmt.Errorf("the queues in %s are in use: another mosaic serve runs; stop it, or choose another folder with -data", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open the queues: %w; choose another folder with -data", err)
	}
	server, err := emulator.New(queues.Engine, nil)
	if err != nil {
		return nil, errors.Join(err, queues.Close())
	}
	return &ownServer{engine: queues.Engine, server: server}, nil
}

// start serves the queues on a free port of this machine, and returns their location.
func (s *ownServer) start() (location string, err error) {
	if s.endpoint, err = s.server.Start(""); err != nil {
		return "", err
	}
	return s.endpoint.ConnectionString(), nil
}

// queue returns a queue for the figures of the page: without requests, and without the faults.
func (s *ownServer) queue(name string) (queue.Queue, error) {
	return s.engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: name}), nil
}

// setBusy makes the server answer every request with 503, or ends that.
func (s *ownServer) setBusy(on bool) error {
	if !on {
		return s.server.SetFaults(nil)
	}
	return s.server.SetFaults(&emulator.Faults{Rules: []emulator.Fault{{Kind: emulator.FaultBusy, Rate: 1}}})
}

func (s *ownServer) close() (err error) {
	if s.endpoint != nil {
		err = s.endpoint.Close()
	}
	return errors.Join(err, s.engine.Close())
}
