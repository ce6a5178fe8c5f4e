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
	hosts  []string
	role   string
	stdout io.Writer
	logger *slog.Logger
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
	f.Func("host", "", func(name string) error {
		if strings.TrimSpace(name) == "" {
			return errors.New("it must not be empty")
		}
		s.hosts = append(s.hosts, name)
		return nil
	})
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
	data, err := s.open(ctx, s.logger)
	if err != nil {
		return cli.UnlessStopped(ctx, err)
	}
	return cli.UnlessStopped(ctx, errors.Join(s.play(ctx, data), data.close()))
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
	return millrace.Run(ctx, runners...)
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
	say := func(format string, args ...any) { cli.Say(s.stdout, format+"\n", args...) }
	return cli.Pages(&http.Server{
		Addr: s.addr, Handler: front,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}, say, "The microblog is at", "Everybody who reaches this machine can write and delete: there is no password"), nil
}
