// Hooks shows how a program replaces decisions of a listener and observes its events.
//
//	go run ./examples/hooks
//
// It uses an in-memory queue and ends when its jobs are done.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// errBusy is a failure worth an immediate retry.
var errBusy = errors.New("the printer is busy")

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out *log.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		return err
	}
	q := engine.Queue(queue.Name{Queue: "pages"})
	p := producer.New(q, &producer.Options[int]{Create: true})
	const pages = 100
	for page := range pages {
		if _, err := p.Send(ctx, page, nil); err != nil {
			return err
		}
	}

	var printed, attempts atomic.Int64
	o := &listener.Options[int]{
		// A busy printer is tried again immediately; other failures use the default curve.
		RetryDelay: func(attempt int, err error) time.Duration {
			if errors.Is(err, errBusy) {
				return 0
			}
			return listener.RetryCurve(attempt)
		},
		// A loop waits longer after each empty poll, and does not end.
		Fetch: listener.FetchOptions{
			QueueEmpty: func(polls int) (wait time.Duration, end bool) {
				return min(time.Duration(polls)*time.Second, 10*time.Second), false
			},
			// One loop for every fifty pages or fewer.
			QueueWorkDetected: func(l listener.Load) int { return int((l.Depth + 49) / 50) },
		},
		OnError: func(err error) {
			var failed *listener.DeliveryError
			var broken *listener.HookError
			switch {
			case errors.As(err, &failed):
				out.Printf("attempt %d %v: %v", failed.Attempt, failed.Outcome, failed.Err)
			case errors.As(err, &broken):
				out.Printf("bug in a hook: %v", broken)
			default: // a failed poll or renewal
				out.Print(err)
			}
		},
	}
	// The observer receives every event, for metrics.
	o.Observer.Finished = func(listener.Delivery, time.Duration, error) { attempts.Add(1) }
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if outcome == listener.Deleted && printed.Add(1) == pages {
			stop()
		}
	}
	o.Observer.Scaled = func(q queue.Name, loops int) { out.Printf("%v: loops=%d", q, loops) }
	if err := millrace.Run(ctx, listener.New(q, printPage, o)); err != nil {
		return err
	}
	out.Printf("printed %d pages in %d attempts: the hooks chose the retry delays, the waits, and the loops, and saw every event",
		printed.Load(), attempts.Load())
	return nil
}

func printPage(_ context.Context, m *listener.Message[int]) error {
	time.Sleep(10 * time.Millisecond)
	switch {
	case m.Body == 3 && m.Attempt == 1:
		return errBusy
	case m.Body == 4 && m.Attempt == 1:
		return errors.New("no paper")
	}
	return nil
}
