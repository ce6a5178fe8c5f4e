package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// record records keys that were not handled before.
func (b *bundle) record(g *dedupe.Guard, keys ...string) {
	b.Helper()
	for _, key := range keys {
		h, err := g.Begin(b.Context(), key, "asks", time.Minute)
		if err == nil {
			err = h.Record(b.Context())
		}
		if err != nil && !errors.Is(err, listener.ErrHandled) {
			b.Error(err)
		}
	}
}

func (b *bundle) wantHandled(g *dedupe.Guard, key string, want bool) {
	b.Helper()
	h, err := g.Begin(b.Context(), key, "asks", time.Minute)
	if h != nil {
		h.Release(b.Context(), false)
	}
	if got := errors.Is(err, listener.ErrHandled); got != want || err != nil && !got {
		b.Errorf("whether %.40q was handled: got %v, want %v", key, err, want)
	}
}

func TestAKeyIsRememberedForTheRetention(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		b.wantHandled(g, "a", false)
		b.record(g, "a")
		time.Sleep(24*time.Hour - 1)
		b.wantHandled(g, "a", true)
		b.wantHandled(g, "b", false)
		time.Sleep(time.Nanosecond)
		b.wantHandled(g, "a", false)
		b.record(g, "a") // the key of a new job, of the same length of life
		time.Sleep(24*time.Hour - 1)
		b.wantHandled(g, "a", true)
	})
}

func TestTheOldestOfTooManyKeysIsForgotten(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := b.memory(&dedupe.Options{MaxKeys: 2})
		b.record(g, "a", "b", "a")
		b.wantHandled(g, "a", true)
		b.record(g, "c")
		b.wantHandled(g, "a", false)
		b.wantHandled(g, "b", true)
		b.wantHandled(g, "c", true)
	})
}

// A guard in memory remembers what a model does: the last keys, each for its retention.
func TestMemoryForgetsByCountAndByAge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		maxKeys := rapid.IntRange(1, 5).Draw(rt, "keys")
		retention := time.Duration(rapid.IntRange(1, 9).Draw(rt, "retention")) * time.Second
		var violation string
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			g := b.memory(&dedupe.Options{MaxKeys: maxKeys, Retention: retention})
			type record struct {
				key string
				at  time.Time
			}
			var model []record
			known := func(key string) bool {
				for _, r := range model {
					if r.key == key {
						return true
					}
				}
				return false
			}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				key := rapid.StringN(0, 1, 1).Draw(rt, "key")
				switch rapid.IntRange(0, 2).Draw(rt, "step") {
				case 0:
					time.Sleep(time.Second)
				case 1:
					b.record(g, key)
					if !known(key) {
						model = append(model, record{key, time.Now()})
						model = model[max(len(model)-maxKeys, 0):]
					}
				}
				for len(model) > 0 && time.Since(model[0].at) >= retention {
					model = model[1:]
				}
				h, err := g.Begin(b.Context(), key, "asks", time.Minute)
				if got := errors.Is(err, listener.ErrHandled); got != known(key) {
					violation = fmt.Sprintf("got %v, want %v of %q in %v", err, known(key), key, model)
				}
				if h != nil {
					h.Release(b.Context(), false)
				}
			}
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

// Keys come from messages, which anybody may have sent: a name of a blob has nothing of them.
func TestAnyKeyHasABlobOfItsOwn(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := b.shared(nil)
		keys := []string{"", "../../etc/passwd", "/", "a/b", "a+b", "a\x00", "A", "a", "ä", strings.Repeat("x", 70_000), strings.Repeat("x", 70_001)}
		b.record(g, keys...)
		other := b.shared(nil)
		for _, key := range keys {
			b.wantHandled(other, key, true)
			b.wantHandled(other, key+"-", false)
		}
		if got := b.keys(); len(got) != len(keys) {
			b.Errorf("got %d blobs, want %d", len(got), len(keys))
		}
		for info := range b.store.List(b.Context(), container, "") {
			if name, ok := strings.CutPrefix(info.Ref.Name, "handled/v2/"); !ok || len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
				b.Errorf("got a blob %q, want a hash", info.Ref.Name)
			}
		}
	})
}

// A guard that has just started finds in the store what it would have remembered.
func TestARecordIsRememberedForTheRetention(t *testing.T) {
	anyClock(t, func(b *bundle) {
		b.record(b.shared(nil), "a")
		time.Sleep(24*time.Hour - 1)
		b.wantHandled(b.shared(nil), "a", true)
		time.Sleep(time.Nanosecond)
		b.wantHandled(b.shared(nil), "a", false)
	})
}

