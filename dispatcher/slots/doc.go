// Package slots decides how many handlers of a process run at once when a number for each listener is not enough: a
// [Shared] set serves several listeners, an [Adaptive] limit follows how a dependency copes, and [OfFleet] joins
// a limit of all processes (queue/limits). A slot is the right to run one handler.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Shared slots
//
// [Shared] slots are one set for several listeners, of any types of jobs, so that together
// they run no more handlers at once than the process can bear. Give each a [Member] in the option Slots
// of its listener. A member keeps its loops, idle curve, leases and poison policy; only the slots are
// shared, and who gets a free one is decided here.
//
// # Weights
//
// No slot stays free for long that a member waits for, so one that is alone uses all. While several want
// more than there is, a free slot goes to the one that holds the fewest in proportion to its
// [MemberOptions.Weight], and to one that holds none first: no member starves. The slots that members
// hold over time follow the weights within a few percent, however long their handlers take.
//
// # Ranks
//
// A rank is a weight that outweighs all weights of later ranks: free slots go to the lowest
// [MemberOptions.Rank] that waits. Its floor is the reserve. A rank with a backlog leaves nothing to the
// ranks after it but their reserves, and slots that it cannot use: free slots are kept for a member whose
// last dequeue brought as many messages as it asked for. Slots that are kept run nothing, so with ranks
// less work is done in all.
//
// # More members than slots
//
// Members then take turns. A free slot goes to the one that is furthest behind its share of the handler
// time, so that each has its share, however long its handlers take.
//
// # Reserves
//
// Handlers are not preempted: what is taken comes back when a handler returns, whoever waits for it. A
// member that must not wait for the handlers of others reserves slots ([MemberOptions.Reserve]). Others
// never take these, also while they are unused. A reserve is part of the member's share, and holds from
// [Shared.Member] on until the listener of the member has ended.
//
// # What it costs
//
// A listener holds slots during a dequeue for the messages that may come, while it reads the metadata of
// its queue, once a minute if an option asks for that, and up to 100 ms when it tells a source of wake-ups
// that it has room again. So that members with empty queues do not take the slots of others for nothing,
// one that found nothing asks for an eighth of its share, or for its reserve if that is more, and then for
// four times as many messages as the last dequeue brought. Work that appears on an idle queue thus takes
// up to three dequeues more.
//
// A member that waits alone is served when as many slots are free as its MinFetch, or after its Linger,
// like a listener with slots of its own. Beside others that wait it is served when a third of its share is free, if
// that is less: the batches are smaller, and cost more requests. While a busy member sends its dequeue, up
// to 250 ms, slots are kept for the next.
//
// # Delivery, order and shutdown
//
// These are those of the listeners. A member takes part while its listener runs, and what it holds
// returns as its handlers do, at the latest when Run returns: then also what handlers have that were
// abandoned. An outage of the handlers, a pause, a limit and an error hold no slots.
//
// # An adaptive limit
//
// An [Adaptive] limit bounds how many handlers run at once by how well their dependency copes: a service that refuses calls, a
// database that becomes slow, the memory of the container. Where that changes from hour to hour no fixed Concurrency is right.
//
// It belongs to a dependency. Every listener whose handlers use it gets its slots and its interceptor:
//
//	limit, err := slots.NewAdaptive(&slots.AdaptiveOptions{Max: 200})
//	worker := listener.New(mails, send, &listener.Options[Mail]{
//		Slots:        limit.Slots(nil),
//		Interceptors: []listener.Interceptor{limit.Intercept},
//	})
//
// # What moves the limit
//
// Errors and time-outs: additive increase, multiplicative decrease, as in TCP and in Netflix's concurrency-limits. A
// handler that returns [Exhausted], or an error that AdaptiveOptions.Exhausted recognizes, multiplies the limit by 0.9; so does
// one that takes longer than its time-out (listener.ErrTimeout, context.DeadlineExceeded). Failures of handlers that had begun
// before the last cut do not count: a burst of one moment is one failure. As many successes as the limit is raise it by one, of
// those while at least half of it is used. Until the first failure each success raises it by one, so that it doubles with
// each round of handlers. Other errors say nothing.
//
// How long handlers take, with AdaptiveOptions.Gradient: see there. The limit settles near 1.5 times the concurrency beyond
// which more handlers only make each other slower, and 4 more, which keeps the dependency busy. Each kind of job is compared
// with itself, at half the limit, which the limit takes for one window in 30.
//
// Memory, with AdaptiveOptions.Memory: beyond 0.8 of it the limit shrinks below the handlers that run, and it grows only after a
// minute without that. This sees what is in use and not what handlers that have just begun will need: it is for jobs each of
// which needs little of the memory, so that 25 or more fit. For fewer large ones set Max to what fits.
//
// # Delivery
//
// A job that found the dependency exhausted has not failed. Unless its error asks for poison, a snooze
// or a discard, it comes again later and no attempt is recorded (a dispatcher.NotRun). It never
// becomes poison by that, and it neither counts towards an outage of the handlers nor ends one. In a
// group this holds for each item: only items that failed otherwise bring the group nearer to the
// poison queue.
//
// The wait is 1 to 5 s at first. It grows by half with each delivery that ended without an attempt,
// up to 4 to 5 min. A longer delay of Retry counts instead. So a job whose dependency refuses it for
// hours is delivered 23 or 24 times in the first hour and 13 or 14 times in each later one, with a
// dequeue, an update and perhaps a reading of the depth each time. It runs at most 5 min after the
// recovery. That also holds for a job that exhausts its dependency alone: it stays in the queue until
// its life ends.
//
// A message without an envelope cannot record that an attempt does not count. Its dequeue count is
// its attempt: see Options.Wire.AcceptForeign of the listener.
//
// A time-out is an attempt, as it is without a limit: the job may be at fault.
//
// While the limit is at its lowest and the dependency is still exhausted, no handler starts for 1 s, and then for ever
// longer up to 15 s; the first success ends that. Messages are not fetched meanwhile.
//
// # Concurrency
//
// Everything is safe for concurrent use. Several listeners share what there is in equal parts, and take
// turns if the limit is lower than their number. Within shared slots ([Adaptive.Slots]) both bound the handlers.
// The limit counts slots, so a dequeue in flight uses some of it. A handler that was given up as stuck (Options.Lease.GiveUp) uses the dependency on, beyond the limit. It is a limit of one process: n
// of them adapt each by itself, and their parts become alike. See package queue/limits for a bound of all processes together.
//
// # Shutdown and cost
//
// A limit has no goroutine and nothing to close. When a listener ends, what its abandoned handlers hold returns. Errors that the stop
// causes change nothing. A job costs about a microsecond more and no allocation; [ContainerMemory] is read at most ten
// times a second.
package slots
