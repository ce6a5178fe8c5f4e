package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/localqueue"
)

// peers gives Millrace and other frameworks the same work: to send jobs that do nothing, and then to handle all of them.
// Senders and handlers run in this process. Each server is a separate process, which is started for one measurement.
type peers struct {
	turns
	contenders []peer
	jobs       int
	servers    emulators // of the Queue service's protocol
}

func (p *peers) flags(f *flag.FlagSet) {
	p.turns.flags(f)
	several(f, &p.contenders, allPeers, named(allPeers), "contenders", "which contenders; those that are not installed are skipped")
	one(f, &p.jobs, 20_000, positive, "jobs", "how many jobs of 1 KB; the slowest contenders get fewer, and the fastest more")
}

func (p *peers) check() error { return nil }

// The same for all contenders.
const (
	peerWorkers     = 64              // goroutines that send one by one, and handlers
	peerConnections = peerWorkers + 8 // to a server, so that no worker waits for one
	packed          = many            // jobs in a message: as many as fit, which are 61
)

type peer struct {
	name, title, kept string
	like              string  // the Millrace contender with the same durability; empty for Millrace itself
	share             float64 // of -jobs; 0 means all of them
	open              func(context.Context, *peerRun) error
}

func (p peer) String() string { return p.name }

var allPeers = []peer{
	{name: "asynq", title: "asynq, Redis", kept: "memory", like: "memory", open: openAsynq("--appendonly", "no")},
	{name: "asynq-disk", title: "asynq, Redis with `appendfsync always`", kept: "disk", like: "disk", open: openAsynq("--appendonly", "yes", "--appendfsync", "always")},
	{name: "river", title: "river, PostgreSQL", kept: "disk", like: "disk", open: openRiver},
	{name: "jetstream", title: "NATS JetStream", kept: "memory", like: "memory", open: openJetStream(jetstream.MemoryStorage, false)},
	{name: "jetstream-file", title: "NATS JetStream", kept: "file, synced every 2 min", like: "disk", open: openJetStream(jetstream.FileStorage, false)},
	{name: "jetstream-disk", title: "NATS JetStream with `sync_interval: always`", kept: "disk", like: "disk", share: 0.2, open: openJetStream(jetstream.FileStorage, true)},
	{name: "azurite", title: "Millrace, Azurite", kept: "memory", share: 0.05, open: openMillrace("azurite", 1)},
	{name: "memory", title: "Millrace, its server", kept: "memory", open: openMillrace("memory", 1)},
	{name: "memory-packed", title: "Millrace, its server, packed", kept: "memory", open: openMillrace("memory", packed)},
	{name: "disk", title: "Millrace, its server with `-data`", kept: "disk", open: openMillrace("disk", 1)},
	{name: "disk-packed", title: "Millrace, its server with `-data`, packed", kept: "disk", open: openMillrace("disk", packed)},
	{name: "process", title: "Millrace, its engine without a server", kept: "memory", share: 5, open: openProcess},
}

// parcel is a job. All contenders encode it as JSON and decode it for the handler.
type parcel struct{ Text string }

// Kind implements river's JobArgs.
func (parcel) Kind() string { return "parcel" }

// encode cannot fail: a parcel is a string.
func (p parcel) encode() []byte {
	body, _ := json.Marshal(p)
	return body
}

var kilobyte = parcel{strings.Repeat("x", 1024-len(`{"Text":""}`))}

type peerTurn struct {
	peer
	absent              string // a line that says why it was skipped
	sent, bulk, handled samples
}

