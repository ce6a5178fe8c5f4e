package paired_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
)

// a send before Pair is an error that says so, and sends nothing; Pair creates the missing backlog queues.
func TestNothingIsSentBeforePair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		b.west.called("")
		_, err := b.queue.Enqueue(b.ctx, "text", nil)
		if !errors.Is(err, paired.ErrNotPaired) || !strings.Contains(fmt.Sprint(err), "west/orders") || queue.Transient(err) {
			t.Errorf("got %v, want %v", err, paired.ErrNotPaired)
		}
		if n := b.west.called("") + b.east.called(""); n != 0 {
			t.Errorf("requests: got %d, want 0", n)
		}
		b.ok(b.east.open("orders-backlog-04").Create(b.ctx, map[string]string{"there": "before"}))
		b.ok(b.queue.Pair(b.ctx))
		if names := b.east.names(); len(names) != 10 || names[0] != "orders-backlog-00" || names[9] != "orders-backlog-09" {
			t.Errorf("queues of the secondary account: got %q, want 10 backlog queues", names)
		}
		if n := b.east.called("create"); n != 9 {
			t.Errorf("queues created: got %d, want the 9 that were missing", n)
		}
		b.sends("text", "west")
		b.ok(b.queue.Pair(b.ctx))
		if n := b.east.called("create"); n != 0 {
			t.Errorf("queues created by a second Pair: got %d, want 0", n)
		}
	})
}

// several processes pair at once.
func TestSeveralPairAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		b.east.fault("", fault{takes: time.Second, all: true}) // all find the queues missing
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				q := must(paired.New(b.west.queue("orders"), b.east.queue("orders"), nil))
				defer q.Close()
				if err := q.Pair(b.ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// errors of credentials and of creation are those of Pair, and then nothing can be sent.
func TestPairFails(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(b *bundle)
		want    error
	}{
		"no right to read": {func(b *bundle) { b.east.fault("orders-backlog-07", fault{err: unauthorized, all: true}) }, queue.ErrUnauthorized},
		"being deleted": {func(b *bundle) {
			b.ok(b.east.open("orders-backlog-02").Create(b.ctx, nil))
			b.ok(b.east.open("orders-backlog-02").Drop(b.ctx))
		}, queue.ErrQueueBeingDeleted},
		"down": {func(b *bundle) { b.east.fault("", fault{err: unavailable, all: true}) }, queue.ErrUnavailable},
		"down and refused": {func(b *bundle) {
			b.east.fault("", fault{err: unavailable, all: true})
			b.east.fault("orders-backlog-07", fault{err: unauthorized, all: true})
		}, queue.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := unpaired(t, paired.Options{})
				c.prepare(b)
				begin := time.Now()
				err := b.queue.Pair(b.ctx)
				if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), "of 10 backlog queues") || strings.Contains(fmt.Sprint(err), "\n") {
					t.Errorf("got %v, want %v in one line", err, c.want)
				}
				if took := time.Since(begin); took > 30*time.Second {
					t.Errorf("it took %v, want at most 30s", took)
				}
				if _, err = b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, paired.ErrNotPaired) {
					t.Errorf("a send: got %v, want %v", err, paired.ErrNotPaired)
				}
				b.east.fault("", fault{})
				b.east.fault("orders-backlog-07", fault{})
				time.Sleep(time.Minute)
				b.ok(b.queue.Pair(b.ctx))
				b.sends("text", "west")
			})
		})
	}
}

// Transient errors of Pair are retried.
func TestPairOutlastsAMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		b.east.fault("", fault{err: throttled, all: true})
		time.AfterFunc(10*time.Second, func() { b.east.fault("", fault{}) })
		b.ok(b.queue.Pair(b.ctx))
		ended, cancel := context.WithCancel(b.ctx)
		cancel()
		if err := b.queue.Pair(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		b.sends("a failure of a later Pair changes nothing", "west")
	})
}

