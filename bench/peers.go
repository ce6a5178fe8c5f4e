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
	"strconv"
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
	contenders                 []peer
	jobs, concurrency, senders int
	servers                    emulators // of the Queue service's protocol
}

func (p *peers) flags(f *flag.FlagSet) {
	p.turns.flags(f)
	several(f, &p.contenders, allPeers, named(allPeers), "contenders", "which contenders; those that are not installed are skipped")
	one(f, &p.jobs, 20_000, positive, "jobs", "how many jobs of 1 KB; the slowest contenders get fewer, and the fastest more")
	one(f, &p.concurrency, 64, between(1, 1024, strconv.Atoi), "concurrency", "how many handlers run at the same time")
	one(f, &p.senders, 64, between(1, 1024, strconv.Atoi), "senders", "how many goroutines send jobs one by one")
}

func (p *peers) check() error { return nil }

// peer is a contender.
type peer struct {
	name, title, kept string
	like              string  // Millrace, one by one, with the same durability; empty for Millrace itself
	share             float64 // of -jobs; 0 for all of them
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
	{name: "memory-groups", title: "Millrace, its server, groups of 40", kept: "memory", open: openMillrace("memory", 40)},
	{name: "disk", title: "Millrace, its server with `-data`", kept: "disk", open: openMillrace("disk", 1)},
	{name: "disk-groups", title: "Millrace, its server with `-data`, groups of 40", kept: "disk", open: openMillrace("disk", 40)},
	{name: "process", title: "Millrace, its engine without a server", kept: "memory", share: 5, open: openProcess},
}

// parcel is a job of 1 KB. All contenders encode it as JSON and decode it for the handler.
type parcel struct{ Text string }

// Kind implements river's JobArgs.
func (parcel) Kind() string { return "parcel" }

var kilobyte = parcel{strings.Repeat("x", 1024-len(`{"Text":""}`))}

