package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/table"
)

// world has what all processes share: the tables and the queue.
type world struct {
	*testing.T
	channels, posts table.Store
	queue           queue.Manager
	journal         *journal

	mu      sync.Mutex
	written map[channels.Incarnation][]string // ids of posts that were acknowledged; guarded by mu
}

func newWorld(t *testing.T) *world {
	t.Helper()
	q, err := must(localqueue.New(nil)).Account("test").Open(QueueName)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t, channels: table.Memory("Channels"), posts: table.Memory("Blogs"), queue: q,
		journal: newJournal(), written: map[channels.Incarnation][]string{},
	}
}

// site returns what a client sees of the tables. The number of its last request is in last, unless that is nil.
func (w *world) site(last *int) *channels.Site {
	return &channels.Site{Channels: watched{w.channels, w.journal, last}, Posts: watched{stingy{w.posts}, w.journal, last}}
}

// stingy is a table whose pages end after as many entities as were asked for, whether the filter matches them or not: so
// they may have few or none while there are more, as those of the service.
type stingy struct{ table.Store }

func (s stingy) Query(ctx context.Context, q table.Query) (table.Page, error) {
	filter := q.Filter
	q.Filter = table.Filter{}
	p, err := s.Store.Query(ctx, q)
	p.Entities = slices.DeleteFunc(p.Entities, func(e table.Entity) bool { return !filter.Match(e) })
	return p, err
}

const theName = "a/b #1" // of the channel

// create makes the channel with n posts.
func (w *world) create(n int) channels.Channel {
	w.Helper()
	c, err := w.site(nil).Create(w.Context(), theName, "ann")
	if err != nil {
		w.Fatal(err)
	}
	for range n {
		w.write(w.client(), c)
	}
	return c
}

// client is somebody who reads and writes.
type client struct {
	*channels.Site
	last *int // the number of the last request
}

func (w *world) client() client { return through(w.site) }

// write writes a post whose title is the incarnation, and notes it if that succeeds.
func (w *world) write(s client, c channels.Channel) {
	b, err := s.Write(w.Context(), c, "ann", string(c.Incarnation), "text")
	switch {
	case err == nil:
		w.journal.written(c, *s.last)
		w.mu.Lock()
		w.written[c.Incarnation] = append(w.written[c.Incarnation], b.ID)
		w.mu.Unlock()
	case !expected(err):
		w.journal.fault("write: %v", err)
	}
}

// expected reports whether an error may come from a channel that is gone, a table that is away, a write that takes too long,
// or the end of a process.
func expected(err error) bool {
	return errors.Is(err, channels.ErrNoChannel) || table.Transient(err) || errors.Is(err, killtest.ErrKilled) ||
		strings.Contains(err.Error(), "took longer than")
}

// read reads a page and checks it.
func (w *world) read(s client, token table.Token) table.Token {
	c, posts, next, err := s.Page(w.Context(), theName, token, 15)
	switch {
	case err == nil:
		w.journal.page(c, posts, *s.last)
	case posts != nil || c != (channels.Channel{}):
		w.journal.fault("a page with the error %v is not empty", err)
	case !expected(err):
		w.journal.fault("page: %v", err)
	}
	return next
}

// visitors read and write until the function is called that this returns.
func (w *world) visitors(site func(last *int) *channels.Site, every time.Duration) (leave func()) {
	ctx, stop := context.WithCancel(w.Context())
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			s := through(site)
			for token := table.Token(""); pauseFor(ctx, every+time.Duration(i)*time.Millisecond); {
				token = w.read(s, token)
			}
		})
		all.Go(func() {
			s := through(site)
			for pauseFor(ctx, 2*every+time.Duration(i)*time.Millisecond) {
				if c, err := s.Channel(ctx, theName); err == nil {
					w.write(s, c)
				}
			}
		})
	}
	return func() {
		stop()
		all.Wait()
	}
}

// through returns a client with its own view of the site.
func through(site func(last *int) *channels.Site) client {
	last := 0
	return client{site(&last), &last}
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// process is a process with the worker role.
type process struct {
	listener *listener.Listener[Deletion]
	stop     context.CancelFunc
	ended    chan struct{}
	log      *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts a worker with small pages.
func (w *world) start(q queue.Queue, site *channels.Site) *process {
	p := &process{ended: make(chan struct{}), log: &lockedBuffer{}}
	role := &worker{site: site, deletions: newProducer(q, nil), page: 20, logger: slog.New(slog.NewTextHandler(p.log, nil))}
	p.listener = role.listen(q, nil, 5*time.Second)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		_ = p.listener.Run(ctx) // of a killed process
	}()
	return p
}

// startMortal starts a worker that the killer kills.
func (w *world) startMortal(k *killtest.Killer) *process {
	s := w.site(nil)
	return w.start(&killtest.Queue{Queue: w.queue, Killer: k}, &channels.Site{
		Channels: &killtest.Table{Store: s.Channels, Killer: k}, Posts: &killtest.Table{Store: s.Posts, Killer: k},
	})
}

// end ends a process gracefully, or, if it was killed, removes what is left of it.
func (p *process) end(killed bool) {
	p.stop()
	if killed {
		p.listener.Halt()
	}
	<-p.ended
}

// depth returns how many messages the queue has, or its poison queue.
func (w *world) depth(suffix string) int64 {
	p, err := w.queue.Sibling(suffix).Properties(context.Background())
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		w.Fatal(err)
	}
	return p.Depth
}

// settle waits until the queue is empty, and stays so.
func (w *world) settle() {
	for range 200 {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.depth("") == 0 {
			return
		}
	}
	w.journal.fault("messages in the queue: %d, want none", w.depth(""))
}

// check looks at what is left in the end, and returns all that must not happen. Of the incarnations only the live one,
// if there is one, may have left anything: all that was acknowledged, and nothing of others.
func (w *world) check() []string {
	w.Helper()
	if n := w.depth(poison.Suffix); n != 0 {
		w.journal.fault("poison messages: %d, want none", n)
	}
	var current channels.Incarnation
	for e, err := range table.All(context.Background(), w.channels, table.Query{}) {
		if err != nil {
			w.Fatal(err)
		}
		if current = channels.Incarnation(e.Text("Incarnation")); e.Text("State") != "live" {
			w.journal.fault("the channel %s is still %s", current, e.Text("State"))
		}
	}
	left := map[string]bool{}
	for e, err := range table.All(context.Background(), w.posts, table.Query{}) {
		if err != nil {
			w.Fatal(err)
		}
		if left[e.Row] = true; e.Text("Incarnation") != string(current) {
			w.journal.fault("a post of %s is left; the channel is %q", e.Text("Incarnation"), current)
		}
	}
	for _, id := range w.written[current] {
		if !left[id] {
			w.journal.fault("the post %s of the channel %s is lost", id, current)
		}
	}
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	return w.journal.faults
}

// mustBeRight fails the test if anything happened that must not.
func (w *world) mustBeRight(when string, args ...any) {
	w.Helper()
	if faults := w.check(); len(faults) > 0 {
		w.Errorf("%s: %s", fmt.Sprintf(when, args...), strings.Join(faults[:min(len(faults), 10)], "\n"))
	}
}

// request asks for the deletion of a channel.
func (w *world) request(c channels.Channel) {
	w.Helper()
	if err := NewRequester(w.queue, nil).Delete(w.Context(), c); err != nil {
		w.Fatal(err)
	}
}
