package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// watchedQueue knows whose messages are deleted.
type watchedQueue struct {
	queue.Queue
	deleted func(queue.ID) // called before a message is deleted
}

func (q watchedQueue) Delete(ctx context.Context, l queue.Lease) error {
	q.deleted(l.ID)
	return q.Queue.Delete(ctx, l)
}

// mortalStore is the store of a process that is killed.
type mortalStore struct {
	blob.Store
	killer *killtest.Killer
}

func (s *mortalStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.killer.Step("claim", func() error { return s.Store.Create(ctx, ref, r, o) })
}

func (s *mortalStore) Stat(ctx context.Context, ref blob.Ref) (info blob.Info, err error) {
	err = s.killer.Step("look up", func() error { info, err = s.Store.Stat(ctx, ref); return err })
	return info, err
}

func (s *mortalStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.killer.Step("record", func() error { return s.Store.Put(ctx, ref, r, o) })
}

func (s *mortalStore) Delete(ctx context.Context, ref blob.Ref) error {
	return s.killer.Step("release", func() error { return s.Store.Delete(ctx, ref) })
}

// ledger is what is known of each job, by its name.
type ledger struct {
	mu         sync.Mutex
	of         map[queue.ID]string // the job of each message; set before use
	done       map[string]int      // times its handler succeeded; guarded by mu
	violations []string            // guarded by mu
}

// deleted notes a message that is being deleted, which its job must have been handled for.
func (l *ledger) deleted(id queue.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done[l.of[id]] == 0 {
		l.violations = append(l.violations, fmt.Sprintf("a message of job %s was deleted unhandled", l.of[id]))
	}
}

// process runs a worker with a shared guard for a while.
func (b *bundle) process(k *killtest.Killer, l *ledger, d time.Duration) {
	b.Helper()
	work := *b
	work.queue = &killtest.Queue{Queue: watchedQueue{b.queue, l.deleted}, Killer: k}
	work.store = &store{Store: &mortalStore{b.store.Store, k}}
	o, _ := options(work.shared(nil))
	work.run(o, func(_ context.Context, m *listener.Message[job]) error {
		if m.Body.Name == "fails once" && m.Attempt == 1 {
			return k.Step("failing handler", func() error { return errors.New("broken") })
		}
		return k.Step("handler", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done[m.Body.Name]++
			return nil
		})
	}, d)
}

// Kills between every two steps: a message is only deleted when its job was handled, every job is handled,
// and only a kill between a handler's success and its record handles one twice.
func TestNoKillDeletesAJobThatWasNotHandled(t *testing.T) {
	steps := []string{"dequeue", "claim", "handler", "failing handler", "record", "release", "update", "delete"}
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
	l := &ledger{of: map[queue.ID]string{}, done: map[string]int{}}
	names := []string{"first", "fails once", "last"}
	for range 2 {
		for _, name := range names {
			l.of[b.send(name, producer.SendOptions{DedupeKey: name}).ID] = name
		}
	}
	b.process(k, l, 5*time.Minute)
	killed = k.Dead()
	b.process(&killtest.Killer{}, l, 10*time.Minute)
	repeated := 0
	for _, name := range names {
		if l.done[name] == 0 {
			b.Errorf("%s: job %s was not handled", when, name)
		}
		repeated += l.done[name] - 1
	}
	between := k.Kind == "handler" && k.After || k.Kind == "record" && !k.After
	if repeated > 1 || repeated == 1 && (!killed || !between) {
		b.Errorf("%s: got runs %v, want each job handled once, or one twice after a kill before its record", when, l.done)
	}
	for _, v := range l.violations {
		b.Errorf("%s: %s", when, v)
	}
	b.wantDepth(0)
	return killed
}
