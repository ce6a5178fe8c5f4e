package queuetest

import (
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/queue"
)

// Harness connects the suite to a backend. Open is required; the zero values of the other fields
// describe a backend without HTTP that behaves like the service.
type Harness struct {
	// Open returns a queue with this name, which does not exist yet; names are unique in this
	// process. Each test has a bubble of its own, so in a bubble everything that the queue needs
	// must be created here. Use t.Cleanup to clean up.
	Open func(t *testing.T, name string) queue.Manager

	// Bubble runs each test in a testing/synctest bubble with simulated time. The backend must
	// then be in this process and read time from package time. Defaults to false: real time,
	// parallel tests.
	Bubble bool

	// HTTP means that the backend uses HTTP: errors have a status, a storage error code and a
	// request id, and the size of an escaped text is limited too. Defaults to false.
	HTTP bool

	// Requests returns the number of requests that q and its siblings have sent so far, to show
	// that invalid arguments send none. Defaults to nil, which skips that check.
	Requests func(q queue.Manager) int

	// Secrets are texts that errors must not contain, such as keys. Receipts are always checked.
	// Defaults to none.
	Secrets []string

	// Quirks are known differences between the backend and the service.
	Quirks Quirks
}

// Quirks are known differences between a backend and the service. A field that is not empty is
// the reason, which the test prints. The zero value means none.
type Quirks struct {
	// UpdatePastExpiry: an update may hide a message beyond its expiry.
	UpdatePastExpiry string

	// RecreateAtOnce: a dropped queue can be created again without waiting.
	RecreateAtOnce string

	// ListWhileCreating: a queue that is created during a list may be in two pages of it.
	ListWhileCreating string

	// LargeUnicode: a long text outside ASCII may come back changed.
	LargeUnicode string
}

// test is one part of the suite.
type test struct {
	name string
	run  func(e *env)
}

// Run runs the suite against a backend, each test with a queue of its own.
func Run(t *testing.T, h Harness) {
	for _, c := range tests() {
		t.Run(c.name, func(t *testing.T) {
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.run(newEnv(t, h)) })
				return
			}
			t.Parallel()
			c.run(newEnv(t, h))
		})
	}
}

func tests() []test {
	var all []test
	for _, part := range [][]test{
		traceTests, visibilityTests, receiptTests, lifeTests, peekTests, updateTests,
		propertyTests, queueTests, argumentTests, textTests, concurrencyTests,
		contextTests, siblingTests, errorTests, modelTests,
	} {
		all = append(all, part...)
	}
	return all
}
