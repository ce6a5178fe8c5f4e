// Video is a site that hosts videos: upload a clip, watch it, correct its credits, and search all of them.
//
//	go run ./examples/video        the site, at http://127.0.0.1:8092/
//	go run ./examples/video demo   a flood of uploads, and how long each queue waited
//
// The README says how it works, and how its roles run as processes of their own.
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
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

const defaultAddr = "127.0.0.1:8092"

const serveHelp = `Flags of video without a command:

  -addr HOST:PORT    where the pages are served (default ` + defaultAddr + `; port 0 is any free
                     one); there is no password, so another address than 127.0.0.1 lets
                     others upload
  -host NAME         a name under which the pages may be asked for besides localhost and
                     addresses
  -role ROLE         web, worker or both (default both); one alone needs -account
  -slots N           how many clips a worker converts at once, 4 to 64 (default 4)
  -lease DURATION    how soon the clip of a killed worker is converted by another one, 1s to
                     1h (default 30s)
  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else in this process, where everything is gone at the end):
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
  -data DIR          where the clips are kept, and the index of the web role (default: the
                     services of an account in Azure or Azurite, and for another one a
                     folder in your data directory)
`

// program names the folders of this program, and describes the content of its stores.
var program = account.Program{Name: "video", Blobs: "clips", Tables: "credits", Flag: "-data"}

func main() { os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return (&cli.Program{
		Name:  "video",
		About: "Video hosts videos: it converts uploaded clips, and searches their credits.",
		Bare:  "serve the pages, and convert clips, until Ctrl-C",
		Commands: []cli.Command{{
			Name: "demo", Does: "upload many clips at once, and show how long they waited", Help: demoHelp, Run: demo,
		}},
		Run:  serve,
		Help: serveHelp,
	}).Execute(ctx, args, stdout, stderr)
}

// settings are the parsed command line of the site.
type settings struct {
	addr, host, role, data string
	slots                  int
	lease                  time.Duration
	account                account.Flag
}

func (s *settings) parse(args []string) error {
	f := cli.NewFlags("video")
	f.StringVar(&s.addr, "addr", defaultAddr, "")
	f.StringVar(&s.host, "host", "", "")
	f.StringVar(&s.role, "role", "both", "")
	f.IntVar(&s.slots, "slots", 4, "")
	f.DurationVar(&s.lease, "lease", 30*time.Second, "")
	f.StringVar(&s.account.Given, "account", "", "")
	f.StringVar(&s.data, "data", "", "")
	if _, err := cli.ParseFlags(f, args, "addr", "host", "role", "account", "data"); err != nil {
		return err
	}
	location, err := s.account.LocationOr(account.Embedded)
	if err != nil {
		return err
	}
	s.account.Given = location
	_, _, addrErr := net.SplitHostPort(s.addr)
	switch {
	case addrErr != nil:
		return cli.UsageErrorf("-addr %s is not HOST:PORT, such as %s", s.addr, defaultAddr)
	case s.role != "web" && s.role != "worker" && s.role != "both":
		return cli.UsageErrorf("-role %s is not web, worker or both", s.role)
	case s.role != "both" && location == account.Embedded:
		return cli.UsageErrorf("-role %s needs -account: without one, only this process reaches the queues", s.role)
	case s.slots < 4 || s.slots > 64:
		return cli.UsageErrorf("-slots %d is outside 4…64", s.slots)
	case s.lease < time.Second || s.lease > time.Hour:
		return cli.UsageErrorf("-lease %v is outside 1s…1h", s.lease)
	}
	return nil
}

// serve is the program without a command.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := &settings{}
	if err := s.parse(args); err != nil {
		return err
	}
	return millrace.Run(ctx, &roles{s, stdout, plainlog.New(stderr)})
}

// roles plays the roles of one process. It is a [millrace.Runner], so that Ctrl-C also ends the steps before the listeners.
type roles struct {
	*settings
	stdout io.Writer
	logger *slog.Logger
}

// Halt does nothing: a second signal reaches the runners within directly.
func (*roles) Halt() {}

// Run plays the roles until ctx ends.
func (r *roles) Run(ctx context.Context) error {
	err := program.With(ctx, r.account, r.data, r.logger, func(a *account.Account, b *account.Blobs) (err error) {
		if _, err := a.Server(ctx); err != nil { // its error tells how to start a server
			return err
		}
		s, err := open(a, b.Store, r.logger)
		if err != nil {
			return err
		}
		var runners []millrace.Runner
		if r.role != "web" {
			if runners, err = (&worker{site: s, slots: r.slots, lease: r.lease}).listeners(); err != nil {
				return err
			}
		}
		if r.role == "worker" {
			cli.Say(r.stdout, "The worker converts clips: queues at %s, clips in %s; stop with Ctrl-C\n", a.Endpoint(), b.Place)
			return millrace.Run(ctx, runners...)
		}
		tables, err := program.OpenTables(ctx, a, r.data)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tables.Close()) }()
		credits, err := openIndex(ctx, tables)
		if err != nil {
			return err
		}
		front, err := newWeb(s, credits, r.host)
		if err != nil {
			return err
		}
		if err := front.samples(ctx); err != nil {
			return fmt.Errorf("upload the samples: %w", err)
		}
		runners = append(runners, s.indexer(credits), r.pages(front))
		return millrace.Run(ctx, runners...)
	})
	return cli.UnlessStopped(ctx, err)
}

// pages serves the pages. A request that is slower than these bounds is ended.
func (r *roles) pages(front http.Handler) millrace.Runner {
	say := func(format string, args ...any) { cli.Say(r.stdout, format+"\n", args...) }
	return cli.Pages(&http.Server{
		Addr: r.addr, Handler: front,
		ReadHeaderTimeout: 30 * time.Second, ReadTimeout: 2 * time.Minute, WriteTimeout: 3 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // of clients that misbehave
	}, say, "The videos are at", "Anyone who reaches this machine can upload: there is no password")
}

// site holds the parts that both roles use: the queues of an account and the clips.
type site struct {
	classes  []*class    // the queues of clips to convert
	indexing queue.Queue // of clips that are ready for the index
	clips    blob.Store
	wakeups  listener.Wakeups
	account  *account.Account
	logger   *slog.Logger
}

func open(a *account.Account, clips blob.Store, logger *slog.Logger) (s *site, err error) {
	s = &site{clips: clips, wakeups: a.Wakeups(), account: a, logger: logger}
	// While all want slots, news and ordinary clips get two for each of the heavy ones. One slot is kept for the news.
	s.classes = []*class{{name: critical, weight: 4, reserve: 1}, {name: ordinary, weight: 2}, {name: heavy, weight: 1}}
	for _, c := range s.classes {
		if c.queue, err = a.Queue("video-" + c.name); err != nil {
			return nil, err
		}
	}
	s.indexing, err = a.Queue("video-index")
	return s, err
}

func openIndex(ctx context.Context, tables *account.Tables) (*index.Index, error) {
	var all [3]table.Store
	for i, name := range []string{"videos", "terms", "postings"} {
		var err error
		if all[i], err = tables.Table(ctx, name); err != nil {
			return nil, fmt.Errorf("open the table %s: %w", name, err)
		}
	}
	return index.New(all[0], all[1], all[2]), nil
}
