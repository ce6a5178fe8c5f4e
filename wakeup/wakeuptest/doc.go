// Package wakeuptest is the conformance suite that every [wakeup.Source] and its publisher pass: the
// bus within a process, the embedded server's stream, and NATS. What passes it can stand in for any
// other.
//
// A test of an implementation calls [Run] with a [Harness] that opens it:
//
//	func TestConformance(t *testing.T) {
//		wakeuptest.Run(t, wakeuptest.Harness{Open: func(t *testing.T, n int) []wakeuptest.Process {
//			return myprocesses(t, n)
//		}})
//	}
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Time
//
// With [Harness.Bubble] each test runs in a testing/synctest bubble. Without it time is real, and
// tests run in parallel. The suite never sleeps: it waits for what must come. That something does not
// come it can only show as far as it would have come before something else that did.
//
// # Rules
//
// The suite checks what package wakeup says. A call that is under way must not slip through: when
// Ready(false) or Close has returned, no function of the subscriber is running or runs later.
package wakeuptest
