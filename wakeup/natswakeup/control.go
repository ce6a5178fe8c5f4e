package natswakeup

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	confirmTimeout = 2 * time.Second // for a round trip to the server
	retryInterval  = time.Second     // after one that has failed
)

// control makes the subscriptions at the server what the subscribers want, and tells them. It is the
// only goroutine that does either.
func (t *Transport) control() {
	defer t.conn.RemoveStatusListener(t.status)
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		ended := false
		select {
		case <-t.kick:
		case <-retry.C:
		case <-t.status:
			// Statuses are dropped when many come at once, so any counts as an interruption.
			for len(t.status) > 0 {
				<-t.status
			}
			t.interrupted()
		case <-t.life.Done():
			ended = true
		}
		t.endUnwanted()
		t.handOn()
		t.sendMissed()
		if ended {
			return
		}
		if !t.confirm() {
			retry.Reset(retryInterval)
		}
	}
}

// all returns the channels. Those without subscribers, at the server too, are forgotten.
func (t *Transport) all() []*channel {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*channel
	for q, c := range t.channels {
		if len(c.members) == 0 && c.sub == nil && c.asked == 0 {
			delete(t.channels, q)
			delete(t.subjects, c.subject)
			continue
		}
		all = append(all, c)
	}
	return all
}

// interrupted tells every subscriber that listens that it does not. The subscriptions end, although the
// connection would begin them again: it does not say which of them the server has refused.
func (t *Transport) interrupted() {
	for _, c := range t.all() {
		c.unsubscribe()
		for _, s := range t.members(c) {
			s.tell(false)
		}
	}
}

// members returns the subscribers of a channel that are ready.
func (t *Transport) members(c *channel) []*subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ready []*subscription
	for s := range c.members {
		if s.ready {
			ready = append(ready, s)
		}
	}
	return ready
}

// endUnwanted ends the subscriptions at the server that nobody needs any more.
func (t *Transport) endUnwanted() {
	for _, c := range t.all() {
		if !t.isReady(c) {
			c.unsubscribe()
		}
	}
}

func (t *Transport) isReady(c *channel) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.isReady()
}

// handOn sends what other processes are to hear.
func (t *Transport) handOn() {
	t.mu.Lock()
	events := t.forward
	t.forward = nil
	t.mu.Unlock()
	for _, f := range events {
		t.send(f.subject, f.payload)
	}
	for _, c := range t.all() {
		t.mu.Lock()
		n := c.asked
		c.asked = 0
		t.mu.Unlock()
		for range n {
			t.send(c.subject, payload{From: t.id})
		}
	}
}

// send sends a hint that nobody misses if the connection is down.
func (t *Transport) send(subject string, p payload) {
	data, err := p.encode()
	if err == nil && t.conn.IsConnected() {
		_ = t.conn.Publish(subject, data)
	}
}

// confirm begins the subscriptions at the server that are missing, and tells the subscribers that they
// listen once it has them. It returns false if that has to be tried again.
func (t *Transport) confirm() bool {
	var fresh []*channel
	all := t.all()
	for _, c := range all {
		if !c.confirmed && !c.denied && t.isReady(c) {
			fresh = append(fresh, c)
		}
	}
	// While the connection is down there is nothing to do: a status follows.
	done := len(fresh) == 0 || !t.conn.IsConnected() || t.begin(fresh)
	for _, c := range all {
		if !c.confirmed {
			continue
		}
		for _, s := range t.members(c) {
			s.tell(true)
		}
	}
	return done
}

// begin begins subscriptions at the server. A refusal is an error of the connection, which keeps only the
// last one. So if there is a new one, each subscription begins again by itself. It returns false if that
// has to be tried again.
func (t *Transport) begin(fresh []*channel) bool {
	before := t.conn.LastError()
	for _, c := range fresh {
		c.unsubscribe()
		// It fails if the connection is closed or about to be.
		c.sub, _ = t.conn.ChanQueueSubscribe(c.subject, group, t.messages)
	}
	if !t.roundTrip() {
		return false
	}
	err := t.conn.LastError()
	switch {
	case err == before: //nolint:errorlint // the same error, not the same kind
		for _, c := range fresh {
			c.confirmed = c.sub != nil
		}
		return true
	case len(fresh) == 1:
		fresh[0].denied = isRefused(err, fresh[0].subject)
		return fresh[0].denied // any other error may have replaced a refusal
	}
	done := true
	for _, c := range fresh {
		done = t.begin([]*channel{c}) && done
	}
	return done
}

// roundTrip reports whether the server has answered what was sent before.
func (t *Transport) roundTrip() bool {
	ctx, cancel := context.WithTimeout(t.life, confirmTimeout)
	defer cancel()
	return t.conn.FlushWithContext(ctx) == nil
}

// isRefused reports whether the error is that the server has refused a subscription to the subject.
func isRefused(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Subscription to "`+subject+`"`)
}
