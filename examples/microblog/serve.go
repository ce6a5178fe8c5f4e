package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/examples/microblog/web"
)

const serveHelp = `Flags of microblog without a command:

  -addr HOST:PORT    where the pages are served (default ` + defaultAddr + `; port 0 is any free
                     one); there is no password, so another address than 127.0.0.1 lets
                     others write and delete
  -host NAME         name under which the pages may be asked for besides localhost and
                     addresses; repeatable
  -role ROLE         web, worker or both (default both); one alone needs -account
` + storeHelp

const defaultAddr = "127.0.0.1:8090"

// Values of the flag -role.
const (
	webRole    = "web"
	workerRole = "worker"
	bothRoles  = "both"
)

// server plays the roles until its context ends. It is a [millrace.Runner].
type server struct {
	storeFlags
	addr   string
	hosts  repeated
	role   string
	stdout io.Writer
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

// serve is the program without a command.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := &server{stdout: stdout, logger: plainlog.New(stderr)}
	if err := s.parse(args); err != nil {
		return err
	}
	return millrace.Run(ctx, s)
}

func (s *server) parse(args []string) error {
	f := cli.NewFlags("microblog")
	f.StringVar(&s.addr, "addr", defaultAddr, "")
	f.Var(&s.hosts, "host", "")
	f.StringVar(&s.role, "role", bothRoles, "")
	f.StringVar(&s.account.Given, "account", "", "")
	f.StringVar(&s.data, "data", "", "")
	if _, err := cli.ParseFlags(f, args, "addr", "role", "account", "data"); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return cli.UsageErrorf("-addr %s is not HOST:PORT, such as %s", s.addr, defaultAddr)
	}
	switch s.role {
	case bothRoles:
	case webRole, workerRole:
		if location, err := s.location(); err != nil {
			return err
		} else if location == "" {
			return cli.UsageErrorf("-role %s needs -account: the data of one process has both roles in it", s.role)
		}
	default:
		return cli.UsageErrorf("-role %s is none of web, worker and both", s.role)
	}
	return nil
}

// Halt does nothing: a second signal reaches the runners within directly.
func (*server) Halt() {}

// Run serves until ctx ends.
func (s *server) Run(ctx context.Context) error {
	err := s.run(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s *server) run(ctx context.Context) (err error) {
	data, err := s.open(ctx, s.logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	return s.play(ctx, data)
}

func (s *server) play(ctx context.Context, data *store) error {
	var runners []millrace.Runner
	if s.role != webRole {
		runners = append(runners, roles.NewWorker(data.deletions, data.site, data.wakeups, s.logger))
	}
	if s.role != workerRole {
		if data.created {
			if err := writeSamples(ctx, data.site); err != nil {
				return fmt.Errorf("write the samples: %w", err)
			}
		}
		pages, err := s.pages(data)
		if err != nil {
			return err
		}
		runners = append(runners, pages)
	} else {
		cli.Say(s.stdout, "The worker is at work: %s; stop with Ctrl-C\n", data.place)
	}
	return s.explain(millrace.Run(ctx, runners...))
}

// Bounds of a request. One that is slower is ended.
const (
	readTime  = 30 * time.Second
	writeTime = time.Minute
	idleTime  = 2 * time.Minute
	maxHeader = 32 << 10
)

// pages returns the web role.
func (s *server) pages(data *store) (millrace.Runner, error) {
	front, err := web.New(data.site, roles.NewRequester(data.deletions, nil), &web.Options{Hosts: s.hosts, Logger: s.logger})
	if err != nil {
		return nil, err
	}
	return millrace.HTTP(&http.Server{
		Addr: s.addr, Handler: front,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
		BaseContext: func(l net.Listener) context.Context {
			s.sayAddress(l.Addr())
			return context.Background() // requests may finish after Ctrl-C
		},
	}), nil
}

func (s *server) sayAddress(at net.Addr) {
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		cli.Say(s.stdout, "Everybody who reaches this machine can write and delete: there is no password\n")
	}
	cli.Say(s.stdout, "The microblog is at http://%v/; stop with Ctrl-C\n", at)
}

// explain says what to do if the address cannot be had.
func (s *server) explain(err error) error {
	if network := (*net.OpError)(nil); errors.As(err, &network) && network.Op == "listen" {
		return fmt.Errorf("cannot serve the pages on %s: %w; choose another address with -addr, such as 127.0.0.1:0 for any free port", s.addr, network.Err)
	}
	return err
}