// Then the age of no key is known: none is removed, and the job is handled.
func TestAStoreThatDoesNotSayItsTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.record(b.shared(nil), "a")
		time.Sleep(48 * time.Hour)
		b.store.timeless = true
		g := b.shared(nil)
		if n, err := g.Sweep(b.Context()); n != 0 || err == nil || !strings.HasPrefix(err.Error(), "sweep the keys of handled jobs: tell the age of blob://handled/") {
			b.Errorf("Sweep: got %d, %v; want an error", n, err)
		}
		if h, err := g.Begin(b.Context(), "a", "asks", time.Minute); h == nil || err == nil || errors.Is(err, listener.ErrHandled) {
			b.Errorf("Begin: got %v, %v; want the job held, and an error", h, err)
		}
		if got := b.keys(); len(got) != 1 {
			b.Errorf("got keys %q, want the one", got)
		}
	})
}

func TestASweepRemovesOldKeysOnly(t *testing.T) {
	anyClock(t, func(b *bundle) {
		g := b.shared(&dedupe.Options{Retention: time.Hour})
		b.record(g, "old", "older")
		foreign := blob.Ref{Container: container, Name: "other/blob"}
		if err := b.store.Put(b.Context(), foreign, strings.NewReader("mine"), nil); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Hour - 1)
		b.record(g, "new")
		time.Sleep(time.Nanosecond)
		if n, err := g.Sweep(b.Context()); n != 2 || err != nil {
			b.Errorf("Sweep: got %d, %v; want 2", n, err)
		}
		if got := b.keys(); len(got) != 2 || got[0] != "mine" || got[1] != "new" {
			b.Errorf("got %q left, want the new key and what is not ours", got)
		}
		b.store.before = func(context.Context, string) error { return blob.ErrUnavailable }
		time.Sleep(time.Hour)
		if n, err := g.Sweep(b.Context()); n != 0 || !errors.Is(err, blob.ErrUnavailable) {
			b.Errorf("Sweep: got %d, %v; want 0 and the store's error", n, err)
		}
		if n, err := b.memory(nil).Sweep(b.Context()); n != 0 || err != nil {
			b.Errorf("Sweep in memory: got %d, %v; want nothing", n, err)
		}
	})
}

