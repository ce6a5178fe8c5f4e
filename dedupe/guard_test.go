package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dedupe"
)

func (b *bundle) record(g *dedupe.Guard, keys ...string) {
	b.Helper()
	for _, key := range keys {
		if err := g.Record(b.Context(), key); err != nil {
			b.Error(err)
		}
	}
}

func (b *bundle) wantHandled(g *dedupe.Guard, key string, want bool) {
	b.Helper()
	if got, err := g.Handled(b.Context(), key); got != want || err != nil {
		b.Errorf("Handled of %.40q: got %v, %v; want %v", key, got, err, want)
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
				if got, err := g.Handled(b.Context(), key); got != known(key) || err != nil {
					violation = fmt.Sprintf("got %v, %v; want %v of %q in %v", got, err, known(key), key, model)
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
			if name, ok := strings.CutPrefix(info.Ref.Name, "handled/"); !ok || len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
				b.Errorf("got a blob %q, want a hash", info.Ref.Name)
			}
		}
	})
}

func TestASweepRemovesOldKeysOnly(t *testing.T) {
	bubble(t, func(b *bundle) {
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
		if n, err := g.Sweep(b.Context()); n != 49 || !errors.Is(err, blob.ErrUnauthorized) {
			b.Errorf("one fails: got %d, %v; want all others removed, and its error", n, err)
		}
		for i := range 50 {
			b.record(g, fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		b.store.before = func(context.Context, string) error { return blob.ErrUnavailable }
		before := b.store.count("delete")
		if n, err := g.Sweep(b.Context()); n != 0 || !errors.Is(err, blob.ErrUnavailable) || b.store.count("delete") != before+10 {
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
		if _, err := g.Handled(b.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
			b.Errorf("Handled: got %v after %v, want the deadline after 3s", err, time.Since(begin))
		}
		begin = time.Now()
		if err := g.Record(b.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
			b.Errorf("Record: got %v after %v, want the deadline after 3s", err, time.Since(begin))
		}
		b.wantHandled(g, "a", true) // by this process
	})
}

func TestAGuardIsSafeForConcurrentUse(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 100 {
					key := fmt.Sprint(n, n%2*i)
					b.record(g, key)
					b.wantHandled(g, key, true)
				}
			})
		}
		all.Wait()
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
