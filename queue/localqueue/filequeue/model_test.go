package filequeue

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// twins are an in-memory engine and one over a file, whose results must be equal. The one over the
// file is sometimes closed and reopened, or crashes.
type twins struct {
	dir          string
	memory, file *localqueue.Engine
	leases       []pair // all leases returned
	crashes      bool   // Close of the one over the file is a crash
}

// crashing is a store that, after a crash, is abandoned instead of closed.
type crashing struct {
	*store
	t       tester
	crashes *bool
}

func (c crashing) Close() error {
	if !*c.crashes {
		return c.store.Close()
	}
	c.abandon(c.t)
	return nil
}

// pair is one lease on both engines.
type pair struct{ memory, file queue.Lease }

func (w *twins) open(t tester) {
	t.Helper()
	s, err := openStore(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Found(); f.Damaged > 0 {
		t.Fatalf("Found: got damage %v, want none", f.Damage)
	}
	if w.file, err = engineOver(crashing{s, t, &w.crashes}, nil); err != nil {
		t.Fatal(err)
	}
}

func (w *twins) close(t tester) {
	t.Helper()
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
}

// on returns the two queues of a name.
func (w *twins) on(name string) (memory, file queue.Manager) {
	n := queue.Name{Account: account, Queue: name}
	return w.memory.Queue(n), w.file.Queue(n)
}

// kinds are the errors that must be equal on both.
var kinds = []error{queue.ErrQueueMissing, queue.ErrQueueExists, queue.ErrQueueBeingDeleted, queue.ErrReceiptMismatch, queue.ErrMessageGone, queue.ErrInvalid}

func sameErrors(t tester, a, b error) {
	t.Helper()
	if (a == nil) != (b == nil) {
		t.Fatalf("memory: %v; file: %v", a, b)
	}
	for _, kind := range kinds {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			t.Fatalf("memory: %v; file: %v", a, b)
		}
	}
}

// sameMessages compares everything except ids and receipts, which differ.
func (w *twins) sameMessages(t tester, a, b []queue.Message) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("memory has %d messages, file %d", len(a), len(b))
	}
	for i := range a {
		if a[i].Receipt != "" {
			w.leases = append(w.leases, pair{a[i].Lease, b[i].Lease})
		}
		a[i].ID, a[i].Receipt, b[i].ID, b[i].Receipt = "", "", "", ""
		if a[i] != b[i] {
			t.Fatalf("memory: %+v; file: %+v", a[i], b[i])
		}
	}
}

// TestAgainstMemory runs random operations on both, on simulated time.
func TestAgainstMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	rapid.Check(t, func(r *rapid.T) {
		var thrown any
		dir := memoryDirectory(t)
		defer func() { _ = os.RemoveAll(dir) }()
		synctest.Test(t, func(*testing.T) {
			w := &twins{dir: dir, memory: must(localqueue.New(nil))}
			w.open(r)
			// rapid's panic that ends a run must be raised on its own goroutine.
			defer func() { thrown = recover(); _ = w.file.Close() }()
			w.run(r)
		})
		if thrown != nil {
			panic(thrown)
		}
	})
}

