// Package queuetest is the conformance suite that every [queue.Queue] passes:
// the in-memory engine, the file engine, the wrappers, and Azure Queue Storage
// through azqueue, spoken to our emulator and to Azurite. What passes it can
// stand in for any other.
//
// A test of an implementation calls [Run] with a [Harness] that opens it:
//
//	func TestConformance(t *testing.T) {
//		queuetest.Run(t, queuetest.Harness{Bubble: true, Open: func(t *testing.T, name string) queue.Manager {
//			return myqueue.New(name)
//		}})
//	}
//
// [RunAccount] does the same for a [queue.Account].
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Time
//
// With [Harness.Bubble] each test runs in a testing/synctest bubble: hours pass at once
// and times are exact. Without it time is real: the suite polls, asserts nothing about
// durations, and waits for a delayed message to let time pass on a server with its own
// clock.
//
// # Rules
//
// The suite checks the rules of the Queue service REST API; comments name the requirements
// in docs/requirements.md. [Quirks] are known differences of a backend, with the reason.
package queuetest
