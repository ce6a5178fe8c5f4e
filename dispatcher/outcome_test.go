package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestAnUnknownFormatIsRefused(t *testing.T) {
	o := &Options{Format: "xml"}
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if _, err := o.withDefaults(q); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("got error %v, want one that names the format xml", err)
	}
}

func TestErrLeaseLostMatchesTheErrorsOfPackageQueue(t *testing.T) {
	for _, err := range []error{ErrLeaseLost, queue.ErrLeaseLost, queue.ErrMessageGone, queue.ErrReceiptMismatch} {
		if !errors.Is(err, ErrLeaseLost) || !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("%v: want it to match ErrLeaseLost and queue.ErrLeaseLost", err)
		}
	}
}

func TestATimeoutIsADeadlineExceeded(t *testing.T) {
	if !errors.Is(ErrTimeout, context.DeadlineExceeded) || !errors.Is(ErrTimeout, ErrTimeout) {
		t.Error("ErrTimeout: want it to match itself and context.DeadlineExceeded")
	}
	var t1 interface{ Timeout() bool }
	if !errors.As(ErrTimeout, &t1) || !t1.Timeout() {
		t.Error("ErrTimeout: want Timeout() to return true, as for package net")
	}
}

func TestAnErrorOfADeliveryHasItsFields(t *testing.T) {
	e := &DeliveryError{
		Delivery: Delivery{Queue: queue.Name{Account: "shop", Queue: "orders"}, ID: "m1", Job: "j1", Attempt: 2},
		Outcome:  Retried, Delay: 1234567 * time.Microsecond, Err: errors.New("no address"),
	}
	got := ""
	for _, a := range e.LogValue().Group() {
		got += a.String() + "; "
		if _, typed := a.Value.Any().(Outcome); a.Key == "outcome" && !typed { // a handler of a log compares it
			t.Errorf("outcome: got a %T, want an Outcome", a.Value.Any())
		}
	}
	if want := "queue=shop/orders; message=m1; job=j1; attempt=2; outcome=retried; delay=2s; error=no address; "; got != want {
		t.Errorf("LogValue:\ngot  %s\nwant %s", got, want)
	}
	if want := "message m1 of shop/orders, attempt 2, retried, next delivery in 2s: no address"; e.Error() != want {
		t.Errorf("Error:\ngot  %v\nwant %s", e, want)
	}
}