// peerTurn is a contender with its results.
type peerTurn struct {
	peer
	absent              string // why it was not measured
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
	skipped := "" // a line for each that is not installed
	err := takeTurns(ctx, h, p.rounds, all, func(t *peerTurn, _ int) error {
		if t.absent != "" {
			return nil
		}
		err := p.once(ctx, h, t)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, azuritetest.ErrAbsent) {
			t.absent, _, _ = strings.Cut(err.Error(), " (") // the rest is npm's output
			t.absent = fmt.Sprintf("%v was skipped: %s.", t.peer, t.absent)
			skipped += t.absent + "\n"
			h.say("%s", t.absent)
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &report{head: fmt.Sprintf("%s.\n%s.\n%s\n", h.machine, peerVersions(), skipped), table: p.table(all)}, nil
}

// peerRun is a contender in one measurement.
type peerRun struct {
	*peers
	*harness
	closers
	handlers closers      // stop what start has started
	jobs     int          // of this measurement
	count    atomic.Int64 // jobs handled

	// Open sets these.
	send      func(context.Context) error           // sends one job; nil if it sends none one by one
	bulk      func(context.Context, []parcel) error // sends all with one call, or with a few; nil without such a call
	start     func(context.Context) error           // starts the handlers
	unsettled func(context.Context) (int, error)    // how many messages are not acknowledged or deleted
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

// sendJSON returns a function that encodes a job and sends it.
func sendJSON(send func(context.Context, []byte) error) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := json.Marshal(kilobyte)
		if err != nil {
			return err
		}
		return send(ctx, body)
	}
}

// once measures a contender once: jobs sent one by one, all of them handled, and then jobs sent in bulk. A contender
// that sends only in bulk handles those.
func (p *peers) once(ctx context.Context, h *harness, t *peerTurn) (err error) {
	r := &peerRun{peers: p, harness: h, jobs: p.jobs}
	if t.share > 0 {
		r.jobs = max(1, int(float64(p.jobs)*t.share))
	}
	defer func() { err = errors.Join(err, r.handlers.close(), r.close()) }()
	if err := t.open(ctx, r); err != nil {
		return err
	}
	bulk := func(ctx context.Context) error { return r.bulk(ctx, slices.Repeat([]parcel{kilobyte}, r.jobs)) }
	measure := func(into *samples, work func(context.Context) error) {
		if err == nil {
			runtime.GC() // so that no contender pays for another's garbage
			begin := time.Now()
			err = work(ctx)
			*into = append(*into, sample{messages: int64(r.jobs), wall: time.Since(begin)})
		}
	}
	if r.send == nil {
		measure(&t.bulk, bulk)
		measure(&t.handled, r.handleAll)
		return err
	}
	measure(&t.sent, r.sendAll)
	measure(&t.handled, r.handleAll)
	err = errors.Join(err, r.handlers.close()) // or they would handle what is sent next
	if r.bulk != nil {
		measure(&t.bulk, bulk)
	}
	return err
}

// sendAll sends the jobs one by one.
func (r *peerRun) sendAll(ctx context.Context) error {
	var begun atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range r.senders {
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
	for seen, since := 0, time.Now(); ; {
		left := r.jobs - int(r.count.Load())
		if left <= 0 { // only then the server is asked
			var err error
			if left, err = r.unsettled(ctx); left <= 0 || err != nil {
				return err
			}
		}
		if left != seen {
			seen, since = left, time.Now()
		}
		if time.Since(since) > time.Minute {
			return fmt.Errorf("%d of %d jobs are left, and none was handled for a minute", left, r.jobs)
		}
		if !waiting.For(2*time.Millisecond, ctx.Done()) {
			return ctx.Err()
		}
	}
}

// openAsynq opens asynq on a Redis server with these options. Two of asynq's settings concern throughput:
// Concurrency, and PoolSize, which leaves each sender and handler a connection. It has no call for several tasks.
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
		o := asynq.RedisClientOpt{Addr: at, PoolSize: max(r.senders, r.concurrency) + 8}
		client, inspector := asynq.NewClient(o), asynq.NewInspector(o)
		r.add(client.Close)
		r.add(inspector.Close)
		r.send = sendJSON(func(ctx context.Context, body []byte) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("parcel", body))
			return err
		})
		r.start = func(context.Context) error {
			s := asynq.NewServer(o, asynq.Config{Concurrency: r.concurrency, LogLevel: asynq.FatalLevel})
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
		return r.patiently(ctx, func(context.Context) error { return client.Ping() })
	}
}

