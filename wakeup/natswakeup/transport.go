package natswakeup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
	"github.com/nats-io/nats.go"
)

// maxPending is how many messages of NATS may wait for the subscribers of a process. They are hints:
// what is beyond is dropped.
const maxPending = 256

// ErrClosed is the error of a [Transport] that was closed.
var ErrClosed = errors.New("natswakeup: the transport is closed")

// ErrDisconnected is the error of Publish when the connection is down and too many events are kept.
var ErrDisconnected = errors.New("natswakeup: the connection is down")

// Options configure a [Transport]. Nil and the zero value mean the defaults.
type Options struct {
	// Prefix begins all subjects, so that several systems can share a server. Defaults to
	// "millrace.wakeup".
	Prefix string
}

// Transport is a [wakeup.Source] and [wakeup.Publisher] over a connection to NATS. Make one with [New],
// one for each connection. It is safe for concurrent use.
type Transport struct {
	conn   *nats.Conn
	id     string // tells this transport from others
	prefix string

	messages chan *nats.Msg
	status   chan nats.Status
	kick     chan struct{}   // holds an element when the controller has something to do
	life     context.Context // ended by Close
	end      context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool                    // guarded by mu
	channels map[queue.Name]*channel // guarded by mu
	subjects map[string]*channel     // the same by subject; guarded by mu
	forward  []forwarded             // what is to be handed on; guarded by mu
	missed   map[eventKey]int64      // the bytes of events that wait for the connection; guarded by mu
}

// New returns a transport over the connection, which remains the caller's: its handlers are not
// touched. It does not wait for the connection. It refuses a nil connection and a Prefix that cannot
// begin a subject.
func New(conn *nats.Conn, o *Options) (*Transport, error) {
	prefix := cmp.Or(cmp.Or(o, &Options{}).Prefix, "millrace.wakeup")
	if conn == nil {
		return nil, errors.New("make a transport for wake-ups: the connection is nil: pass the one that nats.Connect returned")
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("make a transport for wake-ups: %w", err)
	}
	t := &Transport{
		conn: conn, id: rand.Text(), prefix: prefix,
		messages: make(chan *nats.Msg, maxPending),
		status:   conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED, nats.DRAINING_SUBS, nats.DRAINING_PUBS),
		kick:     make(chan struct{}, 1),
		channels: make(map[queue.Name]*channel),
		subjects: make(map[string]*channel),
		missed:   make(map[eventKey]int64),
	}
	t.life, t.end = context.WithCancel(context.Background())
	t.running.Go(t.control)
	t.running.Go(t.deliver)
	return t, nil
}

// Publish hands the event to the connection. While that is down, one event is kept for each queue and
// due time, and published when it is there again. When there are too many, the error is
// [ErrDisconnected]. The context is not used, because nothing is waited for but the write buffer of
// the connection.
func (t *Transport) Publish(_ context.Context, q queue.Name, bytes int64, due time.Time) error {
	if err := t.publish(eventKey{q, due.Round(0).UTC()}, max(0, bytes)); err != nil {
		return fmt.Errorf("publish that work has come to %v: %w", q, err)
	}
	return nil
}

func (t *Transport) publish(e eventKey, bytes int64) error {
	s, err := t.subject(e.queue)
	if err != nil {
		return err
	}
	data, err := payload{Bytes: bytes, Due: e.due}.encode()
	if err != nil {
		return err
	}
	switch {
	case t.conn.IsClosed():
		return nats.ErrConnectionClosed
	case !t.conn.IsConnected():
		return t.keep(e, bytes)
	}
	err = t.conn.Publish(s, data)
	if broken := (*net.OpError)(nil); errors.As(err, &broken) { // a status follows
		return t.keep(e, bytes)
	}
	return err
}

// subject returns a subject, unless nothing can be sent or received with it.
func (t *Transport) subject(q queue.Name) (string, error) {
	if t.life.Err() != nil {
		return "", ErrClosed
	}
	s := subject(t.prefix, q)
	if len(s) > maxSubject {
		return "", fmt.Errorf("its subject has %d bytes, at most %d are possible", len(s), maxSubject)
	}
	return s, nil
}

// Subscribe registers a subscriber. It is told that it listens when the server has confirmed that.
// After Close, or when the connection is closed for good, it is an error.
func (t *Transport) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	m, err := t.subscribe(q, event, listening)
	if err != nil {
		return nil, fmt.Errorf("subscribe to wake-ups of %v: %w", q, err)
	}
	return m, nil
}

