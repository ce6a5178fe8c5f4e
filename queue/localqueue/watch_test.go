package localqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// watched is a queue with watchers, in a bubble.
type watched struct {
	*testing.T
	queue    *handle
	watchers []*watcher
}

func watch(t *testing.T, engine *Engine, n int) *watched {
	t.Helper()
	q := engine.queue(name("watched"))
	if err := q.Create(t.Context(), nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
		t.Fatal(err)
	}
	b := &watched{T: t, queue: q}
	for range n {
		w, err := q.watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.watchers = append(b.watchers, w)
	}
	return b
}

func (b *watched) close() {
	for _, w := range b.watchers {
		w.Close()
	}
}

func (b *watched) put(n int, delay time.Duration) {
	b.Helper()
	for range n {
		if _, err := b.queue.Enqueue(b.Context(), "x", &queue.EnqueueOptions{Delay: delay}); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *watched) take(n int) []queue.Message {
	b.Helper()
	got, err := b.queue.Dequeue(b.Context(), n, 30*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

// wantWoken compares with the watchers that were woken since the last call.
func (b *watched) wantWoken(want ...int) {
	b.Helper()
	var got []int
	for i, w := range b.watchers {
		select {
		case <-w.Woken():
			got = append(got, i)
		default:
		}
	}
	if !slices.Equal(got, want) {
		b.Fatalf("woken: got %v, want %v", got, want)
	}
}

// forget forgets which watchers were woken.
func (b *watched) forget() {
	for _, w := range b.watchers {
		select {
		case <-w.Woken():
		default:
		}
	}
}

func inBubble(t *testing.T, n int, f func(b *watched)) {
	synctest.Test(t, func(t *testing.T) {
		b := watch(t, must(New(nil)), n)
		defer b.close()
		f(b)
	})
}

func TestOneMessageWakesOneOfManyWatchersInTurn(t *testing.T) {
	inBubble(t, 3, func(b *watched) {
		b.wantWoken()
		for i := range 7 {
			b.put(1, 0)
			b.wantWoken(i % 3)
			b.take(32)
			b.take(32)
			b.wantWoken()
		}
	})
}

func TestMessagesBeforeTheDequeueWakeNobodyElse(t *testing.T) {
	inBubble(t, 3, func(b *watched) {
		b.put(100, 0)
		b.wantWoken(0)
		b.take(32) // a full batch
		b.wantWoken(1)
		b.take(32)
		b.wantWoken(2)
		b.take(32)
		b.wantWoken(0)
		b.take(32) // the last four
		b.wantWoken()
	})
}

func TestAWakeUpTellsTheBytesThatWerePut(t *testing.T) {
	inBubble(t, 1, func(b *watched) {
		want := func(bytes int64) {
			b.Helper()
			if got := <-b.watchers[0].Woken(); got != bytes {
				b.Fatalf("got %d bytes, want %d", got, bytes)
			}
		}
		b.put(1, 0)
		want(1)
		b.put(39, 0)
		b.put(5, time.Second)
		b.take(32)
		want(0) // eight are left
		b.take(32)
		time.Sleep(time.Second)
		want(0) // delayed
		b.take(32)
		b.put(2, 0)
		want(1)
	})
}

func TestDelayedMessagesAndEndedLeasesWakeWhenTheyFallDue(t *testing.T) {
	inBubble(t, 2, func(b *watched) {
		b.put(1, time.Minute)
		b.put(1, time.Hour)
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		b.wantWoken()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		b.wantWoken(0)
		b.take(1)
		time.Sleep(30*time.Second - 1) // the lease of a worker that has died
		synctest.Wait()
		b.wantWoken()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		b.wantWoken(1)
		m := b.take(1)[0]
		if _, err := b.queue.Extend(b.Context(), m.Lease, 0); err != nil { // given back
			b.Fatal(err)
		}
		b.wantWoken(0)
		m = b.take(1)[0]
		if _, err := b.queue.Extend(b.Context(), m.Lease, 10*time.Second); err != nil {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.wantWoken(1)
		if err := b.queue.Clear(b.Context()); err != nil {
			b.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		b.wantWoken()
	})
}

func TestAnExpiredMessageWakesNobody(t *testing.T) {
	inBubble(t, 1, func(b *watched) {
		for _, o := range []*queue.EnqueueOptions{{Delay: 10 * time.Second, TTL: 11 * time.Second}, {TTL: 12 * time.Second}} {
			if _, err := b.queue.Enqueue(b.Context(), "x", o); err != nil {
				b.Fatal(err)
			}
		}
		b.wantWoken(0)
		b.take(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantWoken(0) // by the first one, until it expired
		b.take(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantWoken()
	})
}

func TestAnEventIsNotLostWithTheWatcherThatWasWoken(t *testing.T) {
	for name, leave := range map[string]func(*watcher){
		"closed":    func(w *watcher) { w.Close() },
		"not ready": func(w *watcher) { w.Ready(false) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(b *watched) {
				b.put(1, 0)
				b.wantWoken(0)
				leave(b.watchers[0])
				leave(b.watchers[0])
				b.wantWoken(1)
				leave(b.watchers[2])
				b.wantWoken()
				leave(b.watchers[1])
				b.wantWoken()
				time.Sleep(time.Hour)
				synctest.Wait()
				b.wantWoken() // nobody is left
			})
		})
	}
}

// An event that nobody acts on goes to two more watchers, then to four, then to all.
func TestHungWatchersDelayAMessageBriefly(t *testing.T) {
	for _, hung := range []int{1, 4, 20, 255} {
		inBubble(t, hung+1, func(b *watched) {
			b.put(1, 0)
			begin := time.Now()
			<-b.watchers[hung].Woken() // its turn is the last
			took := time.Since(begin)
			woken := 1
			for _, w := range b.watchers[:hung] {
				woken += len(w.Woken())
			}
			b.take(1)
			b.Logf("%d of %d watchers hang: the message waits %v, and %d watchers were woken", hung, hung+1, took, woken)
			if took > 2*time.Second {
				b.Errorf("%d hung watchers: the message waits %v, want less than 2 s", hung, took)
			}
			for i := range 6 { // each of them shows which watchers are slow
				b.put(1, 0)
				begin := time.Now()
				<-b.watchers[hung].Woken()
				b.take(1)
				if took := time.Since(begin); took > 2*time.Second || i == 5 && hung <= 20 && took > 0 {
					b.Errorf("%d hung watchers: message %d waits %v", hung, i+2, took)
				}
			}
		})
	}
}

func TestAWatcherThatHangsDelaysOneMessageOnly(t *testing.T) {
	inBubble(t, 3, func(b *watched) {
		b.put(1, 0)
		b.wantWoken(0) // and does nothing
		time.Sleep(patience)
		synctest.Wait()
		b.wantWoken(1, 2)
		b.take(1)
		for i := range 4 {
			b.put(1, 0)
			b.wantWoken(1 + i%2)
			b.take(1)
		}
		b.watchers[1].Ready(false)
		b.watchers[2].Ready(false)
		b.put(1, 0)
		b.wantWoken(0) // better than none
		b.take(1)
		b.put(1, 0)
		b.wantWoken(0)
		b.take(1)
		b.watchers[1].Ready(true)
		b.put(1, 0)
		b.wantWoken(0) // it has dequeued and is as good as the others
		for _, step := range []struct {
			after time.Duration
			woken []int
		}{{patience, []int{1}}, {startOver - 1, nil}, {1, []int{0}}, {patience, []int{1}}, {startOver, []int{0}}} { // for ever
			time.Sleep(step.after)
			synctest.Wait()
			b.wantWoken(step.woken...)
		}
	})
}

// hungBeside counts the messages that wait in which a watcher dequeues beside those that hang.
type hungBeside struct {
	*watched
	quick *watcher
}

func besideHung(t *testing.T, hung int, f func(b hungBeside)) {
	t.Helper()
	inBubble(t, hung+1, func(b *watched) { f(hungBeside{b, b.watchers[hung]}) })
}

// late puts messages, one after the other, and returns how many waited.
func (b hungBeside) late(n int) (late int) {
	b.Helper()
	for range n {
		b.put(1, 0)
		begin := time.Now()
		<-b.quick.Woken()
		b.take(32)
		if time.Since(begin) > 0 {
			late++
		}
	}
	return late
}

// A watcher that was late too, such as in a pause of its machine, is told from those that hang, however many those are.
func TestAPauseBesideHungWatchersDelaysFewMessages(t *testing.T) {
	for _, hung := range []int{1, 4, 20} {
		for _, pause := range []time.Duration{patience, 5 * time.Second, time.Hour} {
			besideHung(t, hung, func(b hungBeside) {
				first := b.late(100)
				b.put(1, 0)
				time.Sleep(pause)
				synctest.Wait()
				b.take(32)
				b.forget()
				second, third := b.late(100), b.late(1000)
				if first > 4 || second > 6 || third > 0 {
					b.Errorf("%d hung, a pause of %v: got %d messages late of 100, %d of 100 after the pause, and %d of the next 1,000; want at most 4, 6, and 0",
						hung, pause, first, second, third)
				}
			})
		}
	}
}

// A watcher that polls while it has no room answers, as it seems, for those that hang. They delay fewer and fewer
// messages all the same.
func TestAHungWatcherIsBelievedLessAndLess(t *testing.T) {
	for _, hung := range []int{1, 4, 20} {
		besideHung(t, hung, func(b hungBeside) {
			late := 0
			for range 1000 {
				b.quick.Ready(false)
				b.put(1, 0)
				b.take(32)
				b.quick.Ready(true)
				b.take(32)
				late += b.late(2)
			}
			b.Logf("%d hung: %d of 2,000 messages are late", hung, late)
			if late > 20+5*hung {
				b.Errorf("%d hung: got %d of 2,000 messages late, want at most %d", hung, late, 20+5*hung)
			}
		})
	}
}

// TestAWatcherThatBecomesReadyIsTold shows that whoever is ready, and dequeues then as it must, is not
// woken for what is there already, and that the next one is if it does not.
func TestAWatcherThatBecomesReadyIsTold(t *testing.T) {
	inBubble(t, 2, func(b *watched) {
		b.watchers[0].Ready(false)
		b.watchers[1].Ready(false)
		b.put(40, 0)
		b.watchers[0].Ready(true)
		b.watchers[0].Ready(true)
		b.wantWoken()
		b.watchers[1].Ready(true)
		b.wantWoken()
		time.Sleep(patience)
		synctest.Wait()
		b.wantWoken(1)
		b.take(32)
		b.wantWoken(1) // it dequeues, which is more than is known of the other one
	})
}

func TestWatchersEndWithTheirQueueAndTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := must(New(&Options{DeletingFor: -1}))
		if _, err := engine.queue(name("missing")).Watch(t.Context()); !errors.Is(err, queue.ErrQueueMissing) {
			t.Fatalf("watch a missing queue: got %v, want %v", err, queue.ErrQueueMissing)
		}
		ended := func(b *watched) {
			t.Helper()
			for _, w := range b.watchers {
				select {
				case <-w.Ended():
				default:
					t.Fatal("the watcher of a queue that is gone has not ended")
				}
				w.Ready(false)
				w.Ready(true)
				w.Close()
				w.Close()
			}
		}
		old := watch(t, engine, 3)
		old.put(1, time.Minute)
		if err := old.queue.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(old)
		fresh := watch(t, engine, 2)
		fresh.put(1, 0)
		old.wantWoken()
		fresh.wantWoken(0)
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
		ended(fresh)
		if _, err := fresh.queue.watch(t.Context()); !errors.Is(err, ErrClosed) {
			t.Fatalf("watch a closed engine: got %v, want %v", err, ErrClosed)
		}
	})
}

// A source of wake-ups follows its queue through its creation, its drop, and the end of the engine.
func TestWakeupsFollowTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := must(New(&Options{DeletingFor: -1}))
		q := engine.queue(name("orders"))
		var heard []string
		sub, err := engine.Subscribe(q.Name(), func(_ queue.Name, bytes int64, _ time.Time) {
			heard = append(heard, fmt.Sprintf("%d bytes", bytes))
		}, func(on bool) { heard = append(heard, fmt.Sprint(on)) })
		if err != nil {
			t.Fatal(err)
		}
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(heard, want) {
				t.Errorf("heard %q, want %q", heard, want)
			}
			heard = nil
		}
		create := func() {
			t.Helper()
			want()
			if err := q.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookAgain)
		}
		create()
		want("true")
		if _, err := q.Enqueue(t.Context(), "kettle", nil); err != nil {
			t.Fatal(err)
		}
		want("6 bytes")
		other, err := q.watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sub.Ready(false) // so it is the turn of the other one
		sub.Ready(false)
		if len(other.Woken()) != 1 {
			t.Error("another watcher was not woken for the subscriber that is not ready")
		}
		other.Close()
		time.Sleep(time.Minute)
		want()
		sub.Ready(true)
		sub.Ready(true)
		want("true")
		if err := q.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("false")
		create()
		want("true")
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
		want("false")
		sub.Ready(false)
		sub.Close()
		if _, err := engine.Subscribe(q.Name(), nil, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("subscribe at a closed engine: got %v, want %v", err, ErrClosed)
		}
		if _, err := must(New(nil)).Subscribe(name("Orders"), nil, nil); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("subscribe to an invalid name: got %v, want %v", err, queue.ErrInvalid)
		}
	})
}

