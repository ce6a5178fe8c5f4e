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
		t.subscribeWanted()
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

// interrupted tells every subscriber that listens that it does not.
func (t *Transport) interrupted() {
	for _, c := range t.all() {
		c.confirmed = false
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

// subscribeWanted begins and ends subscriptions at the server.
func (t *Transport) subscribeWanted() {
	for _, c := range t.all() {
		t.mu.Lock()
		ready := c.isReady()
		t.mu.Unlock()
		switch {
		case ready && c.sub == nil:
			// It fails if the connection is closed or about to be. The connection does it again when it
			// has connected again.
			c.sub, _ = t.conn.ChanQueueSubscribe(c.subject, group, t.messages)
		case !ready && c.sub != nil:
			_ = c.sub.Unsubscribe() // it fails if the connection is closed, which ends it too
			c.sub, c.confirmed = nil, false
		}
	}
	t.all() // forgets what has just ended
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

// confirm tells the subscribers that they listen once the server has the subscriptions. It returns
// false if that has to be tried again.
func (t *Transport) confirm() bool {
	var fresh []*channel
	all := t.all()
	for _, c := range all {
		if c.sub != nil && !c.confirmed {
			fresh = append(fresh, c)
		}
	}
	if len(fresh) > 0 {
		if !t.conn.IsConnected() {
			return true // a status follows
		}
		if !t.roundTrip() {
			return false
		}
		for _, c := range fresh {
			c.confirmed = !t.denied(c)
		}
	}
	for _, c := range all {
		if !c.confirmed {
			continue
		}
		for _, s := range t.members(c) {
			s.tell(true)
		}
	}
	return true
}

// roundTrip reports whether the server has answered what was sent before.
func (t *Transport) roundTrip() bool {
	ctx, cancel := context.WithTimeout(t.life, confirmTimeout)
	defer cancel()
	return t.conn.FlushWithContext(ctx) == nil
}

// denied reports whether the server has refused the subscription.
func (t *Transport) denied(c *channel) bool {
	err := t.conn.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+c.subject+`"`)
}