func (t *Transport) subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (*subscription, error) {
	on, err := t.subject(q)
	if err != nil {
		return nil, err
	}
	if t.conn.IsClosed() {
		return nil, nats.ErrConnectionClosed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	c := t.channels[q]
	if c == nil {
		c = &channel{queue: q, subject: on, members: make(map[*subscription]struct{})}
		t.channels[q], t.subjects[on] = c, c
	}
	m := &subscription{transport: t, channel: c, event: event, listening: listening, ready: true}
	c.members[m] = struct{}{}
	t.wakeController()
	return m, nil
}

// Close ends all subscriptions and waits for the goroutines of the transport. It does not close the
// connection. Subscribers are not told. A second Close only waits. The error is always nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	var all []*subscription
	for _, c := range t.channels {
		for m := range c.members {
			all = append(all, m)
		}
	}
	t.mu.Unlock()
	for _, m := range all {
		_ = m.Close()
	}
	t.end()
	t.running.Wait()
	return nil
}

func (t *Transport) wakeController() { waiting.Signal(t.kick, struct{}{}) }

// maxMissed bounds how many events are kept while the connection is down.
const maxMissed = 1024

// eventKey tells events from others while they are kept; their bytes are added up.
type eventKey struct {
	queue queue.Name
	due   time.Time // in UTC, without a reading of the monotonic clock
}

// keep keeps an event until the connection is there again. Subscribers dequeue when they connect, but
// they may do so earlier than this process.
func (t *Transport) keep(key eventKey, bytes int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.missed[key]; !known && len(t.missed) >= maxMissed {
		return ErrDisconnected
	}
	t.missed[key] += bytes
	t.wakeController() // it may be there again by now
	return nil
}

// sendMissed publishes what was kept, if the connection is there.
func (t *Transport) sendMissed() {
	if !t.conn.IsConnected() {
		return // a status follows
	}
	t.mu.Lock()
	missed := t.missed
	t.missed = make(map[eventKey]int64)
	t.mu.Unlock()
	for key, bytes := range missed {
		_ = t.publish(key, bytes) // keeps it if the connection has broken
	}
}

// maxMore bounds how many calls of More wait to be sent.
const maxMore = 16

// channel is what a process hears about one queue, for all subscribers that it has.
type channel struct {
	queue   queue.Name
	subject string

	members map[*subscription]struct{} // guarded by Transport.mu
	asked   int                        // calls of More that were not sent yet; guarded by Transport.mu

	// Only the controller uses these.
	sub       *nats.Subscription // or nil
	confirmed bool               // the server has confirmed it, on this connection
	denied    bool               // the server has refused it, on this connection
}

// unsubscribe ends the subscription at the server, if there is one. Only the controller calls it.
func (c *channel) unsubscribe() {
	if c.sub != nil {
		_ = c.sub.Unsubscribe() // it fails if the connection is closed, which ends it too
	}
	c.sub, c.confirmed, c.denied = nil, false, false
}

// isReady reports whether any subscriber is. Requires Transport.mu.
func (c *channel) isReady() bool {
	for m := range c.members {
		if m.ready {
			return true
		}
	}
	return false
}

type subscription struct {
	transport *Transport
	channel   *channel
	event     func(q queue.Name, bytes int64, due time.Time)
	listening func(bool)

	ready bool // guarded by Transport.mu
	told  bool // that it listens, since it is ready; guarded by Transport.mu

	calling sync.Mutex // held while the subscriber is called; comes before Transport.mu
}

// Ready says whether the subscriber has room for work.
func (s *subscription) Ready(ready bool) {
	t := s.transport
	if !ready { // a call that is under way ends first, so that none is for an earlier Ready
		s.calling.Lock()
		defer s.calling.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := s.channel.members[s]; !open || s.ready == ready {
		return
	}
	s.ready, s.told = ready, false
	t.wakeController()
}

// More wakes another process.
func (s *subscription) More() {
	t := s.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := s.channel.members[s]; !open || s.channel.asked >= maxMore {
		return
	}
	s.channel.asked++
	t.wakeController()
}

// Close ends the subscription.
func (s *subscription) Close() error {
	s.Ready(false)
	s.calling.Lock() // what was under way, even if it was not ready
	defer s.calling.Unlock()
	t := s.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(s.channel.members, s)
	t.wakeController()
	return nil
}

// tell calls listening if the subscriber is ready and this is news. Only the controller calls it, which
// also ends the subscription at the server: so what it tells is true whatever Ready says meanwhile.
func (s *subscription) tell(listening bool) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.transport.mu.Lock()
	news := s.ready && s.told != listening
	if news {
		s.told = listening
	}
	s.transport.mu.Unlock()
	if news {
		s.listening(listening)
	}
}

// hear calls event if the subscriber is ready, and reports whether it was.
func (s *subscription) hear(p payload) bool {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.transport.mu.Lock()
	ready := s.ready
	s.transport.mu.Unlock()
	if ready {
		s.event(s.channel.queue, p.Bytes, p.Due)
	}
	return ready
}
