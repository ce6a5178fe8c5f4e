// Package millracetest tests handlers, and code that sends jobs to them, through the real
// pipeline: the producer, an engine in memory that behaves like the service, and the listener.
// Nothing is mocked: a job in a test is sealed, sent, leased, decoded, handled and settled.
//
// [Work] runs one job, once, and [WorkGroup] a message with several. [Drain] runs all jobs on a queue, [DrainKinds] those of a queue of
// several kinds. [Enqueued], [RequireEnqueued] and [RequireEmpty] inspect a queue without changing it,
// and [EnqueuedKind] and [RequireEnqueuedKind] the jobs of one kind on it.
//
// This package is stable: see docs/stability.md.
//
// # Guarantees
//
// When Work or Drain returns, nothing of the listener runs any more, so no goroutine leaks into
// the next test, and the test may read variables that its handlers have written. Invalid
// options end the test; the result of a handler never does. A test can be ended only from its
// own goroutine: in a handler use Error, not Fatal.
//
// Outside a synctest bubble only handlers take time. However many fail, nothing is limited.
//
// # One job
//
//	r := millracetest.Work(t, ship, Order{ID: "7"}, nil)
//	if r.Outcome != listener.Poisoned || !errors.Is(r.Err, errNoAddress) {
//		t.Errorf("got %v, %v; want poisoned, %v", r.Outcome, r.Err, errNoAddress)
//	}
//
// # What was sent
//
//	bill(t.Context(), q) // the code under test, with a producer for q
//	millracetest.RequireEnqueued(t, q, Order{ID: "7"}, Order{ID: "8"})
//
// # Large bodies
//
// A queue with claims opens the bodies that its messages refer to:
//
//	claims, err := claimcheck.New(blob.Memory(), "bodies", nil)
//	q := millracetest.WithClaims(millracetest.Queue(t), claims)
//	millracetest.Send(t, q, large)
//	millracetest.Drain(t, q, ship, &listener.Options[Order]{Claims: claims})
//
// # Retry delays
//
// In a synctest bubble hours pass at once: sleep until the message is visible again.
//
//	synctest.Test(t, func(t *testing.T) {
//		q := millracetest.Queue(t)
//		millracetest.Send(t, q, Order{ID: "7"})
//		millracetest.Drain(t, q, flaky, nil) // attempt 1 fails
//		time.Sleep(2 * time.Second)
//		millracetest.Drain(t, q, flaky, nil) // so does attempt 2
//		time.Sleep(20 * time.Second)
//		millracetest.Drain(t, q, flaky, nil) // attempt 3 succeeds
//		millracetest.RequireEmpty(t, q)
//	})
//
// # A long job keeps its lease
//
// The lease of a handler that sleeps for an hour is renewed for an hour. The dequeue count
// shows that no other worker gets its message meanwhile.
//
//	synctest.Test(t, func(t *testing.T) {
//		r := millracetest.Work(t, func(ctx context.Context, m *listener.Message[Order]) error {
//			time.Sleep(time.Hour)
//			return ctx.Err()
//		}, Order{ID: "7"}, nil)
//		if r.Outcome != listener.Deleted {
//			t.Errorf("got %v, %v; want deleted", r.Outcome, r.Err)
//		}
//	})
//
// # A lost lease
//
// Remove the message while the handler runs, as a redrive or another worker would: the next
// renewal fails, and the handler's context ends.
//
//	synctest.Test(t, func(t *testing.T) {
//		q := millracetest.Queue(t)
//		millracetest.Send(t, q, Order{ID: "7"})
//		got := millracetest.Drain(t, q, func(ctx context.Context, m *listener.Message[Order]) error {
//			if err := q.Clear(ctx); err != nil {
//				return err
//			}
//			return shipSlowly(ctx, m) // must notice that ctx ends
//		}, nil)
//		if got[listener.Lost] != 1 {
//			t.Errorf("got %v, want one lost", got)
//		}
//	})
//
// # A killed worker
//
// Dequeue the message and do nothing: when its visibility ends it is delivered again, and no
// attempt is recorded.
//
//	synctest.Test(t, func(t *testing.T) {
//		q := millracetest.Queue(t)
//		millracetest.Send(t, q, Order{ID: "7"})
//		if _, err := q.Dequeue(t.Context(), 1, 30*time.Second); err != nil {
//			t.Fatal(err)
//		}
//		time.Sleep(30 * time.Second)
//		millracetest.Drain(t, q, shipOnce, nil) // sees DequeueCount 2, Attempt 1
//		millracetest.RequireEmpty(t, q)
//	})
//
// # Shutdown
//
// Drain never cancels a handler. To test a handler at a shutdown run a listener:
//
//	synctest.Test(t, func(t *testing.T) {
//		q := millracetest.Queue(t)
//		millracetest.Send(t, q, Order{ID: "7"})
//		ctx, stop := context.WithCancel(t.Context())
//		l := listener.New(q, shipSlowly, &listener.Options[Order]{Grace: 10 * time.Second})
//		done := make(chan error)
//		go func() { done <- l.Run(ctx) }()
//		synctest.Wait() // the handler is running
//		stop()
//		if err := <-done; err != nil { // ten seconds later
//			t.Errorf("Run: got error %v, want nil", err)
//		}
//		millracetest.RequireEnqueued(t, q, Order{ID: "7"}) // given back
//	})
//
// # Failures of the service
//
// Wrap a [Queue] in package queue/faultqueue and drain that, in a bubble. A lost response hides
// messages as it would in Azure: sleep until their visibility has ended, and drain again.
//
// # Concurrency
//
// A [Queue] is safe for concurrent use. Every other function belongs to the goroutine of
// its test; tests may run in parallel, each with queues of its own.
package millracetest
