package handlertests

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
)

// carrier is a carrier of which a test says what it does.
type carrier func(ctx context.Context) error

func (c carrier) Collect(ctx context.Context, _, _ string) error { return c(ctx) }

var (
	errBusy = errors.New("the carrier is busy")
	willing = carrier(func(context.Context) error { return nil })
	busy    = carrier(func(context.Context) error { return errBusy })
	asleep  = carrier(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
)

var order = Order{ID: "7", Address: "High Street 1"}

func TestAnOrderIsShipped(t *testing.T) {
	if r := millracetest.Work(t, Ship(willing), order, nil); r.Outcome != listener.Deleted {
		t.Errorf("it was %v: %v", r.Outcome, r.Err)
	}
}

func TestABusyCarrierIsAskedAgain(t *testing.T) {
	r := millracetest.Work(t, Ship(busy), order, nil)
	if r.Outcome != listener.Retried || !errors.Is(r.Err, errBusy) || r.Delay == 0 {
		t.Errorf("it was %v: %v, again in %v", r.Outcome, r.Err, r.Delay)
	}
}

func TestAnOrderIsPoisonInTheEnd(t *testing.T) {
	r := millracetest.Work(t, Ship(busy), order, &listener.Options[Order]{Poison: poison.Policy{MaxAttempts: 1}})
	if r.Outcome != listener.Poisoned || r.Poison.Reason != poison.ReasonAttempts {
		t.Errorf("it was %v: %v", r.Outcome, r.Err)
	}
}

func TestWithoutAnAddressNothingIsTried(t *testing.T) {
	r := millracetest.Work(t, Ship(nil), Order{ID: "7"}, nil)
	if r.Outcome != listener.Poisoned || !errors.Is(r.Err, ErrNoAddress) || r.Attempts != 1 {
		t.Errorf("it was %v after %d attempts: %v", r.Outcome, r.Attempts, r.Err)
	}
}

// In a bubble of synctest a day takes no time.
func TestAnOrderForTomorrowIsShippedTomorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		tomorrow := order
		tomorrow.NotBefore = time.Now().Add(24 * time.Hour)
		millracetest.Send(t, q, tomorrow)
		if got := millracetest.Drain(t, q, Ship(nil), nil); got[listener.Snoozed] != 1 {
			t.Errorf("today: %v", got)
		}
		time.Sleep(24 * time.Hour)
		if got := millracetest.Drain(t, q, Ship(willing), nil); got[listener.Deleted] != 1 {
			t.Errorf("tomorrow: %v", got)
		}
		millracetest.RequireEmpty(t, q)
	})
}

func TestACarrierThatSleepsIsGivenUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := millracetest.Work(t, Ship(asleep), order, &listener.Options[Order]{Timeout: 10 * time.Minute})
		if r.Outcome != listener.Retried || !errors.Is(r.Err, listener.ErrTimeout) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("it was %v: %v", r.Outcome, r.Err)
		}
		if took := time.Since(begin); took != 10*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