// TestAFailedCommitWakes shows that a dequeue that the store did not commit, so that its messages are
// visible again, wakes the next watcher.
func TestAFailedCommitWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMapStore()
		engine, err := over(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := watch(t, engine, 2)
		b.put(1, 0)
		b.wantWoken(0)
		store.set(errNoSpace, nil)
		if _, err := b.queue.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, errNoSpace) {
			t.Fatalf("dequeue: got %v, want %v", err, errNoSpace)
		}
		b.wantWoken(1)
		b.close()
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNoOrderOfCallsStrandsAMessage runs random calls of workers that obey the contract, dequeue when they
// are told, and may die at any moment. Whenever time passes and somebody is ready, the queue is empty soon.
func TestNoOrderOfCallsStrandsAMessage(t *testing.T) {
	checkInBubbles(t, func(r *rapid.T) {
		ctx := context.Background()
		q := must(New(nil)).queue(name("orders"))
		if err := q.Create(ctx, nil); err != nil {
			r.Fatal(err)
		}
		type worker struct {
			*watcher
			ready, hangs bool
		}
		var workers []*worker
		defer func() {
			for _, w := range workers {
				w.Close()
			}
		}()
		dequeue := func(n int) int {
			got, err := q.Dequeue(ctx, n, 5*time.Second)
			if err != nil {
				r.Fatal(err)
			}
			for i, m := range got {
				if i%4 == 3 && len(got) < 30 { // a crash
					continue
				}
				if err := q.Delete(ctx, m.Lease); err != nil {
					r.Fatal(err)
				}
			}
			return len(got)
		}
		work := func() {
			synctest.Wait()
			for again := true; again; {
				again = false
				for _, w := range workers {
					if !w.ready || w.hangs {
						continue
					}
					select {
					case <-w.Woken():
						dequeue(32)
						again = true
					default:
					}
				}
			}
		}
		pick := func(r *rapid.T) *worker {
			if len(workers) == 0 {
				r.Skip("no workers")
			}
			return workers[rapid.IntRange(0, len(workers)-1).Draw(r, "worker")]
		}
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(r, "n") {
					delay := time.Duration(rapid.IntRange(0, 3).Draw(r, "seconds")) * time.Second
					if _, err := q.Enqueue(ctx, "x", &queue.EnqueueOptions{Delay: delay}); err != nil {
						r.Fatal(err)
					}
				}
			},
			"join": func(r *rapid.T) {
				w, err := q.watch(ctx)
				if err != nil {
					r.Fatal(err)
				}
				workers = append(workers, &worker{watcher: w, ready: true})
				dequeue(rapid.IntRange(1, 32).Draw(r, "n"))
			},
			"ready": func(r *rapid.T) {
				w := pick(r)
				w.ready = !w.ready
				w.Ready(w.ready)
				if w.ready {
					dequeue(rapid.IntRange(1, 32).Draw(r, "n"))
				}
			},
			"hang": func(r *rapid.T) { w := pick(r); w.hangs = !w.hangs },
			"die": func(r *rapid.T) {
				w := pick(r)
				w.Close()
				workers = slices.DeleteFunc(workers, func(x *worker) bool { return x == w })
			},
			"poll":  func(r *rapid.T) { dequeue(rapid.IntRange(1, 32).Draw(r, "n")) },
			"work":  func(*rapid.T) { work() },
			"sleep": func(r *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(r, "ms")) * time.Millisecond) },
			"": func(r *rapid.T) {
				synctest.Wait()
				s, at, err := q.begin(ctx, noSpace, nil)
				if err != nil {
					r.Fatal(err)
				}
				defer s.mu.Unlock()
				if err := s.checkWatchers(at); err != nil {
					r.Fatal(err)
				}
			},
		})
		able := slices.ContainsFunc(workers, func(w *worker) bool { return w.ready && !w.hangs })
		if !able {
			return
		}
		work()
		for range 40 + 10*len(workers) { // leases, and the patience with those that hang
			time.Sleep(time.Second)
			work()
		}
		if p, err := q.Properties(ctx); err != nil || p.Depth > 0 {
			r.Fatalf("the queue has %d messages left (%v), want none: a worker was ready", p.Depth, err)
		}
	})
}

// checkWatchers returns how the watchers could miss a message.
func (s *queueState) checkWatchers(at instant) error {
	all := s.watchers
	if all == nil || len(all.ready) == 0 {
		return nil
	}
	due := s.backlog.nextDue()
	switch {
	case due == never:
		return nil
	case due > at && all.at > due:
		return fmt.Errorf("the timer is set for %d, want %d", all.at, due)
	case due <= at && all.told == 0:
		return errors.New("messages are visible and nobody was told")
	case all.told > len(all.ready):
		return errors.New("some that were told are not ready")
	case due <= at && all.at > all.until:
		return errors.New("nobody looks whether the one that was told dequeues")
	}
	return nil
}
