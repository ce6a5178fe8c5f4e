package roles

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/table"
)

// actor does one thing, and dies before one of its requests.
type actor struct {
	Does string
	Dies int // the number of that request; 0 for never
	Old  int // of a worker that gets a message again: which one
}

// schedule says which of the actors that wait sends the next request, and how long that takes.
type schedule []struct {
	Who  int
	Long bool
}

// Whatever the order in which people and workers send their requests, and whoever dies: no reader sees a post of a
// channel that was marked, nothing of a dead channel is left in the end, and nothing of the living one is lost.
//
// T-12, T-15.
func TestAnyOrderOfRequestsLeavesWhatItShould(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		actors := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) actor {
			return actor{
				Does: rapid.SampledFrom([]string{"create", "write", "write", "read", "delete", "delete", "handle again", "sweep"}).Draw(r, "does"),
				Dies: max(0, rapid.IntRange(-10, 12).Draw(r, "dies")),
				Old:  rapid.IntRange(0, 5).Draw(r, "old"),
			}
		}), 1, 12).Draw(r, "actors")
		order := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) (one struct {
			Who  int
			Long bool
		}) {
			one.Who = rapid.IntRange(0, 11).Draw(r, "who")
			one.Long = rapid.IntRange(0, 15).Draw(r, "long") == 15
			return one
		}), 0, 120).Draw(r, "order")
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = newWorld(t).play(actors, order) })
		if len(faults) > 0 {
			r.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// manySteps are more than any world needs.
const manySteps = 5000

// gate holds every request back until it is its turn.
type gate struct {
	closed atomic.Bool // nobody gets through any more

	mu      sync.Mutex
	waiting []turn // guarded by mu
}

type turn struct {
	actor int
	begin chan struct{}
}

func (g *gate) wait(actor int) {
	begin := make(chan struct{})
	g.mu.Lock()
	g.waiting = append(g.waiting, turn{actor, begin})
	g.mu.Unlock()
	<-begin
}

// next lets one request begin and reports whether there was any.
func (g *gate) next(who int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return false
	}
	slices.SortFunc(g.waiting, func(a, b turn) int { return a.actor - b.actor })
	i := who % len(g.waiting)
	close(g.waiting[i].begin)
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// gated is a table of one actor.
type gated struct {
	table.Store
	gate   *gate
	actor  int
	dies   int
	number *int // of its last request
}

func (g gated) begin() error {
	g.gate.wait(g.actor)
	if *g.number++; g.dies > 0 && *g.number >= g.dies || g.gate.closed.Load() {
		return killtest.ErrKilled
	}
	return nil
}

func inTurn[T any](g gated, act func() (T, error)) (none T, _ error) {
	if err := g.begin(); err != nil {
		return none, err
	}
	return act()
}

func (g gated) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	return inTurn(g, func() (table.Entity, error) { return g.Store.Get(ctx, k) })
}

func (g gated) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return inTurn(g, func() (table.Page, error) { return g.Store.Query(ctx, q) })
}

func (g gated) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return inTurn(g, func() (table.ETag, error) { return g.Store.Insert(ctx, e) })
}

func (g gated) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return inTurn(g, func() (table.ETag, error) { return g.Store.Update(ctx, e) })
}

func (g gated) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	_, err := inTurn(g, func() (struct{}, error) { return struct{}{}, g.Store.Delete(ctx, k, etag) })
	return err
}

func (g gated) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	return inTurn(g, func() ([]table.ETag, error) { return g.Store.Apply(ctx, changes) })
}

// cast is what the actors of a world share.
type cast struct {
	*world
	gate *gate

	mu       sync.Mutex
	asked    []channels.Channel // deletions; guarded by mu
	messages []Deletion         // as their workers left them; guarded by mu
}

// play lets the actors play, then a worker without faults finish all deletions, and returns what must not have happened.
func (w *world) play(actors []actor, order schedule) []string {
	c := &cast{world: w, gate: &gate{}}
	w.create(5)
	var all sync.WaitGroup
	for i, a := range actors {
		all.Go(func() { c.act(i, a) })
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Wait()
	}()
	for step, over := 0, false; !over; step++ {
		took, who := 2*time.Millisecond, step
		if step < len(order) {
			who = order[step].Who
			if order[step].Long {
				took = channels.WriteTimeout + time.Second
			}
		}
		select {
		case <-ended:
			over = true
		case <-time.After(took): // everybody waits for a turn, or for a short time
			c.gate.next(who)
		}
		if step == manySteps {
			w.journal.fault("somebody comes to no end")
			c.gate.closed.Store(true)
		}
	}
	for _, one := range c.asked {
		w.request(one)
	}
	p := w.start(w.queue, w.site(nil))
	w.settle()
	p.end(false)
	if _, err := w.site(nil).Sweep(w.Context()); err != nil {
		w.journal.fault("sweep: %v", err)
	}
	return w.check()
}

// act plays one actor.
func (c *cast) act(i int, a actor) {
	number := 0
	s := c.client()
	s.Channels, s.Posts = gated{s.Channels, c.gate, i, a.Dies, &number}, gated{s.Posts, c.gate, i, a.Dies, &number}
	c.gate.wait(i)
	switch a.Does {
	case "create":
		_, _ = s.Create(c.Context(), theName, fmt.Sprint("owner ", i)) // it may exist, and we may die
	case "write":
		if found, err := s.Channel(c.Context(), theName); err == nil {
			c.write(s, found)
			c.write(s, found)
		}
	case "read":
		for token, n := table.Token(""), 0; n < 4; n++ {
			token = c.read(s, token)
		}
	case "delete":
		if found, err := s.Channel(c.Context(), theName); err == nil {
			c.mu.Lock()
			c.asked = append(c.asked, found)
			c.mu.Unlock()
			c.handle(s.Site, Deletion{Channel: found.Name, Incarnation: found.Incarnation})
		}
	case "handle again":
		c.mu.Lock()
		var d Deletion
		if len(c.messages) > 0 {
			d = c.messages[a.Old%len(c.messages)]
		}
		c.mu.Unlock()
		if d.Channel != "" {
			c.handle(s.Site, d)
		}
	case "sweep":
		_, _ = s.Sweep(c.Context()) // we may die
	}
}

// handle handles a message until it is done or its worker dies. What the worker has saved is there for the next.
func (c *cast) handle(s *channels.Site, d Deletion) {
	w := &worker{site: s, deletions: newProducer(c.queue, nil), page: 2, logger: slog.New(slog.DiscardHandler)}
	m := &listener.Message[Deletion]{Body: d}
	_ = w.delete(c.Context(), m) // it may die
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, m.Body)
}
