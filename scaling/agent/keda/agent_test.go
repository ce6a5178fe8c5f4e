package keda

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// scaler is an agent and a server, as the program has them.
type scaler struct {
	pool *Pool
	stop func()
}

// scalerFor starts one for a queue, at the address.
func (a *address) scalerFor(t *testing.T, q queue.Queue, folder string, replicas func(context.Context) (int, error)) *scaler {
	t.Helper()
	pool := must(NewPool("worker", replicas))
	decides, err := agent.New([]agent.Pool{{
		Name: "worker", Queues: []queue.Queue{q}, Actuator: pool,
		Policy: scaling.Policy{ToZero: true, Max: 12, Slots: 1, Handling: time.Second},
	}}, &agent.Options{Folder: folder, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, pool)
	a.set(s.listener)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- decides.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent: %v", err)
		}
		ended <- nil
		a.set(nil)
		s.end(t)
	}
	t.Cleanup(stop)
	return &scaler{pool: pool, stop: stop}
}

func emptyQueue(t *testing.T) queue.Manager {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

func flood(t *testing.T, q queue.Queue, n int) {
	t.Helper()
	for i := range n {
		if _, err := q.Enqueue(t.Context(), fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func drained(t *testing.T, q queue.Queue) {
	t.Helper()
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			if err := q.Delete(t.Context(), m.Lease); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// a flood brings a pool from zero to its bound, a scaler that is stopped and started again in the middle changes nothing by
// that, with and without what the former one kept, and an empty queue takes the pool back to zero.
func TestAFloodARestartAndTheEnd(t *testing.T) {
	for name, folder := range map[string]string{"history kept": t.TempDir(), "history lost": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := emptyQueue(t)
				var a address
				o := &operator{interval: 15 * time.Second}
				first := a.scalerFor(t, q, folder, o.platform)
				a.operate(t, o)
				want := func(what string, after time.Duration, want int) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					got, log, _ := o.state()
					if got != want {
						t.Fatalf("%s: got %d replicas by %v, want %d", what, got, log, want)
					}
					t.Logf("%s: %v", what, log)
				}
				want("without work", 5*time.Minute, 0)
				flood(t, q, 1000)
				want("a flood", 3*time.Minute, 12)
				first.stop()
				want("nobody decides", 10*time.Minute, 12)
				second := a.scalerFor(t, q, folder, o.platform)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got, log, _ := o.state(); got != 12 || len(log) != 0 {
					t.Errorf("after the restart: got %d replicas by %v, want 12 without a change", got, log)
				}
				drained(t, q)
				want("soon after the end of the work", 5*time.Minute, 12)
				want("long after it", 20*time.Minute, 0)
				second.stop()
			})
		})
	}
}

// A queue that cannot be read is no empty queue: the number stays, and KEDA gets it.
func TestADeletedQueueChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := emptyQueue(t)
		var a address
		o := &operator{interval: 15 * time.Second}
		s := a.scalerFor(t, q, "", o.platform)
		a.operate(t, o)
		flood(t, q, 1000)
		time.Sleep(3 * time.Minute)
		if err := q.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.state()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, log, failures := o.state(); got != 12 || len(log) != 0 || failures != 0 {
			t.Errorf("an hour after it was deleted: got %d replicas by %v, %d failures, want 12 without a change", got, log, failures)
		}
		s.stop()
	})
}

// While the platform does not say how many replicas there are, nothing is decided; it is asked again at the next measurement.
func TestAPlatformThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := emptyQueue(t)
		flood(t, q, 1000)
		var a address
		o := &operator{interval: 15 * time.Second, replicas: 5}
		begun := time.Now()
		s := a.scalerFor(t, q, "", func(ctx context.Context) (int, error) {
			if time.Since(begun) < 5*time.Minute {
				return 0, errPlatform
			}
			return o.platform(ctx)
		})
		a.operate(t, o)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got, log, failures := o.state(); got != 5 || len(log) != 0 || failures == 0 {
			t.Errorf("while it is unknown: got %d by %v, %d failures, want 5 and errors", got, log, failures)
		}
		_, err := o.client.IsActive(t.Context(), about("worker"))
		wantCode(t, "IsActive", err, codes.Unavailable)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got, _, _ := o.state(); got != 12 {
			t.Errorf("when it is known: got %d, want 12", got)
		}
		s.stop()
	})
}

// A server and an agent are runners, so one signal ends both in order.
var (
	_ millrace.Runner = (*Server)(nil)
	_ millrace.Runner = (*agent.Agent)(nil)
)
