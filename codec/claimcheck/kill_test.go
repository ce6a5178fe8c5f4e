package claimcheck_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// mortalStore is the store of a process that is killed.
type mortalStore struct {
	blob.Store
	killer *killtest.Killer
}

func (s *mortalStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	what := "put of a body"
	if o != nil {
		what = "tombstone"
	}
	return s.killer.Step(what, func() error { return s.Store.Put(ctx, ref, r, o) })
}

func (s *mortalStore) Open(ctx context.Context, ref blob.Ref) (r *blob.Reader, err error) {
	err = s.killer.Step("open", func() error { r, err = s.Store.Open(ctx, ref); return err })
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s *mortalStore) Delete(ctx context.Context, ref blob.Ref) error {
	return s.killer.Step("sweep", func() error { return s.Store.Delete(ctx, ref) })
}

func (s *mortalStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	if s.killer.Dead() {
		return func(yield func(blob.Info, error) bool) { yield(blob.Info{}, killtest.ErrKilled) }
	}
	return s.Store.List(ctx, container, prefix)
}

// ledger is what is known of each job, by its name.
type ledger struct {
	mu       sync.Mutex
	accepted map[string]bool // its Send returned nil; guarded by mu
	done     map[string]int  // times its handler succeeded; guarded by mu
	repaired bool            // whether jobs that fail no longer do; guarded by mu
	gone     []string        // poisoned because of their bodies; guarded by mu
}

// The jobs of the test, all with large bodies but the last.
var names = []string{"plain", "fails", "fails once", "saves", "small"}

// process is a process on the queue and the store of the bundle. It sends the jobs, if it is the
// first, works on them, redrives what became poison, works on that, and sweeps.
func (b *bundle) process(k *killtest.Killer, l *ledger, first bool) {
	b.Helper()
	q, claims := &killtest.Queue{Queue: b.queue, Killer: k}, b.newClaims(&mortalStore{b.blobs, k})
	if first {
		p := producer.New(q, &producer.Options[job]{Claims: claims})
		for _, name := range names {
			text := large
			if name == "small" {
				text = ""
			}
			_, err := p.Send(b.Context(), job{name, text}, &producer.SendOptions{JobID: name})
			l.mu.Lock()
			l.accepted[name] = err == nil
			l.mu.Unlock()
		}
	}
	b.work(q, claims, k, l)
	l.mu.Lock()
	l.repaired = true
	l.mu.Unlock()
	_, err := poison.Redrive(b.Context(), q, nil)
	if err != nil && !k.Dead() && !errors.Is(err, queue.ErrQueueMissing) {
		b.Error(err)
	}
	b.work(q, claims, k, l)
	time.Sleep(25 * time.Hour) // over the retention
	if _, err := claims.Sweep(b.Context()); err != nil && !k.Dead() {
		b.Error(err)
	}
}

// work runs a listener for a while.
func (b *bundle) work(q queue.Queue, claims listener.Claims, k *killtest.Killer, l *ledger) {
	b.Helper()
	o := options(claims)
	o.Observer.Poisoned = func(d listener.Delivery, reason listener.PoisonReason, _ error) {
		if reason != poison.ReasonAttempts {
			l.mu.Lock()
			l.gone = append(l.gone, d.Job+": "+string(reason))
			l.mu.Unlock()
		}
	}
	work := *b
	work.queue = q
	work.run(o, func(ctx context.Context, m *listener.Message[job]) error {
		if m.Body.Name == "saves" && m.Body.Text == large {
			if err := m.Save(ctx, job{m.Body.Name, large + "!"}); err != nil {
				return err
			}
		}
		l.mu.Lock()
		repaired := l.repaired
		l.mu.Unlock()
		if m.Body.Name == "fails" && !repaired || m.Body.Name == "fails once" && m.Attempt == 1 {
			return k.Step("failing handler", func() error { return errors.New("broken") })
		}
		return k.Step("handler", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done[m.Body.Name]++
			return nil
		})
	}, 10*time.Minute)
}

// check opens the body of every message, in the queue and in the poison queue. It may be gone or a
// tombstone only if the job was done.
func (b *bundle) check(l *ledger, when string) {
	b.Helper()
	claims := b.newClaims(b.blobs)
	for _, q := range []queue.Queue{b.queue, b.queue.Sibling(poison.Suffix)} {
		for _, text := range b.texts(q) {
			if r, err := poison.ParseRecord(text); err == nil {
				text = r.Text
			}
			head := b.head(text)
			if head.Claim == "" {
				continue
			}
			_, err := claims.Open(b.Context(), head.Claim)
			done := l.done[head.ID] > 0
			if err == nil || done && errors.Is(err, envelope.ErrClaimSettled) {
				continue
			}
			b.Errorf("%s: job %s, done %v, in %v: %v", when, head.ID, done, q.Name(), err)
		}
	}
}

// steps are the kinds of steps.
var steps = []string{
	"put of a body", "enqueue", "dequeue", "open", "handler", "failing handler", "update", "delete", "tombstone", "create", "sweep",
}

// O-05: a process that is killed at any step, before or after that took effect, leaves every message
// with its body. The next process does every job that was accepted, and what stays stored is what
// the dead had in hand.
func TestNoKillTakesABodyThatAMessageNeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, kind := range killtest.Every(steps, func(k *killtest.Killer) (killed bool) {
		bubble(t, func(b *bundle) { killed = b.kill(k, fmt.Sprintf("%s %d, after it: %v", k.Kind, k.Nth, k.After)) })
		return killed
	}) {
		t.Errorf("no process was killed at the step %q", kind)
	}
}

// kill runs a process with the killer and then another, and reports whether the first was killed.
func (b *bundle) kill(k *killtest.Killer, when string) (killed bool) {
	b.Helper()
	l := &ledger{accepted: map[string]bool{}, done: map[string]int{}}
	b.process(k, l, true)
	killed = k.Dead()
	time.Sleep(time.Hour) // the leases of the dead end
	b.check(l, when)
	b.process(&killtest.Killer{}, l, false)
	for _, name := range names {
		if l.accepted[name] && l.done[name] == 0 {
			b.Errorf("%s: job %s was accepted and not done", when, name)
		}
	}
	if left, buried := b.depth(b.queue), b.depth(b.queue.Sibling(poison.Suffix)); left+buried != 0 || len(l.gone) != 0 {
		b.Errorf("%s: got %d messages and %d poisoned left, bodies gone %q; want none", when, left, buried, l.gone)
	}
	// A dead process had two jobs in hand, and settled two more; a save has two bodies.
	if waiting, all := b.stored(); waiting > 5 || all != waiting || !killed && waiting != 0 {
		b.Errorf("%s: got %d orphans and %d tombstones", when, waiting, all-waiting)
	}
	if _, err := b.claims.Purge(b.Context(), time.Hour); err != nil {
		b.Error(err)
	}
	b.wantStored(0, 0)
	return killed
}
