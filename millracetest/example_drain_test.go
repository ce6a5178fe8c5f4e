package millracetest_test

import (
	"fmt"

	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
)

// Drain handles all jobs on a queue and returns the outcomes.
func ExampleDrain() {
	t := tb{} // in a test: its *testing.T

	q := millracetest.Queue(t)
	millracetest.Send(t, q,
		Parcel{ID: "1", Address: "High Street 1"},
		Parcel{ID: "2", Address: "far away"},
		Parcel{ID: "3"},
		Parcel{ID: "4", Address: "High Street 4"})
	fmt.Println(millracetest.Drain(t, q, deliver, nil))

	// One job waits for its next attempt, and one is in the poison queue.
	millracetest.RequireEnqueued(t, q, Parcel{ID: "2", Address: "far away"})
	for _, r := range millracetest.Enqueued[poison.Record](t, q.Sibling(poison.Suffix)) {
		fmt.Println(r.Queue, r.Reason, r.Error)
	}
	// Output:
	// map[deleted:2 poisoned:1 retried:1]
	// jobs rejected no address
}
