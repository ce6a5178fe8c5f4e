package serverwakeup_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

type job struct{ N int }

// fleet is worker processes, each with a source of its own, over the server in process.
type fleet struct {
	*bundle
	handled atomic.Int64
	stop    func()
}

// TestListenersAreIdleForNothingAndWokenForOneDequeue shows with whole listeners that an idle queue costs no
// transaction, and a message one dequeue, whatever the number of instances.
func TestListenersAreIdleForNothingAndWokenForOneDequeue(t *testing.T) {
	if testing.Short() {
		t.Skip("plays days")
	}
	for _, instances := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			inBubble(t, func(b *bundle) {
				f := b.work(instances, &listener.Options[job]{Fetch: listener.FetchOptions{SafetyPoll: -1}})
				defer f.stop()
				idle := b.server.Counts()
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if got := b.server.Counts().Requests() - idle.Requests(); got != 0 {
					b.Errorf("%d idle instances sent %d requests in a day, want none", instances, got)
				}
				for n := range 40 {
					before := b.server.Counts()
					put(b, n, 0)
					time.Sleep(time.Second)
					synctest.Wait()
					if got := b.dequeues(before); got != 1 {
						b.Errorf("%d instances sent %d dequeues for a message, want 1", instances, got)
					}
				}
				if got := f.handled.Load(); got != 40 {
					b.Errorf("%d messages were handled, want 40", got)
				}
				before := b.server.Counts()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := b.server.Counts().Requests() - before.Requests(); got != 0 {
					b.Errorf("%d idle instances sent %d requests in ten minutes, want none", instances, got)
				}
			})
		})
	}
}

// slow is a handler that takes all slots for longer than a moment.
func slow(ctx context.Context, _ listener.Delivery, next func(context.Context) error) error {
	time.Sleep(20 * time.Second)
	return next(ctx)
}

// TestAMessageThatTakesEverySlotCostsTwoDequeues shows what messages cost that take all slots of a listener: a full
// batch does not show that the queue is empty.
func TestAMessageThatTakesEverySlotCostsTwoDequeues(t *testing.T) {
	inBubble(t, func(b *bundle) {
		f := b.work(3, &listener.Options[job]{Fetch: listener.FetchOptions{SafetyPoll: -1}, Concurrency: 1, Interceptors: []listener.Interceptor{slow}})
		defer f.stop()
		for n := range 10 {
			before := b.server.Counts()
			put(b, n, 0)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := b.dequeues(before); got > 2 {
				b.Errorf("got %d dequeues for a message, want 2", got)
			}
		}
		if got := f.handled.Load(); got != 10 {
			b.Errorf("%d messages were handled, want 10", got)
		}
	})
}

// TestBurstsDelaysAndFailuresOfTheServerStrandNothing: without safety polls every message is handled.
func TestBurstsDelaysAndFailuresOfTheServerStrandNothing(t *testing.T) {
	inBubble(t, func(b *bundle) {
		f := b.work(3, &listener.Options[job]{Fetch: listener.FetchOptions{SafetyPoll: -1, BatchSize: 4}, Concurrency: 4})
		defer f.stop()
		sent := 0
		for round := range 30 {
			for range 1 + round*7%50 {
				put(b, sent, time.Duration(sent%4)*time.Second)
				sent++
			}
			if round%5 == 4 {
				b.via.breaks(http.ErrServerClosed)
			}
			time.Sleep(time.Duration(round%3) * time.Second)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := f.handled.Load(); got != int64(sent) {
			b.Errorf("%d messages were handled, want %d", got, sent)
		}
	})
}

func put(b *bundle, n int, delay time.Duration) {
	b.Helper()
	if _, err := b.queue.Enqueue(b.Context(), fmt.Sprintf(`{"N":%d}`, n), &queue.EnqueueOptions{Delay: delay}); err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) dequeues(since emulator.Counts) int64 {
	return b.server.Counts().Operations[emulator.GetMessages] - since.Operations[emulator.GetMessages]
}

// work starts instances and waits until they are idle.
func (b *bundle) work(instances int, o *listener.Options[job]) *fleet {
	b.Helper()
	f := &fleet{bundle: b}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	f.stop = func() {
		cancel()
		running.Wait()
	}
	for range instances {
		client := &http.Client{Transport: b.via}
		q, err := azurequeue.Open(b.server.ConnectionString(), b.queue.Name().Queue, &azurequeue.Options{Transport: client})
		if err != nil {
			b.Fatal(err)
		}
		source, err := serverwakeup.Open(b.server.ConnectionString(), &serverwakeup.Options{Transport: client, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		own := *o
		own.Wakeups, own.Logger = source, slog.New(slog.DiscardHandler)
		l := listener.New(q, func(context.Context, *listener.Message[job]) error {
			time.Sleep(10 * time.Millisecond)
			f.handled.Add(1)
			return nil
		}, &own)
		running.Go(func() {
			defer source.Close()
			if err := l.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return f
}
