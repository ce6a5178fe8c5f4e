// Package limits holds a queue to limits: what one process sends a second ([Process]), and the jobs of all processes
// together, within a window ([Rate]) or at once ([Concurrency]). Each wraps a queue.Queue, and several may be
// wrapped around one another. A dequeue that a limit does not allow now sends nothing and fails with
// [queue.ErrLimited], and a listener then waits without holding slots.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # One process
//
// A [Process] bounds how many messages and requests one process sends a second, so that it stays
// below what the service or another user of it allows. [Process.Wrap] makes the queues
// that are held to it. Several queues may share one limit, as the queues of an account do; a queue may
// have several, one wrapped in another.
//
// What is held back:
//
//   - A dequeue never waits. If the limit does not allow it now, it sends nothing and fails with
//     [queue.ErrLimited]; RetryAfter says when to come again, and its share is kept for the queue for a moment.
//     A listener then waits without holding slots. Dequeues are made as full as the limit allows.
//   - An enqueue waits for its turn. If its context would end before that, it fails at once with
//     [queue.ErrLimited], or with the error of the context if that ends meanwhile; nothing was sent.
//   - Everything else is sent at once, because it holds a lease or is rare: renewals, give-backs, deletes,
//     peeks, properties. It counts, so that dequeues and enqueues pay for it.
//
// A request is one call that reaches the service. Messages are those that are put, got, peeked at and deleted,
// as in the service's targets of 2,000 messages a second for a queue and 20,000 for an account. In any
// time t no more is sent than t times the rate, what [ProcessOptions].Burst saves up, and what must not wait:
// at most the renewals and settlements of the messages that are leased. In the long run those are paid for too.
//
// A process limit needs no requests, and a lock that is held for less than a microsecond a call.
//
// # All processes
//
// The limits of all processes together need no store: the tokens of a limit are the messages of
// a queue, and a process takes tokens before it fetches jobs. A [Rate] is a number of jobs within a window, a [Concurrency] a
// number of handlers that run at once.
//
// The token is taken before the fetch: no message is held or given back for want of one. A dequeue that cannot have
// one now sends nothing and fails with [queue.ErrLimited]; a listener then waits without holding slots. While the
// queue of jobs is empty it is looked at with a peek, which needs no token.
//
// # A rate
//
// A rate of k jobs in a window w is a queue of k/b tokens, each worth b jobs. To take one is to dequeue it with a
// visibility of w + h, and it is worth b jobs within h of the instant before that request, by the monotonic clock. It comes
// back by itself. So the uses of a token lie w apart, and no window has more than k jobs, whatever crashes, is
// lost, or fails. What counts is the fetch; handlers start when their message is fetched.
//
//   - A response that takes longer than h brings messages that may not be used any more. They are given back at once,
//     and the dequeue fails with an error that says so.
//   - A process that is frozen between the response and the start of its handlers may start them late: a window may then
//     have what it holds too much, at most b jobs for each of its tokens.
//   - A token whose process has crashed is missing for at most 2 w. So is one that was granted in a response that was lost.
//   - Tokens that are deleted by others are missing for good. This is noticed when none can be had for five windows, and the
//     dequeues then fail with an error that says how many there are.
//
// Under full demand a rate costs about two requests for each token, so 0.02 a job at 100 jobs a token: a process asks for tokens when its own come
// back, and rarely otherwise. With a window of 30 s or more and 50 tokens or more, at least 90 % of the limit is used under full demand
// if a token can be spent within a quarter of h, which is a twentieth of the window, 1 s … 10 s, in whole seconds. If jobs come or are
// fetched more slowly, h is longer, up to w, so that a token serves several jobs. Below the limit a dequeue needs at most one
// request for a token, and none while the process holds one. If a process gets less than about one job in a window, a look goes before
// it: otherwise each poll of an idle queue would hide a token. At the limit a process takes the tokens that come back slowly enough for
// others to find some, but one that has many keeps most of them for some windows.
//
// # A concurrency
//
// A concurrency of k is a queue of k/b tokens, each worth b handlers. A process takes one for a minute, renews it every 20 to 25 s
// while it needs it, and gives it back when it does not. It never has more messages that are fetched and handlers that run than its tokens are
// worth, so no more than k handlers run at once. The limit is a runner, because tokens must be renewed, and an
// interceptor, which sees when handlers return:
//
//		here, err := limits.Concurrency{Jobs: 20}.Open(ctx, tokenQueue)
//		…
//		worker := listener.New(here.Wrap(videos), encode, &listener.Options[Video]{
//			Interceptors: []listener.Interceptor{slots.OfFleet(here.Begin, here.End)},
//		})
//		err = millrace.RunOrdered(ctx, here, worker)
//
//	  - A token that cannot be renewed (its queue does not answer, or the response to a renewal was lost and with it the right to
//	    renew) is worth nothing from 15 s before its lease ends. If the others of the process are not worth its
//	    handlers, the contexts of the newest end then, with the cause [ErrTokenLost], and their messages come again without an
//	    attempt. Of a token that is known to be lost the room is not filled again, and another is asked for in its place.
//	  - Handlers must end within these 15 s when their context does. One that does not goes on while its token may be another's. So
//	    does a process that is frozen beyond the lease: when it goes on its handlers do too, until they look at their contexts. The limit is
//	    then exceeded by what that process held.
//	  - A token whose process has crashed is missing for a minute; so is one that was granted in a response that was lost.
//	  - Tokens that are deleted by others are missing for good. This is noticed by a process that has had none for five minutes.
//	  - A group counts as one job, from its fetch to its settlement. Its handlers run one after the other, or with listener.EachItem as many as
//	    that says.
//	  - Without the interceptor a job counts until the listener deletes it or gives it back; one that has outlived the lease of its message is not
//	    seen. The dequeues report this mistake.
//
// Nobody starves. A process takes a tenth of the tokens immediately, and more of them slowly, while others may want some. It
// gives back what it has not needed for 5 s. Of what it needs it gives back one token from time to time, unless a
// look into the queue shows that others can be had, and then does not ask for 2 to 3 s: every minute each token once, or
// more rarely, if it takes more than a twentieth of that until so many handlers have
// returned. If others have taken it, a process that has more than a sixth of all tokens gives back more of them
// immediately. A process that has none asks every 4 to 8 s. So ten processes that start together share the tokens
// within seconds, and nine that come later have their first ones within a minute, if there are at least as many tokens
// as processes. A single token with many handlers is the lock of one reader: it
// changes hands when all of them have returned.
//
// A concurrency costs three to six requests a minute for each token that is in use, whatever the jobs: 0.01 a job at ten handlers a
// token with jobs of one second, and about one a job for a token of one handler with jobs of 20 s. A process that waits for
// tokens sends one every 4 to 8 s. Under full demand more than 90 % of the limit is used.
//
// # Setting up
//
// Init creates exactly as many tokens as the limit has, also if several processes call it at once, and whatever
// becomes of its requests. An enqueue whose response is lost may have added a message or not, so what is enqueued is blank, and only
// an update, which the receipt of a message fences, makes it worth something. The limit is in the metadata of the queue, and cannot be
// changed there: make a new queue for a new limit, or stop all that use it, drop it, and call Init a window, or a minute, later.
//
// # Delivery, order, concurrency, shutdown
//
// Delivery and order are those of the inner queue. Everything is safe for concurrent use. One limit may hold several queues and listeners
// of a process, also in a pool. A rate has no goroutines, and there is nothing to stop: tokens come back by themselves.
// [ConcurrencyLimit.Run] owns the renewals. When its context ends no handler starts any more, those that run go on, and the tokens go back
// when they have returned; so it may be stopped together with the listeners, or after them.
//
// # Cost
//
// A dequeue may be two requests, one of them to the queue of tokens; wrap that queue with package metered, to count them. Their cause is
// metered.CauseLimit.
package limits
