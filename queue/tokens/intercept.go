package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// comeAgain is how long a message waits whose token was lost.
const comeAgain = time.Second

// Intercept is an interceptor for the listeners of wrapped queues: it sees when handlers return, and ends their contexts, with
// the cause [ErrTokenLost], 15 s before a token could be another's. The first interceptor of a listener should be this
// one, so that what others do counts. An error of a handler that was ended is no attempt, unless it asks for something.
func (l *ConcurrencyLimit) Intercept(ctx context.Context, d dispatcher.Delivery, next func(context.Context) error) error {
	c := l.begin(ctx, d)
	if c == nil {
		return dispatcher.Postpone(comeAgain, fmt.Errorf("the limit «%s»: %w", l.source.limit, ErrTokenLost))
	}
	defer l.returned(c)
	err := next(&c.context)
	if err != nil && errors.Is(context.Cause(&c.context), ErrTokenLost) && !dispatcher.ResultOf(err).Explicit {
		return dispatcher.Snooze(comeAgain)
	}
	return err
}

// begin notes that a handler starts, or returns nil if it must not.
func (l *ConcurrencyLimit) begin(ctx context.Context, d dispatcher.Delivery) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intercepted = true
	now := time.Now()
	l.update(now)
	if l.phase != working {
		return nil
	}
	j := l.jobs.of(d)
	switch {
	case j != nil && j.told:
		return nil
	case j == nil && l.room(now) == 0: // what it was fetched for is gone
		return nil
	case j == nil:
		j = l.add(d.Queue, d.ID, d.DequeueCount, "", now)
	}
	return j.call(ctx, d.Items > 0, now)
}

// returned notes that a handler has returned. Its job is done with, unless it is a group, whose next item may follow.
func (l *ConcurrencyLimit) returned(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.context.end(nil)
	j := c.job
	j.calls = slices.DeleteFunc(j.calls, func(one *call) bool { return one == c })
	l.took += (time.Since(c.begun) - l.took) / 8
	if len(j.calls) == 0 && (j.settled || j.told || !c.group) {
		l.remove(j)
	}
}
