package claimcheck_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// lostDeletes is a queue whose first delete takes effect, and whose response is lost after a while.
type lostDeletes struct {
	queue.Queue
	after time.Duration
	lost  bool
}

func (q *lostDeletes) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Queue.Delete(ctx, l)
	if q.lost || err != nil {
		return err
	}
	q.lost = true
	time.Sleep(q.after)
	return &queue.Error{Op: "delete", Kind: queue.ErrOutcomeUnknown}
}

// O-05: a repeated delete finds the message gone. While the lease lasts nobody else can have deleted it;
// later another worker may have moved it to the poison queue, with the same body.
func TestAMessageThatIsGoneWasDeletedOnlyWhileTheLeaseLasts(t *testing.T) {
	for after, tombstones := range map[time.Duration]int{time.Second: 1, 11 * time.Second: 0} {
		bubble(t, func(b *bundle) {
			b.send(job{"done", large})
			b.queue = &lostDeletes{Queue: b.queue, after: after}
			state := b.run(options(b.claims), (&handled{}).handle, time.Minute)
			if state.Outcomes[listener.Deleted] != 1 {
				b.Errorf("after %v: got state %+v, want a success", after, state)
			}
			b.wantStored(1-tombstones, tombstones)
		})
	}
}

func TestADiscardedMessageNeedsNoBody(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"unwanted", large})
		state := b.run(options(b.claims), (&handled{err: listener.Discard(nil)}).handle, time.Minute)
		if state.Outcomes[listener.Discarded] != 1 {
			b.Errorf("got state %+v, want a discard", state)
		}
		b.wantStored(0, 1)
	})
}

// The lease is lost during a download that does not end with its context. Its slot is given to
// another message, and its handler does not start.
func TestALeaseLostDuringTheDownloadStartsNoHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		sent := b.send(job{"lost", large})
		b.send(job{"next", ""})
		b.store.before = func(op string) error {
			if op == "open" {
				time.Sleep(4 * time.Minute) // less than Options.Timeout of the claims
			}
			return nil
		}
		o := options(slow{b.claims})
		o.Concurrency, o.Lease.GiveUp = 1, true
		h := &handled{}
		var failures []error
		var mu sync.Mutex
		o.OnError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		}
		go func() {
			time.Sleep(time.Second) // another program deletes it
			if err := b.queue.(queue.Manager).Clear(b.Context()); err != nil {
				b.Error(err)
			}
			if _, err := producer.New[job](b.queue, nil).Send(b.Context(), job{Name: "next"}, nil); err != nil {
				b.Error(err)
			}
		}()
		state := b.run(o, h.handle, 30*time.Minute)
		if !slices.Equal(h.jobs, []job{{Name: "next"}}) || state.Outcomes[listener.Lost] != 1 || state.Outcomes[listener.Deleted] != 1 || state.Running != 0 {
			b.Errorf("got runs %v, state %+v; want only the next job", h.jobs, state)
		}
		stuck := (*listener.StuckError)(nil)
		if !slices.ContainsFunc(failures, func(err error) bool { return errors.As(err, &stuck) }) || stuck.ID != sent.ID || !errors.Is(stuck, listener.ErrLeaseLost) {
			b.Errorf("got errors %v, want a StuckError for the download", failures)
		}
		b.wantStored(1, 0)
	})
}

// slow are claims that do not watch their context.
type slow struct{ listener.Claims }

func (s slow) Open(_ context.Context, claim string) ([]byte, error) {
	return s.Claims.Open(context.Background(), claim)
}

// An update that was refused may have taken effect, if the network delivered it twice: both bodies
// stay.
func TestASaveThatIsRefusedKeepsBothBodies(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"lost", large})
		b.run(options(b.claims), func(ctx context.Context, m *listener.Message[job]) error {
			if err := b.queue.(queue.Manager).Clear(ctx); err != nil {
				b.Error(err)
			}
			if err := m.Save(ctx, job{m.Body.Name, large + "!"}); !errors.Is(err, listener.ErrLeaseLost) {
				b.Errorf("got error %v, want ErrLeaseLost", err)
			}
			return nil
		}, time.Minute)
		b.wantStored(2, 0)
	})
}

// Without claims, and in a message without an envelope, a body that does not fit is an error as
// ever.
func TestASaveThatCannotBeStoredIsTooLarge(t *testing.T) {
	for _, format := range []codec.Format{codec.Auto, codec.Plain} {
		bubble(t, func(b *bundle) {
			if _, err := producer.New(b.queue, &producer.Options[job]{Format: format}).Send(b.Context(), job{"small", ""}, nil); err != nil {
				b.Fatal(err)
			}
			o := options(b.claims)
			if format == codec.Auto {
				o.Claims = nil
			}
			b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
				if err := m.Save(ctx, job{Text: string(make([]byte, queue.MaxText+1))}); !errors.Is(err, queue.ErrTooLarge) {
					b.Errorf("%v: got error %v, want ErrTooLarge", format, err)
				}
				return nil
			}, time.Minute)
			b.wantStored(0, 0)
		})
	}
}

// A stored body that is no job: the lease that was tracked for the download is settled.
func TestAStoredBodyThatCannotBeDecodedIsPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		p := producer.New(b.queue, &producer.Options[string]{Codec: codec.Text(), Claims: b.claims})
		if _, err := p.Send(b.Context(), large, nil); err != nil {
			b.Fatal(err)
		}
		h := &handled{}
		state := b.run(options(b.claims), h.handle, time.Minute)
		texts := b.texts(b.queue.Sibling(poison.Suffix))
		if len(h.jobs) != 0 || len(texts) != 1 || state.Outcomes[listener.Poisoned] != 1 || state.Running != 0 {
			b.Fatalf("got %d runs, %d poisoned, state %+v; want poison", len(h.jobs), len(texts), state)
		}
		if r, err := poison.ParseRecord(texts[0]); err != nil || r.Reason != poison.ReasonUndecodable {
			b.Errorf("got reason %q, %v; want undecodable", r.Reason, err)
		}
		b.wantStored(1, 0)
	})
}