func (p *peers) run(ctx context.Context, h *harness) (*report, error) {
	if slices.ContainsFunc(p.contenders, func(c peer) bool { return strings.HasPrefix(c.name, "memory") || strings.HasPrefix(c.name, "disk") }) {
		bin, err := h.build(ctx, "github.com/millrace/millrace/cmd/millrace")
		if err != nil {
			return nil, err
		}
		p.servers.millrace = filepath.Join(bin, "millrace")
	}
	var all []*peerTurn
	for _, c := range p.contenders {
		all = append(all, &peerTurn{peer: c})
	}
	err := takeTurns(ctx, h, p.rounds, all, func(t *peerTurn, _ int) error {
		if t.absent != "" {
			return nil
		}
		err := p.once(ctx, h, t)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, azuritetest.ErrAbsent) {
			why, _, _ := strings.Cut(err.Error(), " (") // the rest is npm's output
			t.absent = fmt.Sprintf("%v was skipped: %s.\n", t.peer, why)
			h.say("%s", strings.TrimSpace(t.absent))
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	skipped := ""
	for _, t := range all {
		skipped += t.absent
	}
	return &report{head: fmt.Sprintf("%s.\n%s.\n%s\n", h.machine, peerVersions(), skipped), table: peersTable(all)}, nil
}

// peerRun is one measurement of a contender.
type peerRun struct {
	*harness
	closers
	servers  *emulators
	handlers closers // stop what start has started
	jobs     int
	count    atomic.Int64 // jobs handled

	// Open sets these.
	send      func(context.Context) error        // sends one job; nil if the contender sends only in bulk
	bulk      func(context.Context) error        // sends all jobs in as few calls as possible; nil without such a call
	start     func(context.Context) error        // starts the handlers
	unsettled func(context.Context) (int, error) // how many messages are not acknowledged or deleted
}

// handle is the handler of all contenders.
func (r *peerRun) handle(p parcel) error {
	if len(p.Text) != len(kilobyte.Text) {
		return fmt.Errorf("got a job with %d bytes, want %d", len(p.Text), len(kilobyte.Text))
	}
	r.count.Add(1)
	return nil
}

func (r *peerRun) handleJSON(body []byte) error {
	var p parcel
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	return r.handle(p)
}

// once measures a contender once: jobs sent one by one, all of them handled, and then jobs sent in bulk. A contender
// that sends only in bulk handles those. A contender that hangs fails after a time that a slow one does not need.
func (p *peers) once(ctx context.Context, h *harness, t *peerTurn) (err error) {
	r := &peerRun{harness: h, servers: &p.servers, jobs: p.jobs}
	if t.share > 0 {
		r.jobs = max(1, int(float64(p.jobs)*t.share))
	}
	limit := time.Minute + time.Duration(r.jobs)*20*time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		err = errors.Join(err, r.handlers.close(), r.close())
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("measure %d jobs within %v: %w", r.jobs, limit, err)
		}
	}()
	if err := t.open(ctx, r); err != nil {
		return err
	}
	measure := func(into *samples, work func(context.Context) error) {
		if err == nil && work != nil {
			runtime.GC() // so that no contender pays for another's garbage
			begin := time.Now()
			err = work(ctx)
			*into = append(*into, sample{messages: int64(r.jobs), wall: time.Since(begin)})
		}
	}
	if r.send == nil {
		measure(&t.bulk, r.bulk)
		measure(&t.handled, r.handleAll)
		return err
	}
	measure(&t.sent, r.sendAll)
	measure(&t.handled, r.handleAll)
	err = errors.Join(err, r.handlers.close()) // or they would handle what is sent next
	measure(&t.bulk, r.bulk)
	return err
}

