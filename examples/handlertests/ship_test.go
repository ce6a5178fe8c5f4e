package handlertests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
)

// carrier is a Carrier whose behaviour the test defines.
type carrier func(ctx context.Context) error

func (c carrier) Collect(ctx context.Context, _, _ string) error { return c(ctx) }

var (
	errBusy = errors.New("the carrier is busy")
	ready   = carrier(func(context.Context) error { return nil })
	busy    = carrier(func(context.Context) error { return errBusy })
	hanging = carrier(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
)

var order = Order{ID: "7", Address: "High Street 1"}

func TestAnOrderIsShipped(t *testing.T) {
	if r := millracetest.Work(t, Ship(ready), order, nil); r.Outcome != listener.Deleted {
		t.Errorf("got %v, error %v; want deleted", r.Outcome, r.Err)
	}
}

func TestAnOrderIsRetriedWhileTheCarrierIsBusy(t *testing.T) {
	r := millracetest.Work(t, Ship(busy), order, nil)
	if r.Outcome != listener.Retried || !errors.Is(r.Err, errBusy) || r.Delay == 0 {
		t.Errorf("got %v, error %v, delay %v; want retried with %v after a delay", r.Outcome, r.Err, r.Delay, errBusy)
	}
}

func TestAnOrderIsPoisonAfterItsLastAttempt(t *testing.T) {
	r := millracetest.Work(t, Ship(busy), order, &listener.Options[Order]{Poison: poison.Policy{MaxAttempts: 1}})
	if r.Outcome != listener.Poisoned || r.Poison.Reason != poison.ReasonAttempts {
		t.Errorf("got %v, error %v; want poisoned with the reason attempts", r.Outcome, r.Err)
	}
}

func TestAnOrderWithoutAnAddressIsPoison(t *testing.T) {
	r := millracetest.Work(t, Ship(nil), Order{ID: "7"}, nil)
	if r.Outcome != listener.Poisoned || !errors.Is(r.Err, ErrNoAddress) || r.Attempts != 1 {
		t.Errorf("got %v after %d attempts, error %v; want poisoned after 1, %v", r.Outcome, r.Attempts, r.Err, ErrNoAddress)
	}
}

// Large bodies are stored, here in memory, and the listener opens them.
func TestAnOrderWithALongAddressIsShipped(t *testing.T) {
	claims, err := claimcheck.New(blob.Memory(), "bodies", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := millracetest.WithClaims(millracetest.Queue(t), claims)
	long := Order{ID: "7", Address: strings.Repeat("High Street ", 10_000)}
	millracetest.Send(t, q, long)
	millracetest.RequireEnqueued(t, q, long)
	got := millracetest.Drain(t, q, Ship(ready), &listener.Options[Order]{Claims: claims})
	if got[listener.Deleted] != 1 {
		t.Errorf("got %v, want one deleted", got)
	}
}

// In a synctest bubble a day takes no time.
func TestAnOrderForTomorrowIsShippedTomorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		tomorrow := order
		tomorrow.NotBefore = time.Now().Add(24 * time.Hour)
		millracetest.Send(t, q, tomorrow)
		if got := millracetest.Drain(t, q, Ship(nil), nil); got[listener.Snoozed] != 1 {
			t.Errorf("today: got %v, want one snoozed", got)
		}
		time.Sleep(24 * time.Hour)
		if got := millracetest.Drain(t, q, Ship(ready), nil); got[listener.Deleted] != 1 {
			t.Errorf("tomorrow: got %v, want one deleted", got)
		}
		millracetest.RequireEmpty(t, q)
	})
}

func TestAHangingCarrierTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := millracetest.Work(t, Ship(hanging), order, &listener.Options[Order]{Timeout: 10 * time.Minute})
		if r.Outcome != listener.Retried || !errors.Is(r.Err, listener.ErrTimeout) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("got %v, error %v; want retried with ErrTimeout", r.Outcome, r.Err)
		}
		if took := time.Since(begin); took != 10*time.Minute {
			t.Errorf("got a duration of %v; want %v", took, 10*time.Minute)
		}
	})
}
