package perkey_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// sendGroup sends jobs numbered from 0 in one message.
func (b *bundle) sendGroup(key string, n int, takes time.Duration) {
	b.Helper()
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{i, takes}
	}
	if _, err := producer.New[job](b.queue, nil).SendGroup(b.Context(), jobs, &producer.SendOptions{Key: key}); err != nil {
		b.Fatal(err)
	}
}

// The items of a group have the key of their message. Two groups and a job of one key take turns, item by item,
// whether items of a group may run at once or not.
func TestItemsOfGroupsTakeTurns(t *testing.T) {
	for name, way := range map[string]func(*bundle) listener.Handler[job]{
		"plain":           func(b *bundle) listener.Handler[job] { return b.limited(b.handle) },
		"inside EachItem": func(b *bundle) listener.Handler[job] { return listener.EachItem(b.limited(b.handle), 3) },
	} {
		for _, takes := range []time.Duration{0, 100 * time.Millisecond, 20 * time.Second} {
			bubble(t, nil, func(b *bundle) {
				b.sendGroup("a", 5, takes)
				b.sendGroup("a", 5, takes)
				b.send("a", 0, takes)
				l, stop := b.start(way(b))
				b.until(11, time.Hour)
				stop()
				b.wantFree()
				b.wantEmpty(l)
				if b.count("a") != 11 {
					t.Errorf("%s, %v: got %d items and jobs done, want 11", name, takes, b.count("a"))
				}
			})
		}
	}
}

// EachItem inside of the middleware would run the items of a key at once: it fails before any handler
// runs, for jobs in groups and others, and says what to write instead.
func TestEachInsideOfTheMiddlewareFails(t *testing.T) {
	for name, grouped := range map[string]bool{"groups": true, "single jobs": false} {
		for key, option := range map[string]string{"with a key": "a", "without a key": ""} {
			bubble(t, nil, func(b *bundle) {
				if grouped {
					b.sendGroup(option, 8, time.Second)
				} else {
					b.send(option, 0, time.Second)
				}
				var reported string
				b.options.OnError = func(err error) { reported = err.Error() }
				l, stop := b.start(b.limited(listener.EachItem(b.handle, 8)))
				advance(30 * time.Second)
				stop()
				if st := l.State(); b.count("") != 0 || b.atOnce != 0 || st.Outcomes[listener.Retried] == 0 || st.Outcomes[listener.Deleted] != 0 {
					t.Errorf("%s %s: got %d jobs done, %d handlers at once, %d retried; want 0, 0, some", name, key, b.count(""), b.atOnce, st.Outcomes[listener.Retried])
				}
				if !strings.Contains(reported, "listener.EachItem(perkey.Wrap(keys, handle), n)") {
					t.Errorf("%s %s: got error %q, want the right order in it", name, key, reported)
				}
				b.wantFree()
			})
		}
	}
}

// A handler with a key beside one made by EachItem is not the wrong order. Nor is a handler with a key that
// runs a listener whose handler is made by EachItem.
func TestEachBesideTheMiddleware(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.send("a", 0, time.Second)
		inner := b.newQueue("inner")
		first := b.limited(func(ctx context.Context, _ *listener.Message[job]) error {
			if _, err := producer.New[job](inner, nil).Send(ctx, job{1, time.Second}, nil); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return listener.New(inner, listener.EachItem(b.handle, 8), &listener.Options[job]{Logger: b.options.Logger}).Run(ctx)
		})
		l, stop := b.start(listener.All(first, listener.EachItem(b.handle, 8)))
		b.until(2, time.Minute)
		stop()
		b.wantFree()
		b.wantEmpty(l)
	})
}

