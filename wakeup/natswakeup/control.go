package natswakeup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
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
			// Every subscriber that listens is told that it does not. The subscriptions end, although the
			// connection would begin them again: it does not say which of them the server has refused.
			for _, c := range t.all() {
				c.unsubscribe()
				for _, s := range t.members(c) {
					s.tell(false)
				}
			}
		case <-t.life.Done():
			ended = true
		}
		for _, c := range t.all() {
			if !t.isReady(c) { // nobody needs it at the server any more
				c.unsubscribe()
			}
		}
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
	ctx, cancel := context.WithTimeout(t.life, confirmTimeout)
	defer cancel()
	if t.conn.FlushWithContext(ctx) != nil { // the server has not answered what was sent before
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

// isRefused reports whether the error is that the server has refused a subscription to the subject.
func isRefused(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `Subscription to "`+subject+`"`)
}

// maxForward bounds how many events wait to be handed on.
const maxForward = 64

// forwarded is an event for another process.
type forwarded struct {
	subject string
	payload payload
}

// deliver calls the subscribers until the transport is closed.
func (t *Transport) deliver() {
	for {
		select {
		case m := <-t.messages:
			t.received(m)
		case <-t.life.Done():
			return
		}
	}
}

// received gives a message to all subscribers that are ready. If none is any more, or if it asks for
// another process than this, it is handed on.
func (t *Transport) received(m *nats.Msg) {
	p, err := decode(m.Data)
	if err != nil {
		return // not ours; reporting each would help whoever wants to flood the log
	}
	t.mu.Lock()
	c := t.subjects[m.Subject]
	var members []*subscription
	if c != nil && p.From != t.id {
		for s := range c.members {
			members = append(members, s)
		}
	}
	t.mu.Unlock()
	members = slices.DeleteFunc(members, func(s *subscription) bool {
		return !s.hear(p)
	})
	if len(members) > 0 || p.Hops >= maxHops {
		return
	}
	p.Hops++
	t.mu.Lock()
	if len(t.forward) < maxForward {
		t.forward = append(t.forward, forwarded{m.Subject, p})
	}
	t.mu.Unlock()
	t.wakeController() // which first ends the subscription, so that this process is not chosen again
}

// version is that of the payload. Others are ignored.
const version = 1

// maxPayload bounds what is read; ours have about 100 bytes.
const maxPayload = 512

// maxHops bounds how often an event is handed on. NATS chooses at random, the sender of More included:
// if one other process is ready, so many choices miss it once in a million times.
const maxHops = 20

// maxSkew is how far the clock of a publisher may be ahead.
const maxSkew = time.Hour

// payload is the body of a message. The queue is in the subject.
type payload struct {
	Version int       `json:"v"`
	Bytes   int64     `json:"bytes,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	From    string    `json:"from,omitempty"` // the transport that asked for another process
	Hops    int       `json:"hops,omitempty"` // how often it was handed on
}

func (p payload) encode() ([]byte, error) {
	p.Version = version
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return data, nil
}

// decode refuses what no publisher of ours sends.
func decode(data []byte) (payload, error) {
	var p payload
	if len(data) > maxPayload {
		return p, fmt.Errorf("%d bytes", len(data))
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, err
	}
	switch {
	case p.Version != version:
		return p, fmt.Errorf("version %d", p.Version)
	case p.Bytes < 0 || p.Hops < 0 || p.Hops > maxHops:
		return p, errors.New("a number is out of range")
	case time.Until(p.Due) > queue.MaxVisibility+maxSkew:
		return p, errors.New("due later than any message can be")
	}
	return p, nil
}

// group is the queue group in which NATS chooses one process.
const group = "millrace"

// maxSubject bounds subjects; servers accept 4,096 bytes for a whole line of the protocol.
const maxSubject = 1024

// subject returns the subject of a queue. Different queues have different ones.
func subject(prefix string, q queue.Name) string {
	return prefix + "." + token(q.Account) + "." + token(q.Queue)
}

// token escapes a name for a subject. Different names have different tokens, and none is empty.
func token(name string) string {
	if name == "" {
		return "="
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	return b.String()
}

// checkPrefix refuses what cannot begin a subject.
func checkPrefix(prefix string) error {
	for part := range strings.SplitSeq(prefix, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }) {
			return fmt.Errorf("the Prefix %.60q cannot begin a subject: use words of letters, digits, hyphens and underscores, separated by dots", prefix)
		}
	}
	if len(prefix) > maxSubject/2 {
		return fmt.Errorf("the Prefix has %d bytes, at most %d are possible", len(prefix), maxSubject/2)
	}
	return nil
}
