// Package kinds puts jobs of several types on one queue. A [Kind] ties a name to a type of job once,
// for those who send and those who handle, so that they cannot disagree:
//
//	var (
//		Orders = kinds.Kind[Order]{Name: "order"}
//		Emails = kinds.Kind[Email]{Name: "email"}
//	)
//
//	p := Orders.Producer(q, nil)
//
//	l, err := listener.NewKinds(q, []listener.Kind{
//		Orders.Handle(bill, nil),
//		Emails.Handle(deliver, &kinds.Options{Timeout: 10 * time.Second, MaxAttempts: 20}),
//	}, nil)
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// The name travels in the envelope. A worker gives back what it has no handler for, with a delay and
// without an attempt, so that old and new releases can work on one queue: see listener.NewKinds.
// While one worker of nine knows a kind, 95 % of its jobs reach that one within 2 min. Workers with
// listener.Options.Wakeups wake each other for that, over NATS or by the server. The listeners of a
// wakeup.Bus do not: there such a job waits for a safety poll or for the next event.
// To add a kind, deploy workers that handle it and senders that use it in any order. To rename one,
// handle both names until no message has the old one. To take one out, stop sending it first.
//
// A queue that has had jobs of one type keeps their handler as the kind without a name:
// Kind[Order]{}.
//
// # Failures
//
// A kind whose handlers keep failing gets a tenth of the slots. What there is no room for is given
// back without an attempt, and reported as listener.ErrOutage. The other kinds go on. Its jobs become
// poison as any others do, unless nothing else works either: see listener.FailingSource.
//
// # Concurrency
//
// All kinds share the slots of their listener, and handlers that hang leave none to other kinds. Set
// Options.Timeout and Options.Concurrency, which bounds how many handlers of a kind run at once, or
// give kinds that must not wait for each other queues of their own.
//
// A job of a kind that has all its handlers waits in its slot if its turn comes within 5 s. Such jobs
// take at most a quarter of the slots. The others come again when their turn is expected, for the
// price of an update and a share of a dequeue each time, usually once or twice. A flood of a kind
// whose handlers take milliseconds is therefore slower than they are: each second as many jobs come
// again as may run or wait. A Concurrency of the listener, and of a queue of its own, has no such bound.
//
// # Cost
//
// As much as a queue of one kind. A message that no worker can handle costs at most 150 requests on
// its first day, most of them in the first 3 min, and 60 on each later day.
// What waits because its kind fails costs a few more.
package kinds
