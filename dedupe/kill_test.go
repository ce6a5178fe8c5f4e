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
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// killer kills a process at its nth step of a kind, before or after that takes effect. A step is a
// request to the queue or the store that does something, or a handler.
type killer struct {
	kind  string // empty for a process that is not killed
	after bool

	mu     sync.Mutex
	until  int  // steps of the kind; guarded by mu
	killed bool // guarded by mu
}

var errKilled = errors.New("the process was killed")

func (k *killer) step(kind string, act func() error) error {
	k.mu.Lock()
	if k.killed {
		k.mu.Unlock()
		return errKilled
	}
	if kind == k.kind {
		k.until--
		k.killed = k.until == 0
	}
	now := k.killed
	k.mu.Unlock()
	if now && !k.after {
		return errKilled
	}
	err := act()
	if k.dead() { // also if another step was the last while this one was under way
		return errKilled
	}
	return err
}

func (k *killer) dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// mortalQueue is the queue of a process that is killed. It knows whose messages are deleted.
type mortalQueue struct {
	queue.Queue
	killer  *killer
	deleted func(queue.ID) // called before a message is deleted
}

func (q *mortalQueue) Sibling(suffix string) queue.Queue {
	return &mortalQueue{q.Queue.Sibling(suffix), q.killer, q.deleted}
}

func (q *mortalQueue) Properties(ctx context.Context) (queue.Properties, error) {
	if q.killer.dead() {
		return queue.Properties{}, errKilled
	}
	return q.Queue.Properties(ctx)
}

// Dequeue is a step only if it brings something: polls of an empty queue do nothing.
func (q *mortalQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.killer.dead() {
		return nil, errKilled
	}
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if err == nil && len(batch) > 0 {
		err = q.killer.step("dequeue", func() error { return nil })
	}
	if err != nil {
		return nil, err
	}
	return batch, nil
}

func (q *mortalQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	err = q.killer.step("update", func() error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, err
}

func (q *mortalQueue) Delete(ctx context.Context, l queue.Lease) error {
	return q.killer.step("delete", func() error {
		q.deleted(l.ID)
		return q.Queue.Delete(ctx, l)
	})
}

// mortalStore is the store of a process that is killed.
type mortalStore struct {
	blob.Store
	killer *killer
}

func (s *mortalStore) Stat(ctx context.Context, ref blob.Ref) (info blob.Info, err error) {
	err = s.killer.step("look up", func() error { info, err = s.Store.Stat(ctx, ref); return err })
	return info, err
}

func (s *mortalStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.killer.step("record", func() error { return s.Store.Put(ctx, ref, r, o) })
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
func (b *bundle) process(k *killer, l *ledger, d time.Duration) {
	b.Helper()
	work := *b
	work.queue = &mortalQueue{b.queue, k, l.deleted}
	work.store = &store{Store: &mortalStore{b.store.Store, k}}
	o, _ := options(work.shared(nil))
	work.run(o, func(_ context.Context, m *listener.Message[job]) error {
		if m.Body.Name == "fails once" && m.Attempt == 1 {
			return k.step("failing handler", func() error { return errors.New("broken") })
		}
		return k.step("handler", func() error {
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
	for _, kind := range []string{"dequeue", "look up", "handler", "failing handler", "record", "update", "delete"} {
		for _, after := range []bool{false, true} {
			for n, killed := 1, true; killed; n++ {
				name := fmt.Sprintf("%s %d, after it: %v", kind, n, after)
				bubble(t, func(b *bundle) { killed = b.kill(&killer{kind: kind, until: n, after: after}, name) })
				if !killed && n == 1 {
					t.Errorf("no process was killed at the step %q", kind)
				}
			}
		}
	}
}

// kill runs a process with the killer and then another, and reports whether the first was killed.
func (b *bundle) kill(k *killer, when string) (killed bool) {
	b.Helper()
	l := &ledger{of: map[queue.ID]string{}, done: map[string]int{}}
	names := []string{"first", "fails once", "last"}
	for range 2 {
		for _, name := range names {
			l.of[b.send(name, producer.SendOptions{Dedupe: name}).ID] = name
		}
	}
	b.process(k, l, 5*time.Minute)
	killed = k.dead()
	b.process(&killer{}, l, 10*time.Minute)
	repeated := 0
	for _, name := range names {
		if l.done[name] == 0 {
			b.Errorf("%s: job %s was not handled", when, name)
		}
		repeated += l.done[name] - 1
	}
	between := k.kind == "handler" && k.after || k.kind == "record" && !k.after
	if repeated > 1 || repeated == 1 && (!killed || !between) {
		b.Errorf("%s: got runs %v, want each job handled once, or one twice after a kill before its record", when, l.done)
	}
	for _, v := range l.violations {
		b.Errorf("%s: %s", when, v)
	}
	b.wantDepth(0)
	return killed
}
