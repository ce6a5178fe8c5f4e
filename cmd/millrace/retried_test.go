package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// TestCommandsRepeatWhatFailsForAMoment: each command succeeds, although its first requests are
// refused or have no response.
func TestCommandsRepeatWhatFailsForAMoment(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{"*:503@#1,2", "*:500@#1,2", "*:drop@#1,2", "*:reset@#1,2"} {
		for _, line := range []string{
			"queues", "queues -names", "create new-QUEUE", "drop QUEUE -yes", "peek QUEUE", "clear QUEUE -yes", "stat QUEUE", "stat",
			"pause QUEUE", "resume QUEUE", "poison list QUEUE", "poison stats QUEUE", "poison redrive QUEUE -yes", "poison purge QUEUE -yes", "instances QUEUE",
		} {
			t.Run(rules+" "+line, func(t *testing.T) {
				t.Parallel()
				v := on(startServer(t))
				name := createQueue(t, v)
				v.ok(t, "faults", "set", rules)
				v.ok(t, strings.Fields(strings.ReplaceAll(line, "QUEUE", name))...)
			})
		}
	}
}

// failing is a queue whose properties cannot be read.
type failing struct {
	queue.Manager
	err   error
	sends int
	sent  func()
}

func (f *failing) Properties(context.Context) (queue.Properties, error) {
	f.sends++
	if f.sent != nil {
		f.sent()
	}
	return queue.Properties{}, f.err
}

// TestALastingFailureIsReported: a refusal that lasts, after [patience]; one that waiting does not
// mend, immediately; and after a signal, nothing is repeated.
func TestALastingFailureIsReported(t *testing.T) {
	t.Parallel()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: "orders"})
	busy := &queue.Error{Kind: queue.ErrUnavailable, Status: 503}
	for _, c := range []struct {
		err   error
		lasts bool
	}{
		{busy, true},
		{&queue.Error{Kind: queue.ErrOutcomeUnknown}, true},
		{&queue.Error{Kind: queue.ErrUnavailable}, false}, // no server there
		{&queue.Error{Kind: queue.ErrUnauthorized, Status: 403}, false},
		{&queue.Error{Kind: queue.ErrQueueMissing, Status: 404}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			f := &failing{Manager: q, err: c.err}
			_, err := retriedQueue{f, t.Context()}.Properties(t.Context())
			took := time.Since(begin)
			if !errors.Is(err, c.err) || c.lasts != (took >= patience) || c.lasts != (f.sends > 5) || took > 2*patience {
				t.Errorf("got %v after %d requests in %v, want %v, repeated %v", err, f.sends, took, c.err, c.lasts)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		stop, signal := context.WithCancel(t.Context())
		f := &failing{Manager: q, err: busy, sent: signal}
		if _, err := (retriedQueue{f, stop}).Properties(t.Context()); !errors.Is(err, context.Canceled) || f.sends != 1 {
			t.Errorf("got %v after %d requests, want that it was canceled after the first", err, f.sends)
		}
	})
}

// TestALostResponseOfADropIsNoFailure: the queue is gone, as was asked for.
func TestALostResponseOfADropIsNoFailure(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	v.ok(t, "faults", "set", "DeleteQueue:drop@#1")
	if got := v.ok(t, "drop", name, "-yes"); !strings.Contains(got, "is deleted") {
		t.Errorf("got %q, want that it is deleted", got)
	}
}
