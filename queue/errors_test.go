package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

func TestALostLeaseIsOneOfTwo(t *testing.T) {
	for _, one := range []error{queue.ErrReceiptMismatch, queue.ErrMessageGone} {
		err := fmt.Errorf("settling: %w", &queue.Error{Kind: one})
		if !errors.Is(err, one) || !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("%v is not a lost lease", one)
		}
	}
	if errors.Is(queue.ErrReceiptMismatch, queue.ErrMessageGone) || errors.Is(queue.ErrLeaseLost, queue.ErrReceiptMismatch) {
		t.Error("the two are not distinct")
	}
	if errors.Is(&queue.Error{Kind: queue.ErrThrottled}, queue.ErrLeaseLost) {
		t.Error("throttled is a lost lease")
	}
}

// The request is repeated after these errors, also where a backend wraps them, and after no other.
func TestTransientErrors(t *testing.T) {
	transient := []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown}
	permanent := []error{
		nil, queue.ErrLeaseLost, queue.ErrReceiptMismatch, queue.ErrMessageGone, queue.ErrTooLarge, queue.ErrQueueMissing,
		queue.ErrQueueExists, queue.ErrQueueBeingDeleted, queue.ErrUnauthorized, queue.ErrInvalid, context.Canceled,
	}
	for _, kind := range transient {
		if err := fmt.Errorf("try 1: %w", &queue.Error{Kind: kind}); !queue.Transient(err) {
			t.Errorf("Transient(%v) = false, want true", err)
		}
	}
	for _, kind := range permanent {
		if err := error(&queue.Error{Kind: kind}); queue.Transient(err) {
			t.Errorf("Transient(%v) = true, want false", err)
		}
	}
	if queue.Transient(nil) {
		t.Error("Transient(nil) = true, want false")
	}
}

// The error text is one line with everything that the service reported, which stays reachable.
//
// Requirement B-05.
func TestAnErrorSaysItAll(t *testing.T) {
	err := driver.Explain(&queue.Error{
		Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy", RequestID: "r-7", Detail: "too much", Hint: "wait",
		Err: context.DeadlineExceeded,
	}, "dequeue", queue.Name{Account: "acme", Queue: "orders"}, "m-1")
	for _, want := range []string{"dequeue", "acme/orders", "m-1", "throttled", "too much", "503", "ServerBusy", "r-7", "deadline exceeded", "wait"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Error("more than a line")
	}
	if !errors.Is(err, queue.ErrThrottled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error("the kind or the cause is out of reach")
	}
	plain := driver.Explain(context.Canceled, "peek", queue.Name{Account: "a", Queue: "b"}, "")
	if !errors.Is(plain, context.Canceled) || plain.Error() != "peek on a/b: context canceled" {
		t.Errorf("got %q, want peek on a/b: context canceled", plain)
	}
}

func TestReceiptsAreNeverPrinted(t *testing.T) {
	m := queue.Message{Lease: queue.Lease{ID: "id", Receipt: "secret"}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if s := fmt.Sprintf(format, m); strings.Contains(s, "secret") {
			t.Errorf("%s: got %s, want no receipt in it", format, s)
		}
	}
}
