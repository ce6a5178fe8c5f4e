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
// # Time
//
// With [Harness.Bubble] each test runs in a testing/synctest bubble: hours pass
// at once and instants are exact. Without it time is real, nothing is asserted
// about how long something takes, and what takes a while is polled for. To let
// time pass on a server whose clock is its own, the suite waits for a delayed
// message to appear.
//
// # What it holds against
//
// The rules of the Queue service REST API, as the requirements Q-01 … Q-30, B-01,
// B-05, B-13 and X-26 state them; a test is named after the one it settles. Where a backend is
// known to differ from the service, [Quirks] says so, with the reason.
package queuetest