// Jobs of two kinds share a key, and so do those of two queues, if their handlers share the Keys.
func TestKindsAndQueuesShareKeys(t *testing.T) {
	type other struct{ Takes time.Duration }
	bubble(t, nil, func(b *bundle) {
		jobs, others := kinds.Kind[job]{Name: "job"}, kinds.Kind[other]{Name: "other"}
		second := b.newQueue("second")
		for i := range 10 {
			o := &producer.SendOptions{Key: fmt.Sprint("key ", i%2)}
			_, err1 := jobs.Producer(b.queue, nil).Send(b.Context(), job{i, time.Second / 3}, o)
			_, err2 := others.Producer(b.queue, nil).Send(b.Context(), other{time.Second / 3}, o)
			_, err3 := producer.New[job](second, nil).Send(b.Context(), job{100 + i, time.Second / 3}, o)
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
		}
		handleOther := func(ctx context.Context, m *listener.Message[other]) error {
			one := &listener.Message[job]{Delivery: m.Delivery, Body: job{200, m.Body.Takes}}
			return b.handle(ctx, one)
		}
		o := &listener.Options[any]{Logger: b.options.Logger}
		stop1 := b.run(must(listener.NewKinds(b.queue, []listener.Kind{
			jobs.Handle(b.limited(b.handle), nil),
			others.Handle(perkey.Wrap(b.keys, handleOther), nil),
		}, o)))
		stop2 := b.run(listener.New(second, b.limited(b.handle), b.options))
		b.until(30, time.Minute)
		stop1()
		stop2()
		b.wantFree()
		if b.count("key 0") != 15 || b.count("key 1") != 15 {
			t.Errorf("got %d and %d done, want 15 each", b.count("key 0"), b.count("key 1"))
		}
	})
}

// A flood of one key in a member of a pool leaves the slots of the pool to the other members, and to the other
// keys of its own.
func TestAFloodLeavesThePoolToOthers(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		slots := must(slots.NewShared(&slots.SharedOptions{Slots: 16}))
		second := b.newQueue("second")
		b.flood("busy", 200, 2*time.Second)
		b.options.Slots = slots.Member(nil)
		_, stop1 := b.start(b.limited(b.handle))
		o := *b.options
		o.Slots = slots.Member(nil)
		stop2 := b.run(listener.New(second, b.limited(b.handle), &o))
		for i := range 30 {
			advance(time.Second)
			if s := b.keys.State(); s.Waiting > 4 {
				t.Errorf("got %+v, want at most a quarter of the slots taken by jobs that wait", s)
			}
			b.send(fmt.Sprint("own ", i), i, 0)
			if _, err := producer.New[job](second, nil).Send(b.Context(), job{100 + i, 0}, &producer.SendOptions{Key: fmt.Sprint("other ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		advance(2 * time.Second)
		b.mu.Lock()
		others := 0
		for _, f := range b.done {
			if f.key == "busy" {
				continue
			}
			others++
			if late := f.began - time.Duration(f.n%100+1)*time.Second; late > 2*time.Second {
				t.Errorf("%+v began %v after it was sent", f, late)
			}
		}
		b.mu.Unlock()
		stop1()
		stop2()
		if others != 60 {
			t.Errorf("got %d jobs of other keys done, want 60", others)
		}
		b.wantFree()
	})
}

// Outside of Batch a batch has at most one job of each key.
func TestABatchHasOneJobOfAKey(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		for i := range 30 {
			b.send(fmt.Sprint("key ", i%5), i, 0)
		}
		h := listener.Batch(func(_ context.Context, ms []*listener.Message[job]) []error {
			time.Sleep(time.Second / 10)
			seen := map[string]bool{}
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range ms {
				if seen[m.Key] {
					t.Errorf("a batch of %d has two jobs of key %q", len(ms), m.Key)
				}
				seen[m.Key] = true
				b.done = append(b.done, finished{key: m.Key, n: m.Body.N, attempt: 1})
			}
			return nil
		}, 10, 100*time.Millisecond)
		l, stop := b.start(b.limited(h))
		b.until(30, time.Minute)
		stop()
		b.wantFree()
		b.wantEmpty(l)
	})
}