// A key that cannot be removed does not keep the others for ever. A store that is away is not asked for each.
func TestASweepGoesOnAfterAKeyThatCannotBeRemoved(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := b.shared(&dedupe.Options{Retention: time.Hour})
		for i := range 50 {
			b.record(g, fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		first := true
		b.store.before = func(_ context.Context, op string) error {
			if op == "delete" && first {
				first = false
				return blob.ErrUnauthorized
			}
			return nil
		}
		if n, err := g.Sweep(b.Context()); n != 49 || !errors.Is(err, blob.ErrUnauthorized) || strings.Contains(err.Error(), "the first") {
			b.Errorf("one fails: got %d, %v; want all others removed, and its error", n, err)
		}
		for i := range 50 {
			b.record(g, fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		b.store.before = func(context.Context, string) error { return blob.ErrUnavailable }
		before := b.store.count("delete")
		if n, err := g.Sweep(b.Context()); n != 0 || !errors.Is(err, blob.ErrUnavailable) || b.store.count("delete") != before+10 || !strings.Contains(err.Error(), "10 could not be removed") {
			b.Errorf("away: got %d, %v after %d tries; want the error after 10", n, err, b.store.count("delete")-before)
		}
		ctx, stop := context.WithCancel(b.Context())
		b.store.before = func(context.Context, string) error { stop(); return nil }
		if n, err := g.Sweep(ctx); n > 1 || !errors.Is(err, context.Canceled) {
			b.Errorf("stopped: got %d, %v; want the end of the context", n, err)
		}
	})
}

func TestAStoreThatHangsIsNotAwaitedForLong(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.before = func(ctx context.Context, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
		g := b.shared(&dedupe.Options{Timeout: 3 * time.Second})
		begin := time.Now()
		h, err := g.Begin(b.Context(), "a", "1", time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "look up whether a was handled") || time.Since(begin) != 3*time.Second {
			b.Errorf("Begin: got %v after %v, want the deadline of the look-up after 3s", err, time.Since(begin))
		}
		if err := h.Record(b.Context()); err == nil || time.Since(begin) != 3*time.Second {
			b.Errorf("Record: got %v after %v, want an error without another wait", err, time.Since(begin))
		}
		b.wantHandled(g, "a", true) // by this process
		time.Sleep(10 * time.Second)
		b.store.before = nil // it responds again
		b.record(g, "b", "c")
		if got := b.keys(); len(got) != 2 {
			b.Errorf("got %q in the store, want what was recorded since", got)
		}
	})
}

// Of concurrent messages with one key, one holds it and the others hear that it was handled, or wait.
func TestAGuardIsSafeForConcurrentUse(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		var all sync.WaitGroup
		var held atomic.Int32
		for i := range 8 {
			all.Go(func() {
				for n := range 100 {
					h, err := g.Begin(b.Context(), fmt.Sprint(n), queue.ID(fmt.Sprint(i)), time.Minute)
					switch {
					case h != nil:
						held.Add(1)
						if err := h.Record(b.Context()); err != nil {
							b.Error(err)
						}
					case !errors.Is(err, listener.ErrHandled) && !errors.Is(err, listener.ErrInProgress):
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		if held.Load() != 100 {
			b.Errorf("got %d holds, want one of each key", held.Load())
		}
		for n := range 100 {
			b.wantHandled(g, fmt.Sprint(n), true)
		}
	})
}

func TestOptionsThatAreRefused(t *testing.T) {
	var none blob.Store
	for name, newGuard := range map[string]func() (*dedupe.Guard, error){
		"MaxKeys -1":     func() (*dedupe.Guard, error) { return dedupe.New(&dedupe.Options{MaxKeys: -1}) },
		"Retention 24ns": func() (*dedupe.Guard, error) { return dedupe.New(&dedupe.Options{Retention: 24}) },
		"Retention -1s":  func() (*dedupe.Guard, error) { return dedupe.New(&dedupe.Options{Retention: -time.Second}) },
		"Timeout 5ns": func() (*dedupe.Guard, error) {
			return dedupe.NewShared(blob.Memory(), container, &dedupe.Options{Timeout: 5})
		},
		"a store is":      func() (*dedupe.Guard, error) { return dedupe.NewShared(none, container, nil) },
		`container "A/B"`: func() (*dedupe.Guard, error) { return dedupe.NewShared(blob.Memory(), "A/B", nil) },
	} {
		if g, err := newGuard(); err == nil || g != nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, %v; want an error that names %s", g, err, name)
		}
	}
}

// process returns another process that shares the store.
type process struct {
	*bundle
	guard *dedupe.Guard
}

func (b *bundle) newProcess() process { return process{b, b.shared(nil)} }

// begin begins a job for a message with a lease of ten seconds, and wants that error.
func (p process) begin(message queue.ID, want error) listener.HeldJob {
	p.Helper()
	h, err := p.guard.Begin(p.Context(), "a", message, 10*time.Second)
	if !errors.Is(err, want) || (h == nil) != (err != nil) {
		p.Errorf("message %s: got %v, %v; want %v", message, h, err, want)
	}
	return h
}

// A job that fails leaves the record of its twin, which was handled while the store did not answer.
func TestARecordOutlivesARelease(t *testing.T) {
	bubble(t, func(b *bundle) {
		h := b.newProcess().begin("first", nil)
		b.store.before = func(_ context.Context, op string) error { return blob.ErrUnavailable }
		twin, err := b.newProcess().guard.Begin(b.Context(), "a", "second", 10*time.Second)
		if twin == nil || !errors.Is(err, blob.ErrUnavailable) {
			b.Fatalf("without a store: got %v and error %v, want a job and the store's error", twin, err)
		}
		b.store.before = nil
		if err := twin.Record(b.Context()); err != nil {
			b.Error(err)
		}
		h.Release(b.Context(), false)
		b.newProcess().begin("third", listener.ErrHandled)
	})
}

// The marker of a process that has died holds the key for its lease, and not against its own message.
func TestAMarkerIsALease(t *testing.T) {
	anyClock(t, func(b *bundle) {
		b.newProcess().begin("first", nil)
		time.Sleep(14 * time.Second) // the lease, and a margin for times that are inexact
		b.newProcess().begin("second", listener.ErrInProgress)
		time.Sleep(time.Second)
		b.newProcess().begin("second", nil)
		b.newProcess().begin("first", listener.ErrInProgress)
		b.newProcess().begin("second", nil) // delivered again
		if got := len(b.keys()); got != 2 { // and no lock
			b.Errorf("got %d blobs, want a marker and a lease", got)
		}
	})
}

// A marker holds for as long as the lease of its message is renewed, and ends with a failure.
func TestAMarkerIsExtendedAndReleased(t *testing.T) {
	bubble(t, func(b *bundle) {
		h := b.newProcess().begin("first", nil)
		for range 10 {
			time.Sleep(8 * time.Second)
			h.Extend(b.Context(), 10*time.Second)
			b.newProcess().begin("second", listener.ErrInProgress)
		}
		h.Release(b.Context(), false)
		h.Extend(b.Context(), 10*time.Second) // comes late
		again := b.newProcess().begin("second", nil)
		again.Release(b.Context(), true) // another delivery of the message may have it
		b.newProcess().begin("first", listener.ErrInProgress)
	})
}

// A marker that took the place of an ended one is released as well. What extended an earlier marker
// does not hold the key after the next one.
func TestOnlyTheNewestMarkerHolds(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.newProcess().begin("first", nil)
		time.Sleep(15 * time.Second)
		b.newProcess().begin("second", nil).Release(b.Context(), false)
		b.newProcess().begin("third", nil)
	})
	bubble(t, func(b *bundle) {
		h := b.newProcess().begin("first", nil)
		h.Extend(b.Context(), time.Hour)
		h.Release(b.Context(), false)
		time.Sleep(time.Second)
		b.newProcess().begin("second", nil)
		time.Sleep(15 * time.Second)
		b.newProcess().begin("third", nil)
	})
}

// Of two processes that find a marker whose lease has ended one gets the key, whoever is faster.
func TestAMarkerIsReplacedOnce(t *testing.T) {
	for _, slow := range []string{"create", "stat", "put"} {
		for _, apart := range []time.Duration{0, time.Second / 2, time.Second, 3 * time.Second / 2} {
			bubble(t, func(b *bundle) {
				b.newProcess().begin("first", nil)
				time.Sleep(time.Minute)
				b.store.before = func(_ context.Context, op string) error {
					if op == slow {
						time.Sleep(time.Second)
					}
					return nil
				}
				var held atomic.Int32
				var all sync.WaitGroup
				for _, message := range []queue.ID{"second", "third"} {
					p := b.newProcess()
					all.Go(func() {
						if h, _ := p.guard.Begin(b.Context(), "a", message, time.Minute); h != nil {
							held.Add(1)
						}
					})
					time.Sleep(apart)
				}
				all.Wait()
				if got := held.Load(); got != 1 {
					b.Errorf("slow %s, %v apart: %d processes hold the key, want one", slow, apart, got)
				}
			})
		}
	}
}

// A lock that a process left behind when it died is broken.
func TestALockThatIsLeftBehindIsBroken(t *testing.T) {
	anyClock(t, func(b *bundle) {
		b.newProcess().begin("first", nil)
		time.Sleep(time.Minute)
		b.store.before = func(_ context.Context, op string) error {
			if op == "put" || op == "delete" {
				return blob.ErrUnavailable
			}
			return nil
		}
		if h, err := b.newProcess().guard.Begin(b.Context(), "a", "second", time.Minute); h == nil || !errors.Is(err, blob.ErrUnavailable) {
			b.Errorf("got %v, %v; want the store's error and the job held in the process", h, err)
		}
		b.store.before = nil
		b.newProcess().begin("third", listener.ErrInProgress)
		time.Sleep(time.Minute + 1)
		b.newProcess().begin("third", listener.ErrInProgress) // and breaks it
		b.newProcess().begin("third", nil)
	})
}

// A handler that has lost its lease succeeds. Nothing that the next one does removes its record.
func TestARecordOutlivesTheHolderOfTheKey(t *testing.T) {
	bubble(t, func(b *bundle) {
		late := b.newProcess().begin("first", nil)
		time.Sleep(time.Minute)
		p := b.newProcess()
		next := p.begin("second", nil)
		next.Extend(b.Context(), 10*time.Second)
		time.Sleep(14 * time.Second)
		b.newProcess().begin("third", listener.ErrInProgress)
		b.newProcess().begin("third", listener.ErrInProgress)
		if err := late.Record(b.Context()); err != nil {
			b.Error(err)
		}
		next.Extend(b.Context(), 10*time.Second)
		next.Release(b.Context(), false)
		b.newProcess().begin("third", listener.ErrHandled)
	})
}

// Few twins of a job wait in their slots, for a moment, and the lease of the job bounds that too.
func TestFewTwinsWaitInAProcess(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		p := process{b, g}
		p.begin("first", nil)
		var all sync.WaitGroup
		var waited atomic.Int32
		for i := range 10 {
			all.Go(func() {
				begin := time.Now()
				p.begin(queue.ID(fmt.Sprint(i)), listener.ErrInProgress)
				if time.Since(begin) > 0 {
					waited.Add(1)
				}
			})
		}
		all.Wait()
		begin := time.Now()
		p.begin("late", listener.ErrInProgress)
		if waited.Load() != 4 || time.Since(begin) != 0 {
			b.Errorf("got %d twins that waited, and a late one for %v; want 4 and none", waited.Load(), time.Since(begin))
		}
		time.Sleep(15 * time.Second)
		p.begin("next", nil)
	})
}