// A later Pair creates a backlog queue that was deleted, and lets it into the rotation at once.
func TestPairAgainMendsTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 1})
		b.failOver()
		b.ok(b.east.open("orders-backlog-00").Drop(b.ctx))
		if _, err := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, queue.ErrQueueMissing) {
			t.Errorf("got %v, want %v", err, queue.ErrQueueMissing)
		}
		time.Sleep(31 * time.Second)
		b.ok(b.queue.Pair(b.ctx))
		if s := b.queue.State().Backlogs[0]; !s.RestsUntil.IsZero() || s.LastError != nil {
			t.Errorf("got %+v, want it in the rotation", s)
		}
		b.sends("text", "east")
	})
}

// there is at least one backlog queue, and what is out of range is an error before anything is sent.
func TestInvalidOptionsAreErrorsOfNew(t *testing.T) {
	for name, o := range map[string]paired.Options{
		"Backlogs -1":              {Backlogs: -1},
		"Backlogs 101":             {Backlogs: 101},
		"FailoverInterval 1h0m0.1": {FailoverInterval: paired.MaxFailoverInterval + 100*time.Millisecond},
		"FailoverInterval 10ns":    {FailoverInterval: 10},
		"ProbeInterval -1s":        {ProbeInterval: -time.Second},
		"ProbeInterval 30ns":       {ProbeInterval: 30},
	} {
		bubble(t, func(t *testing.T) {
			west, east := newRegion("west"), newRegion("east")
			q, err := paired.New(west.queue("orders"), east.queue("orders"), &o)
			if q != nil || !errors.Is(err, queue.ErrInvalid) || !strings.Contains(fmt.Sprint(err), name) || !strings.Contains(fmt.Sprint(err), "west/orders") {
				t.Errorf("%s: got %v, want %v that names it and the queue", name, err, queue.ErrInvalid)
			}
			if n := west.called("") + east.called(""); n != 0 {
				t.Errorf("%s: requests: got %d, want 0", name, n)
			}
		})
	}
	for _, o := range []paired.Options{{}, {Backlogs: 1}, {Backlogs: 100, FailoverInterval: time.Hour, ProbeInterval: time.Hour}} {
		bubble(t, func(t *testing.T) { setup(t, o) })
	}
}

// A secondary queue whose backlog queues would have names that are too long is an error of Pair.
func TestInvalidNamesAreErrorsOfPair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		long := strings.Repeat("x", 53)
		q := must(paired.New(b.west.queue("orders"), b.east.queue(long), nil))
		if err := q.Pair(b.ctx); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(fmt.Sprint(err), long+"-backlog-0") {
			t.Errorf("got %v, want %v that names the queue", err, queue.ErrInvalid)
		}
		q = must(paired.New(b.west.queue("Orders"), b.east.queue("orders"), nil))
		if err := q.Pair(b.ctx); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("got %v, want %v", err, queue.ErrInvalid)
		}
	})
}

// whatever is not a send is of the primary queue.
func TestEverythingElseIsOfThePrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		b.east.called("")
		if got := b.queue.Name().String(); got != "west/orders" {
			t.Errorf("name: got %s", got)
		}
		if got := b.queue.Unwrap().Name(); got != b.queue.Name() {
			t.Errorf("Unwrap: got %v, want the primary queue", got)
		}
		poison := b.queue.Sibling("-poison")
		b.ok(poison.Create(b.ctx, nil))
		b.west.fault("orders-poison", fault{err: unavailable})
		if _, err := poison.Enqueue(b.ctx, "text", nil); !errors.Is(err, queue.ErrUnavailable) || errors.Is(err, paired.ErrBothDown) {
			t.Errorf("got %v, want the error of the poison queue", err)
		}
		if batch, err := b.queue.Dequeue(b.ctx, 32, time.Minute); err != nil || len(batch) != 0 {
			t.Errorf("got %v and %v, want no message: they wait in the backlog", batch, err)
		}
		if n := b.east.called(""); n != 0 {
			t.Errorf("requests to the secondary account: got %d, want 0", n)
		}
	})
}