func (w *twins) run(t *rapid.T) {
	ctx := context.Background()
	names := rapid.SampledFrom([]string{"first", "second"})
	text := rapid.StringMatching(`[a-z]{0,3}`)
	visibility := rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second, time.Hour})
	lease := func(t *rapid.T) pair {
		if len(w.leases) == 0 {
			t.Skip("no lease yet")
		}
		return rapid.SampledFrom(w.leases).Draw(t, "lease")
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			for _, name := range []string{"first", "second"} {
				memory, file := w.on(name)
				a, errA := memory.Properties(ctx)
				b, errB := file.Properties(ctx)
				sameErrors(t, errA, errB)
				if a.Depth != b.Depth || len(a.Metadata) != len(b.Metadata) || a.Metadata["k"] != b.Metadata["k"] {
					t.Fatalf("memory: %+v; file: %+v", a, b)
				}
			}
		},
		"open again": func(t *rapid.T) {
			w.crashes = rapid.Bool().Draw(t, "crash")
			w.close(t)
			w.open(t)
		},
		"time passes": func(t *rapid.T) { time.Sleep(visibility.Draw(t, "pause")) },
		"create": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			metadata := map[string]string{"k": text.Draw(t, "metadata")}
			sameErrors(t, memory.Create(ctx, metadata), file.Create(ctx, metadata))
		},
		"drop": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "one in six") > 0 {
				return
			}
			memory, file := w.on(names.Draw(t, "name"))
			sameErrors(t, memory.Drop(ctx), file.Drop(ctx))
		},
		"clear": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "one in six") > 0 {
				return
			}
			memory, file := w.on(names.Draw(t, "name"))
			sameErrors(t, memory.Clear(ctx), file.Clear(ctx))
		},
		"enqueue": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			s, o := text.Draw(t, "text"), &queue.EnqueueOptions{Delay: visibility.Draw(t, "delay")}
			if rapid.Bool().Draw(t, "forever") {
				o.TTL = queue.Forever
			} else {
				o.TTL = o.Delay + 7*time.Second
			}
			a, errA := memory.Enqueue(ctx, s, o)
			b, errB := file.Enqueue(ctx, s, o)
			sameErrors(t, errA, errB)
			if errA == nil {
				w.sameMessages(t, []queue.Message{a}, []queue.Message{b})
			}
		},
		"dequeue": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			n, v := rapid.IntRange(1, 4).Draw(t, "n"), max(time.Second, visibility.Draw(t, "visibility"))
			a, errA := memory.Dequeue(ctx, n, v)
			b, errB := file.Dequeue(ctx, n, v)
			sameErrors(t, errA, errB)
			w.sameMessages(t, a, b)
		},
		"peek": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			a, errA := memory.Peek(ctx, queue.MaxBatch)
			b, errB := file.Peek(ctx, queue.MaxBatch)
			sameErrors(t, errA, errB)
			w.sameMessages(t, a, b)
		},
		"update": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			l, s, v := lease(t), text.Draw(t, "text"), visibility.Draw(t, "visibility")
			a, errA := memory.Update(ctx, l.memory, s, v)
			b, errB := file.Update(ctx, l.file, s, v)
			w.sameLeases(t, a, b, errA, errB)
		},
		"extend": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			l, v := lease(t), visibility.Draw(t, "visibility")
			a, errA := memory.(localengine.Queue).Extend(ctx, l.memory, v)
			b, errB := file.(localengine.Queue).Extend(ctx, l.file, v)
			w.sameLeases(t, a, b, errA, errB)
		},
		"delete": func(t *rapid.T) {
			memory, file := w.on(names.Draw(t, "name"))
			l := lease(t)
			sameErrors(t, memory.Delete(ctx, l.memory), file.Delete(ctx, l.file))
		},
	})
	w.close(t)
	w.open(t)
	w.sameFiles(t)
}

func (w *twins) sameLeases(t tester, a, b queue.Lease, errA, errB error) {
	t.Helper()
	sameErrors(t, errA, errB)
	if errA != nil {
		return
	}
	if !a.Until.Equal(b.Until) {
		t.Fatalf("memory: until %v; file: until %v", a.Until, b.Until)
	}
	w.leases = append(w.leases, pair{a, b})
}

// sameFiles compares all remaining messages, including hidden ones, once they are
// visible.
func (w *twins) sameFiles(t *rapid.T) {
	time.Sleep(2 * time.Hour)
	for _, name := range []string{"first", "second"} {
		memory, file := w.on(name)
		a, errA := memory.Peek(context.Background(), queue.MaxBatch)
		b, errB := file.Peek(context.Background(), queue.MaxBatch)
		sameErrors(t, errA, errB)
		w.sameMessages(t, a, b)
	}
	order := func(a, b pair) int { return cmp.Compare(a.file.Receipt, b.file.Receipt) }
	slices.SortFunc(w.leases, order)
	distinct := slices.CompactFunc(slices.Clone(w.leases), func(a, b pair) bool { return order(a, b) == 0 })
	if len(distinct) != len(w.leases) {
		t.Fatalf("%d receipts were issued twice", len(w.leases)-len(distinct))
	}
}
