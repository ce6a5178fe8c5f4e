// Package tokens limits all processes together, without a store: the tokens of a limit are the messages of
// a queue, and who wants to fetch jobs takes tokens first. A [Rate] is a number of jobs within a window.
//
// # How it works
//
// A rate of k jobs in a window w is a queue of k/b tokens, each worth b jobs. To take one is to dequeue it with a
// visibility of w + h, and it is worth b jobs within h of the instant before that request, by the monotonic clock. It comes
// back by itself. So the uses of a token lie w apart, and no window has more than k jobs, whatever crashes, is
// lost, or fails. What counts is the fetch; handlers start when their message is fetched.
//
// The token is taken before the fetch: no message is held or given back for want of one. A dequeue that cannot have
// one now sends nothing and fails with a [*queue.LimitedError]; a listener then waits without holding slots. While the
// queue of jobs is empty it is looked at with a peek, which needs no token.
//
// # What can go wrong
//
//   - A response that takes longer than h brings messages that may not be used any more. They are given back at once,
//     and the dequeue fails with an error that says so.
//   - A process that is frozen between the response and the start of its handlers may start them late: a window may then
//     have what it holds too much, at most b jobs for each of its tokens.
//   - A token whose process has crashed is missing for at most 2 w. So is one that was granted in a response that was lost.
//   - Tokens that are deleted by others are missing for good. This is noticed when none can be had for five windows, and the
//     dequeues then fail with an error that says how many there are.
//
// # Setting up
//
// [Rate.Init] creates exactly as many tokens as the limit has, also if several processes call it at once, and whatever
// becomes of its requests. An enqueue whose response is lost may have added a message or not, so what is enqueued is blank, and only
// an update, which the receipt of a message fences, makes it worth something. The limit is in the metadata of the queue, and cannot be
// changed there: make a new queue for a new limit, or stop all that use it, drop it, and call Init a window later.
//
// # Delivery, order, concurrency, shutdown
//
// Delivery and order are those of the inner queue. Everything is safe for concurrent use. There is nothing to stop:
// there are no goroutines, and tokens come back by themselves.
//
// # Cost
//
// Under full demand about two requests for each token, so 0.02 a job at 100 jobs a token: a process asks for tokens when its own come
// back, and rarely otherwise. A dequeue therefore may be two requests, one of them to the queue of tokens; wrap that queue with
// package meter to count them. With a window of 30 s or more and 50 tokens or more, at least 90 % of the limit is used under full demand
// if a token can be spent within a quarter of h, which is a twentieth of the window, 1 s … 10 s, in whole seconds. If tokens are not
// spent in time, h grows, up to w, and less is used.
package tokens