// sendAll sends the jobs one by one.
func (r *peerRun) sendAll(ctx context.Context) error {
	var begun atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range peerWorkers {
		g.Go(func() error {
			for begun.Add(1) <= int64(r.jobs) {
				if err := r.send(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// handleAll starts the handlers, and returns when the last job is acknowledged.
func (r *peerRun) handleAll(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	for {
		left := r.jobs - int(r.count.Load())
		if left <= 0 { // only then the server is asked
			var err error
			if left, err = r.unsettled(ctx); left <= 0 || err != nil {
				return err
			}
		}
		if !waiting.For(2*time.Millisecond, ctx.Done()) {
			return fmt.Errorf("%d of %d jobs are left: %w", left, r.jobs, ctx.Err())
		}
	}
}

// openAsynq opens asynq on a Redis server with these options. asynq has no call for several tasks.
func openAsynq(options ...string) func(context.Context, *peerRun) error {
	return func(ctx context.Context, r *peerRun) error {
		dir, err := r.folder("redis")
		if err != nil {
			return err
		}
		at, err := r.serve(ctx, "redis-server", func(port string) []string {
			return append([]string{"redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--loglevel", "warning"}, options...)
		})
		if err != nil {
			return err
		}
		o := asynq.RedisClientOpt{Addr: at, PoolSize: peerConnections}
		client, inspector := asynq.NewClient(o), asynq.NewInspector(o)
		r.add(client.Close)
		r.add(inspector.Close)
		r.send = func(ctx context.Context) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("parcel", kilobyte.encode()))
			return err
		}
		r.start = func(context.Context) error {
			s := asynq.NewServer(o, asynq.Config{Concurrency: peerWorkers, LogLevel: asynq.FatalLevel})
			r.handlers.add(func() error { s.Shutdown(); return nil })
			return s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { return r.handleJSON(t.Payload()) }))
		}
		r.unsettled = func(context.Context) (int, error) {
			info, err := inspector.GetQueueInfo("default")
			if err != nil {
				return 0, err
			}
			return info.Size, nil // a task that has succeeded is deleted
		}
		return untilItAnswers(ctx, func(context.Context) error { return client.Ping() })
	}
}

// openRiver opens river on a PostgreSQL server. FetchCooldown limits the throughput of handlers, so they have the minimum.
// It also limits the notifications of inserts, and commits that notify wait for each other, so senders have a client of
// their own with the default.
func openRiver(ctx context.Context, r *peerRun) error {
	at, err := r.servePostgres(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable&pool_max_conns=%d", at, peerConnections))
	if err != nil {
		return err
	}
	r.add(func() error { pool.Close(); return nil })
	if err := untilItAnswers(ctx, pool.Ping); err != nil {
		return err
	}
	driver, quiet := riverpgxv5.New(pool), slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[parcel]) error { return r.handle(j.Args) }))
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: peerWorkers}}, Workers: workers,
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 10 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return err
	}
	sender, err := river.NewClient(driver, &river.Config{Logger: quiet})
	if err != nil {
		return err
	}
	r.send = func(ctx context.Context) error {
		_, err := sender.Insert(ctx, kilobyte, nil)
		return err
	}
	r.bulk = func(ctx context.Context) error {
		for left := r.jobs; left > 0; left -= 1000 {
			some := slices.Repeat([]river.InsertManyParams{{Args: kilobyte}}, min(left, 1000))
			if _, err := sender.InsertManyFast(ctx, some); err != nil {
				return err
			}
		}
		return nil
	}
	completed, _ := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: r.jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	r.start = func(ctx context.Context) error {
		r.handlers.add(func() error { return client.Stop(context.WithoutCancel(ctx)) })
		return client.Start(ctx)
	}
	r.unsettled = func(context.Context) (int, error) { return r.jobs - len(completed), nil } // nothing reads them
	return nil
}

// findPostgres looks on PATH, and then where Debian puts the program.
func findPostgres() (string, error) {
	path, err := exec.LookPath("postgres")
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err != nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return path, err
}