func TestNilQueuesAreRefused(t *testing.T) {
	for _, qs := range [][2]queue.Queue{{nil, newRegion("east").queue("orders")}, {newRegion("west").queue("orders"), (*faulty)(nil)}} {
		if q, err := paired.New(qs[0], qs[1], nil); q != nil || !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("New with a nil queue: got %v, want %v", err, queue.ErrInvalid)
		}
	}
}

// racing is a queue that another process creates, with metadata, while this one looks whether it is there.
type racing struct{ queue.Queue }

func (q racing) Sibling(suffix string) queue.Queue { return racing{q.Queue.Sibling(suffix)} }

func (q racing) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Queue.Properties(ctx)
	if errors.Is(err, queue.ErrQueueMissing) {
		_ = q.Create(ctx, map[string]string{"by": "another"})
		p, err = queue.Properties{}, &queue.Error{Kind: queue.ErrQueueMissing}
	}
	return p, err
}

// a backlog queue that somebody else creates at the same moment is there, whatever its metadata.
func TestPairMeetsAnotherThatCreates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		q := must(paired.New(b.west.queue("orders"), racing{b.east.queue("orders")}, nil))
		b.ok(q.Pair(b.ctx))
	})
}

// Pair marks the backlog queues with the account of the primary queue and refuses those of another one, whether it has
// created them or the last release has. Queues of one account may share them.
func TestBacklogQueuesBelongToOneAccount(t *testing.T) {
	for name, old := range map[string]bool{"new queues": false, "queues of the last release": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := unpaired(t, paired.Options{Backlogs: 2})
				for i := range 2 {
					if old {
						b.ok(b.east.queue(fmt.Sprintf("orders-backlog-%02d", i)).Create(b.ctx, map[string]string{"team": "shop"}))
					}
				}
				b.ok(b.queue.Pair(b.ctx))
				p, err := b.east.open("orders-backlog-01").Properties(b.ctx)
				b.ok(err)
				if p.Metadata["primaryaccount"] != "west" || (p.Metadata["team"] == "shop") != old {
					t.Errorf("metadata: got %q, want the mark beside what there was", p.Metadata)
				}
				b.ok(must(paired.New(b.west.queue("mails"), b.east.queue("orders"), &paired.Options{Backlogs: 2})).Pair(b.ctx))
				north := must(paired.New(newRegion("north").queue("orders"), b.east.queue("orders"), &paired.Options{Backlogs: 2}))
				err = north.Pair(b.ctx)
				if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "account west, not in north") {
					t.Errorf("got %v, want that they are those of the account west", err)
				}
				if _, err = north.Enqueue(b.ctx, "text", nil); !errors.Is(err, paired.ErrNotPaired) {
					t.Errorf("a send: got %v, want %v", err, paired.ErrNotPaired)
				}
			})
		})
	}
}

// unmarkable is a queue whose metadata this program may not set.
type unmarkable struct{ queue.Manager }

func (q unmarkable) Sibling(suffix string) queue.Queue {
	return unmarkable{q.Manager.Sibling(suffix).(queue.Manager)}
}
func (q unmarkable) SetMetadata(context.Context, map[string]string) error { return unauthorized }

// Without the right to set metadata a queue that the last release has created is paired all the same.
func TestPairNeedsNoRightToMark(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		b.ok(b.east.open("orders-backlog-00").Create(b.ctx, nil))
		b.ok(must(paired.New(b.west.queue("orders"), unmarkable{b.east.open("orders")}, &paired.Options{Backlogs: 1})).Pair(b.ctx))
	})
}

func TestAPairOfAQueueWithItselfIsRefused(t *testing.T) {
	for primary, secondary := range map[string]string{"orders": "orders", "orders-backlog-07": "orders"} {
		bubble(t, func(t *testing.T) {
			west := newRegion("west")
			if _, err := paired.New(west.queue(primary), west.queue(secondary), nil); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "another account") {
				t.Errorf("got %v, want %v", err, queue.ErrInvalid)
			}
			if n := west.called(""); n != 0 {
				t.Errorf("requests: got %d, want 0", n)
			}
		})
	}
}