// openRiver opens river on a PostgreSQL server at its defaults. FetchCooldown limits the throughput, according to
// river's documentation, so the handlers have the minimum. Senders have a client of their own at the defaults, because
// FetchCooldown also limits the notifications of inserts, and commits that notify wait for each other. InsertManyFast is
// the fastest call for several jobs.
func openRiver(ctx context.Context, r *peerRun) error {
	at, err := r.servePostgres(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable&pool_max_conns=%d", at, r.poolSize()))
	if err != nil {
		return err
	}
	r.add(func() error { pool.Close(); return nil })
	if err := r.patiently(ctx, pool.Ping); err != nil {
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
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.concurrency}}, Workers: workers,
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
	r.bulk = func(ctx context.Context, jobs []parcel) error {
		for some := range slices.Chunk(jobs, 1000) {
			params := make([]river.InsertManyParams, len(some))
			for i, one := range some {
				params[i].Args = one
			}
			if _, err := sender.InsertManyFast(ctx, params); err != nil {
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

// poolSize is how many connections to PostgreSQL there are.
func (r *peerRun) poolSize() int { return max(r.senders, 16) + 8 }

// findPostgres returns the path of the program, also where Debian has it.
func findPostgres() (string, error) {
	path, err := exec.LookPath("postgres")
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err != nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return path, err
}

// servePostgres starts a PostgreSQL server. PostgreSQL refuses to run as root, and runs as the user postgres then.
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
	initdb := append(slices.Clone(as), filepath.Join(filepath.Dir(postgres), "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	p, err := startProgram(ctx, "initdb", initdb[0], initdb[1:]...)
	if err == nil {
		err = p.wait()
	}
	if err != nil {
		return "", err
	}
	return r.serve(ctx, "postgres", func(port string) []string {
		return append(as, postgres, "-D", data, "-h", "127.0.0.1", "-p", port, "-c", "unix_socket_directories=",
			"-c", "log_min_messages=panic", "-c", fmt.Sprint("max_connections=", r.poolSize()+10))
	})
}

// serve starts a server on a free port. It outlives the context, so that its clients end in order.
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
	s, err := startProgram(context.WithoutCancel(ctx), name, line[0], line[1:]...)
	if err == nil {
		r.add(s.stop)
	}
	return address, err
}

// patiently waits until a server that was started answers.
func (r *peerRun) patiently(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ping(ctx)
		if err == nil || !waiting.For(20*time.Millisecond, ctx.Done()) {
			return err
		}
	}
}

// openJetStream opens a work queue of NATS JetStream with a pull consumer. Its messages go to the
// handlers through a channel. PublishAsync sends without waiting for each acknowledgement.
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
		r.send = sendJSON(func(ctx context.Context, body []byte) error {
			_, err := js.Publish(ctx, "parcel", body)
			return err
		})
		r.bulk = func(ctx context.Context, jobs []parcel) error {
			publish := sendJSON(func(_ context.Context, body []byte) error {
				_, err := js.PublishAsync("parcel", body, jetstream.WithStallWait(time.Minute))
				return err
			})
			for range jobs {
				if err := publish(ctx); err != nil {
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
			for range r.concurrency {
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
func openMillrace(kind emulatorKind, perGroup int) func(context.Context, *peerRun) error {
	return func(ctx context.Context, r *peerRun) error {
		s, err := r.servers.start(context.WithoutCancel(ctx), r.harness, kind)
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
		r.useQueue(q, perGroup)
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

// useQueue sends to a queue and handles it with a listener. Only the number of handlers differs from the defaults. A
// group has eight of them.
func (r *peerRun) useQueue(q queue.Queue, perGroup int) {
	sender := producer.New[parcel](q, nil)
	w := &listening{failed: make(chan error, 1)}
	o := &listener.Options[parcel]{Concurrency: r.concurrency, Logger: slog.New(slog.DiscardHandler), OnError: w.fail}
	handler := func(_ context.Context, m *listener.Message[parcel]) error { return r.handle(m.Body) }
	messages := int64(r.jobs)
	if perGroup == 1 {
		r.send = func(ctx context.Context) error { _, err := sender.Send(ctx, kilobyte, nil); return err }
		r.bulk = func(ctx context.Context, jobs []parcel) error {
			_, err := sender.SendAll(ctx, jobs, &producer.SendAllOptions[parcel]{Concurrency: r.senders})
			return err
		}
	} else {
		const each = 8
		o.Concurrency = (r.concurrency + each - 1) / each
		handler = listener.EachItem(handler, min(each, r.concurrency))
		messages = int64((r.jobs + perGroup - 1) / perGroup)
		r.bulk = func(ctx context.Context, jobs []parcel) error {
			g, ctx := errgroup.WithContext(ctx)
			g.SetLimit(r.senders)
			for some := range slices.Chunk(jobs, perGroup) {
				g.Go(func() error { _, err := sender.SendGroup(ctx, some, nil); return err })
			}
			return g.Wait()
		}
	}
	l := listener.New(q, handler, o)
	r.start = func(ctx context.Context) error {
		r.handlers.add(w.stop)
		return w.start(ctx, l.Run, func() bool { return true })
	}
	r.unsettled = func(context.Context) (int, error) { return int(messages - l.State().Outcomes[listener.Deleted]), nil }
}

// table returns the results as Markdown. A figure is bold if it exceeds the one of Millrace, one by one, with the same
// durability.
func (p *peers) table(all []*peerTurn) string {
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

// beside returns the median a second.
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