// servePostgres starts a PostgreSQL server. PostgreSQL refuses to run as root, so it runs as the user postgres instead.
func (r *peerRun) servePostgres(ctx context.Context) (address string, err error) {
	postgres, err := findPostgres()
	if err != nil {
		return "", err
	}
	dir, err := r.folder("postgres")
	if err != nil {
		return "", err
	}
	var as []string
	if os.Geteuid() == 0 {
		as = []string{"env", "-C", dir, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}
		if err := errors.Join(os.Chmod(r.dir, 0o711), exec.CommandContext(ctx, "chown", "postgres", dir).Run()); err != nil {
			return "", err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := slices.Concat(as, []string{filepath.Join(filepath.Dir(postgres), "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"})
	p, err := startProgram(ctx, "initdb", initdb[0], initdb[1:]...)
	if err == nil {
		err = p.wait()
	}
	if err != nil {
		return "", err
	}
	return r.serve(ctx, "postgres", func(port string) []string {
		return append(as, postgres, "-D", data, "-h", "127.0.0.1", "-p", port, "-c", "unix_socket_directories=",
			"-c", "log_min_messages=panic", "-c", fmt.Sprint("max_connections=", peerConnections+10))
	})
}

// serve starts a server on a free port.
func (r *peerRun) serve(ctx context.Context, name string, command func(port string) []string) (address string, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = free.Addr().String()
	line := command(strings.TrimPrefix(address, "127.0.0.1:"))
	if err := free.Close(); err != nil {
		return "", err
	}
	s, err := startProgram(ctx, name, line[0], line[1:]...)
	if err == nil {
		r.add(s.stop)
	}
	return address, err
}

// untilItAnswers waits for a server that has just been started.
func untilItAnswers(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ping(ctx)
		if err == nil || !waiting.For(20*time.Millisecond, ctx.Done()) {
			return err
		}
	}
}

// openJetStream opens a work queue of NATS JetStream with a pull consumer. Its messages reach the handlers through a
// channel.
func openJetStream(storage jetstream.StorageType, synced bool) func(context.Context, *peerRun) error {
	return func(ctx context.Context, r *peerRun) error {
		dir, err := r.folder("jetstream")
		if err != nil {
			return err
		}
		s, err := startServer(serverOptions{NATS: true, JetStream: dir, Synced: synced})
		if err != nil {
			return err
		}
		r.add(s.stop)
		connection, err := nats.Connect(s.started.NATS)
		if err != nil {
			return err
		}
		r.add(func() error { connection.Close(); return nil })
		refused, refuse := context.WithCancelCause(context.Background())
		js, err := jetstream.New(connection, jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { refuse(err) }))
		if err != nil {
			return err
		}
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "parcels", Subjects: []string{"parcel"}, Retention: jetstream.WorkQueuePolicy, Storage: storage})
		if err != nil {
			return err
		}
		consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			return err
		}
		r.send = func(ctx context.Context) error {
			_, err := js.Publish(ctx, "parcel", kilobyte.encode())
			return err
		}
		r.bulk = func(ctx context.Context) error {
			for range r.jobs {
				if _, err := js.PublishAsync("parcel", kilobyte.encode(), jetstream.WithStallWait(time.Minute)); err != nil {
					return err
				}
			}
			select {
			case <-js.PublishAsyncComplete():
			case <-ctx.Done():
			}
			return errors.Join(ctx.Err(), context.Cause(refused))
		}
		r.start = func(context.Context) error {
			work := make(chan jetstream.Msg)
			consuming, err := consumer.Consume(func(m jetstream.Msg) { work <- m })
			if err != nil {
				return err
			}
			var handlers errgroup.Group
			r.handlers.add(func() error {
				consuming.Stop()
				<-consuming.Closed()
				close(work)
				return handlers.Wait()
			})
			for range peerWorkers {
				handlers.Go(func() (err error) {
					for m := range work {
						err = errors.Join(err, r.handleJSON(m.Data()), m.Ack())
					}
					return err
				})
			}
			return nil
		}
		r.unsettled = func(ctx context.Context) (int, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return int(info.State.Msgs), nil // an acknowledged message is deleted
		}
		return nil
	}
}

// openMillrace opens a queue on a server of the Queue service's protocol.
func openMillrace(kind emulatorKind, perMessage int) func(context.Context, *peerRun) error {
	return func(ctx context.Context, r *peerRun) error {
		s, err := r.servers.start(ctx, r.harness, kind)
		if err != nil {
			return err
		}
		r.add(s.stop)
		transport, err := http1.New(nil)
		if err != nil {
			return err
		}
		r.add(transport.Close)
		q, err := azurequeue.Open(s.location, "parcels", &azurequeue.Options{Transport: transport})
		if err != nil {
			return err
		}
		r.add(q.Close)
		r.useQueue(q, perMessage)
		return q.Create(ctx, nil)
	}
}

