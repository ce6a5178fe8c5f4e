package roles

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/table"
)

// stuck is a table of a process that stands still at one of its requests, which reaches the table when the process goes
// on, whatever its context says.
type stuck struct {
	table.Store
	number *int // of the last request
	at     int
	stands chan struct{} // closed when it stands still
	goOn   chan struct{}
}

func (s stuck) begin(ctx context.Context) context.Context {
	if *s.number++; *s.number == s.at {
		close(s.stands)
		<-s.goOn
	}
	return context.WithoutCancel(ctx)
}

func (s stuck) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	return s.Store.Get(s.begin(ctx), k)
}

func (s stuck) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return s.Store.Query(s.begin(ctx), q)
}

func (s stuck) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return s.Store.Update(s.begin(ctx), e)
}

func (s stuck) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return s.Store.Delete(s.begin(ctx), k, etag)
}

func (s stuck) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	return s.Store.Apply(s.begin(ctx), changes)
}

// A worker stands still at any of its requests until another one has its message and has handled it, or has just begun
// to. None of its saves arrives. When it goes on it does no harm: not to the channel that was made anew meanwhile, nor to
// the other worker.
//
// T-15.
func TestAWorkerThatComesBackDoesNoHarm(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, meanwhile := range []time.Duration{5100 * time.Millisecond, 10 * time.Second} {
		for _, anew := range []bool{false, true} {
			reached := 0
			for n, more := 1, true; more; n++ {
				synctest.Test(t, func(t *testing.T) { more = newWorld(t).standStill(n, meanwhile, anew) })
				reached = n
			}
			if reached < 12 {
				t.Errorf("requests: got %d, want at least 12", reached)
			}
		}
	}
}

// standStill reports whether there was such a request.
func (w *world) standStill(n int, meanwhile time.Duration, anew bool) bool {
	w.request(w.create(50))
	s, number := w.site(nil), 0
	stands, goOn := make(chan struct{}), make(chan struct{})
	slow := &channels.Site{Channels: stuck{s.Channels, &number, n, stands, goOn}, Posts: stuck{s.Posts, &number, n, stands, goOn}}
	first := w.start(must(faultqueue.New(w.queue, &faultqueue.Options{
		Seed: uint64(n), Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Update: {LostRequest: 1}},
	})), slow)
	select {
	case <-stands:
	case <-time.After(2 * LateDelay): // it has done everything without the request
		first.end(false)
		w.mustBeRight("without standing still")
		return false
	}
	second := w.start(w.queue, s)
	leave := w.visitors(w.site, 40*time.Millisecond)
	time.Sleep(meanwhile)
	if anew {
		_, _ = s.Create(w.Context(), theName, "bob") // the one before may still be there
	}
	close(goOn)
	time.Sleep(500 * time.Millisecond)
	leave()
	time.Sleep(10 * time.Second)
	first.end(false)
	w.settle()
	second.end(false)
	w.mustBeRight("standing still at request %d for %v, made anew: %v", n, meanwhile, anew)
	return true
}
