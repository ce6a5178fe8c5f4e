package millracetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// order is the code under test: it sends two parcels, the second of them tomorrow.
func order(ctx context.Context, q queue.Queue) error {
	p := producer.New[Parcel](q, nil)
	if _, err := p.Send(ctx, Parcel{ID: "1", Address: "High Street 1"}, nil); err != nil {
		return err
	}
	_, err := p.Send(ctx, Parcel{ID: "2", Address: "far away"}, &producer.SendOptions{Delay: 24 * time.Hour})
	return err
}

// Enqueued returns all jobs that the code has sent, also those that are still hidden.
func ExampleEnqueued() {
	t := tb{} // in a test: its *testing.T

	q := millracetest.Queue(t)
	if err := order(t.Context(), q); err != nil {
		t.Fatalf("order: %v", err)
	}
	fmt.Println(millracetest.Enqueued[Parcel](t, q))
	// Output: [{1 High Street 1} {2 far away}]
}

// RequireEnqueued ends the test and reports the difference.
func ExampleRequireEnqueued() {
	t := tb{} // in a test: its *testing.T

	q := millracetest.Queue(t)
	if err := order(t.Context(), q); err != nil {
		t.Fatalf("order: %v", err)
	}
	millracetest.RequireEnqueued(t, q, Parcel{ID: "2", Address: "far away"}, Parcel{ID: "3"})
	// Output:
	// millracetest: millracetest/jobs does not hold the 2 jobs expected:
	//   missing:  {"ID":"3","Address":""}
	//   too many: {"ID":"1","Address":"High Street 1"}
}