// openProcess opens a queue of the engine in memory, in this process.
func openProcess(ctx context.Context, r *peerRun) error {
	engine, err := localqueue.New(nil)
	if err != nil {
		return err
	}
	q := engine.Queue(queue.Name{Account: "bench", Queue: "parcels"})
	r.useQueue(q, 1)
	return q.Create(ctx, nil)
}

// useQueue sends to a queue and handles it with a listener. The number of handlers is the only setting that differs from
// the defaults. A packed message has eight of them.
func (r *peerRun) useQueue(q queue.Queue, perMessage int) {
	sender := producer.New[parcel](q, nil)
	w := &listening{failed: make(chan error, 1)}
	o := &listener.Options[parcel]{Concurrency: peerWorkers, Logger: slog.New(slog.DiscardHandler), OnError: w.fail}
	handler := func(_ context.Context, m *listener.Message[parcel]) error { return r.handle(m.Body) }
	if perMessage == 1 {
		r.send = func(ctx context.Context) error { _, err := sender.Send(ctx, kilobyte, nil); return err }
	} else {
		o.Concurrency = peerWorkers / 8
		handler = listener.EachItem(handler, 8)
	}
	messages := r.jobs // that are sent before the handlers start
	r.bulk = func(ctx context.Context) error {
		all := &producer.SendAllOptions[parcel]{Concurrency: peerWorkers, PerMessage: perMessage}
		results, err := sender.SendAll(ctx, slices.Repeat([]parcel{kilobyte}, r.jobs), all)
		if perMessage > 1 {
			messages = 0
			for _, one := range results {
				if one.Item == 0 {
					messages++
				}
			}
		}
		return err
	}
	l := listener.New(q, handler, o)
	r.start = func(ctx context.Context) error {
		r.handlers.add(w.stop)
		return w.start(ctx, l.Run, func() bool { return true })
	}
	r.unsettled = func(context.Context) (int, error) { return messages - int(l.State().Outcomes[listener.Deleted]), nil }
}

// peersTable returns the results as Markdown. A figure is bold if it exceeds Millrace's with one job in a message and the
// same durability.
func peersTable(all []*peerTurn) string {
	var b strings.Builder
	b.WriteString("| contender | jobs are kept in | jobs | sent a second, one by one | sent a second, in bulk | handled a second |\n|---|---|--:|--:|--:|--:|\n")
	for _, t := range all {
		if t.absent != "" {
			continue
		}
		like := &peerTurn{}
		if i := slices.IndexFunc(all, func(o *peerTurn) bool { return o.name == t.like }); i >= 0 {
			like = all[i]
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s |\n", t.title, t.kept, t.handled[0].messages,
			beside(t.sent, like.sent), beside(t.bulk, like.bulk), beside(t.handled, like.handled))
	}
	return b.String()
}

func beside(of, millrace samples) string {
	figure := of.median(sample.perSecond)
	if len(of) == 0 {
		return "–"
	}
	if len(millrace) > 0 && figure > millrace.median(sample.perSecond) {
		return fmt.Sprintf("**%.0f**", figure)
	}
	return fmt.Sprintf("%.0f", figure)
}

var version = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

// peerVersions names the versions of the peers, and of the servers that are installed.
func peerVersions() string {
	var all []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/hibiken/asynq", "github.com/riverqueue/river", "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2":
				all = append(all, strings.TrimSuffix(strings.SplitN(m.Path, "/", 3)[2], "/v2")+" "+m.Version)
			}
		}
	}
	postgres, _ := findPostgres() // without it there is no version
	for _, server := range []struct{ name, path string }{{"Redis", "redis-server"}, {"PostgreSQL", postgres}} {
		if said, err := exec.Command(server.path, "--version").Output(); err == nil {
			all = append(all, server.name+" "+version.FindString(string(said)))
		}
	}
	return strings.Join(all, ", ")
}
