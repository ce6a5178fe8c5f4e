package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// delivery is one message on its way through the dispatcher, on a goroutine of
// its own.
type delivery[T any] struct {
	dispatcher *Dispatcher[T]
	message    queue.Message
	lease      lease
	start      bool // whether its handler may start
}

// attempt is the number of this run. The dequeue count stands for it: the first
// delivery is 1.
func (v *delivery[T]) attempt() int { return int(min(v.message.DequeueCount, 1<<30)) }

// run takes the message from its slot to its settlement.
func (v *delivery[T]) run(asked time.Time, visibility time.Duration) {
	if !v.start {
		v.settle(decision{outcome: GivenBack}, held, false)
		return
	}
	// Poison comes before decoding and handling: what a worker died of must
	// not be touched again.
	if v.attempt() > v.dispatcher.options.Poison.MaxAttempts {
		v.settle(v.poisoned(poison.ReasonAttempts, errors.New("every attempt ended without a result: the worker died or lost its lease")), held, false)
		return
	}
	if v.lifeEnds() {
		v.settle(v.poisoned(poison.ReasonExpiring, errors.New("its life ends before a handler could finish")), held, false)
		return
	}
	body, err := v.decode()
	if err != nil {
		v.settle(v.poisoned(poison.ReasonUndecodable, err), held, false)
		return
	}
	v.handle(body, asked, visibility)
}

func (v *delivery[T]) decode() (T, error) {
	o := &v.dispatcher.options
	body, _, err := codec.Open(v.message.Text, o.Format)
	if err != nil {
		var none T
		return none, err
	}
	return o.Codec.Decode(body)
}

// handle runs the handler under a kept lease and settles what it said.
func (v *delivery[T]) handle(body T, asked time.Time, visibility time.Duration) {
	d := v.dispatcher
	ctx, cancel := context.WithCancelCause(d.handlers)
	v.lease.cancel = cancel
	begin := time.Now()
	if d.options.Timeout > 0 {
		v.lease.deadline = begin.Add(d.options.Timeout)
	}
	d.slots.started()
	d.keeper.hold(&v.lease, asked, visibility)

	err := errGoexit
	// In a deferred call, because runtime.Goexit in a handler runs nothing else.
	defer func() {
		d.follow.record(time.Since(begin))
		newest, state := d.keeper.release(&v.lease)
		v.message.Lease = newest
		stopping := errors.Is(context.Cause(ctx), ErrStopping)
		timedOut := errors.Is(context.Cause(ctx), ErrTimeout)
		cancel(nil)
		if timedOut && err != nil {
			err = fmt.Errorf("%w after %v: %w", ErrTimeout, d.options.Timeout, err)
		}
		v.settle(v.decide(err, state, stopping), state, true)
	}()
	err = d.call(ctx, &Message[T]{
		Body: body, ID: v.message.ID, Queue: d.queue.Name(), Attempt: v.attempt(),
		Inserted: v.message.Inserted, Expires: v.message.Expires,
	})
}

// call runs the handler, a panic in it becoming an error: one message's failure is
// its own.
func (d *Dispatcher[T]) call(ctx context.Context, m *Message[T]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return d.handler(ctx, m)
}

// decision is what is to be done with a message.
type decision struct {
	outcome Outcome
	delay   time.Duration
	reason  poison.Reason
	err     error
}

// decide turns a handler's result into what is to be done.
func (v *delivery[T]) decide(err error, state leaseState, stopping bool) decision {
	said := (*verdict)(nil)
	explicit := errors.As(err, &said)
	switch {
	case state == expired && err != nil && v.lifeEnds():
		return v.poisoned(poison.ReasonExpiring, err)
	case state == lost, state == expired && err != nil:
		return decision{outcome: Lost, err: errors.Join(cause(state), err)}
	case err == nil:
		return decision{outcome: Deleted}
	case stopping && (!explicit || said.outcome == Retried || errors.Is(err, context.Canceled)):
		return decision{outcome: GivenBack}
	case explicit && said.outcome == Discarded:
		return decision{outcome: Discarded, err: err}
	case explicit && said.outcome == Poisoned:
		return v.poisoned(poison.ReasonRejected, err)
	case v.attempt() >= v.dispatcher.options.Poison.MaxAttempts:
		return v.poisoned(poison.ReasonAttempts, err)
	case explicit:
		return v.again(said.delay, err)
	}
	return v.again(min(max(v.dispatcher.options.RetryDelay(v.attempt(), err), 0), queue.MaxVisibility), err)
}

// lifeEnds tells whether the message's own life is over, or all but: then nobody else
// will have it, and what its handler did not finish is worth a copy.
func (v *delivery[T]) lifeEnds() bool {
	return !v.lease.end.IsZero() && time.Until(v.lease.end) < time.Second
}

func cause(s leaseState) error {
	if s == lost {
		return ErrLeaseLost
	}
	return ErrLeaseExpired
}

// again gives the message back for another attempt after the delay, or less if its
// life ends before that attempt could; with no second left it is poison, because
// the service would drop it in silence (invariant 1).
func (v *delivery[T]) again(delay time.Duration, err error) decision {
	if !v.lease.end.IsZero() {
		room := time.Until(v.lease.end) - v.dispatcher.Visibility()
		if room < time.Second {
			return v.poisoned(poison.ReasonExpiring, err)
		}
		delay = min(delay, room.Truncate(time.Second))
	}
	return decision{outcome: Retried, delay: delay, err: err}
}

// poisoned moves the message away, or keeps it hidden where there is nowhere to
// move it to.
func (v *delivery[T]) poisoned(reason poison.Reason, err error) decision {
	if v.dispatcher.options.Poison.Keep {
		delay := maxRetryDelay
		if !v.lease.end.IsZero() {
			delay = min(delay, max(time.Until(v.lease.end), 0).Truncate(time.Second))
		}
		return decision{outcome: Kept, delay: delay, reason: reason, err: err}
	}
	return decision{outcome: Poisoned, reason: reason, err: err}
}
