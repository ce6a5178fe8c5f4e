package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
)

// All processes together fetch at most 5,000 jobs in any minute. Init makes the tokens, once; Open and Wrap are for
// every process, which gives the wrapped queue to its listener.
func Example_tokensRate() {
	ctx := context.Background()
	account, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	source := account.Queue(queue.Name{Account: "shop", Queue: "mail-limit"})
	mails := account.Queue(queue.Name{Account: "shop", Queue: "mails"})

	limit := limits.Rate{Jobs: 5000, Window: time.Minute}
	if err := limit.Init(ctx, source); err != nil {
		fmt.Println(err)
		return
	}
	here, err := limit.Open(ctx, source)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := here.Wrap(mails)

	p, _ := source.Properties(ctx)
	fmt.Println(q.Name(), "has", p.Depth, "tokens")
	// Output: shop/mails has 100 tokens
}

// At most 20 videos are encoded at once, by all processes together. The limit is around the queue, intercepts the handlers, and runs
// until the listener has drained.
func Example_tokensConcurrency() {
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond) // a program runs until its signal
	defer stop()
	account, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	source := account.Queue(queue.Name{Account: "films", Queue: "encoders"})
	videos := account.Queue(queue.Name{Account: "films", Queue: "videos"})

	limit := limits.Concurrency{Jobs: 20, PerToken: 2}
	if err := limit.Init(ctx, source); err != nil {
		fmt.Println(err)
		return
	}
	here, err := limit.Open(ctx, source)
	if err != nil {
		fmt.Println(err)
		return
	}
	encode := func(context.Context, *listener.Message[string]) error { return nil }
	worker := listener.New(here.Wrap(videos), encode, &listener.Options[string]{
		Interceptors: []listener.Interceptor{slots.OfFleet(here.Begin, here.End)},
	})
	if err := millrace.RunOrdered(ctx, here, worker); err != nil { // the last drains first
		fmt.Println(err)
	}

	p, _ := source.Properties(context.Background())
	fmt.Println(limit, "are", p.Depth, "tokens")
	// Output: 20 jobs at once, 2 a token are 10 tokens
}

// The error of a dequeue without a token says what the limit is, and when to try again.
func TestTheErrorNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 100, Window: 30 * time.Second, PerToken: 1, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		l, err := r.Open(t.Context(), b.tokens)
		if err != nil {
			t.Fatal(err)
		}
		b.put(1) // a dequeue of an empty queue needs no token
		b.worthy()
		_, err = l.Wrap(b.jobs).Dequeue(t.Context(), 1, time.Minute)
		limit := (*queue.Error)(nil)
		if !errors.Is(err, queue.ErrLimited) || !errors.As(err, &limit) || limit.Detail != "100 jobs in 30s, 1 a token" || limit.Queue != b.jobs.Name() || limit.RetryAfter <= 0 {
			t.Errorf("got error %v", err)
		}
	})
}
