package queuetest

import (
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/queue"
)

// Harness ties the suite to one backend. Open is required; the zero values of
// the others describe a real, strict backend without HTTP.
type Harness struct {
	// Open returns a handle on the queue of this name, which does not exist
	// yet; the suite chooses names that are new in this process. In a bubble
	// everything the handle needs must be made here, since each test has a
	// bubble of its own. t.Cleanup takes away what was made.
	Open func(t *testing.T, name string) queue.Manager

	// Bubble runs each test in a testing/synctest bubble, where time is
	// simulated. The backend must then live in this process and take its time
	// from package time. Defaults to false: real time, tests in parallel.
	Bubble bool

	// HTTP says that the backend is spoken to over HTTP: errors carry a
	// status, a storage error code and a request id, and a text is also
	// bounded by its size once escaped. Defaults to false.
	HTTP bool

	// Requests counts the requests that q and its siblings have sent to the
	// backend so far, which shows that bad arguments spend none. Defaults to
	// nil, which leaves that out.
	Requests func(q queue.Manager) int

	// Secrets are texts that must be in no error, such as keys. Receipts are
	// always looked for. Defaults to none.
	Secrets []string

	// Quirks are where the backend is known to differ from the service.
	Quirks Quirks
}

// Quirks lists where a backend is known to differ from the service. A field that
// is not empty is the reason, which the test prints; the zero value is a backend
// like the service.
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

// Run runs the whole suite against a backend, each test on a queue of its own.
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
