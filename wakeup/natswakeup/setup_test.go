package natswakeup

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = queue.Name{Account: "acme", Queue: "orders"}

// serve starts a server. Port -1 means any.
func serve(t *testing.T, port int, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// setup connects a transport to a server.
func setup(t *testing.T, s *server.Server, options ...nats.Option) *Transport {
	t.Helper()
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	options = append([]nats.Option{quiet, nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0), nats.MaxReconnects(-1)}, options...)
	var closed sync.WaitGroup
	closed.Add(1)
	conn, err := nats.Connect(s.ClientURL(), append(options, nats.ClosedHandler(func(*nats.Conn) { closed.Done() }))...)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.Close()
		conn.Close()
		closed.Wait()
	})
	return transport
}

// recorder is a subscriber that passes on what it hears. The channels must not fill up.
type recorder struct {
	wakeup.Subscription
	events    chan event
	listening chan bool
}

func subscribe(t *testing.T, transport *Transport, q queue.Name) *recorder {
	t.Helper()
	r := &recorder{events: make(chan event, 1<<16), listening: make(chan bool, 1<<10)}
	s, err := transport.Subscribe(q, func(q queue.Name, bytes int64, due time.Time) {
		r.events <- event{q, bytes, due}
	}, func(l bool) { r.listening <- l })
	if err != nil {
		t.Fatal(err)
	}
	r.Subscription = s
	return r
}

// listener returns a recorder that listens.
func listener(t *testing.T, transport *Transport, q queue.Name) *recorder {
	t.Helper()
	r := subscribe(t, transport, q)
	r.awaitListening(t, true)
	return r
}

// receive waits for the next element of a channel.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	tooLong := time.NewTimer(30 * time.Second)
	defer tooLong.Stop()
	select {
	case v := <-c:
		return v
	case <-tooLong.C:
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// awaitListening waits until the subscriber was told that it listens, or not.
func (r *recorder) awaitListening(t *testing.T, want bool) {
	t.Helper()
	for receive(t, "Listening", r.listening) != want {
	}
}

func (r *recorder) awaitEvent(t *testing.T, bytes int64) {
	t.Helper()
	for receive(t, "an event", r.events).Bytes != bytes {
	}
}

func publish(t *testing.T, transport *Transport, q queue.Name, bytes int64, due time.Time) {
	t.Helper()
	if err := transport.Publish(t.Context(), q, bytes, due); err != nil {
		t.Error(err)
	}
}

// wanted returns how many subscriptions the transport should have at the server.
func (t *Transport) wanted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.channels {
		if c.isReady() {
			n++
		}
	}
	return n
}

// settle waits until the server has the subscriptions that the transports want.
func settle(t *testing.T, s *server.Server, all []*Transport, others int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		want := others
		for _, transport := range all {
			want += transport.wanted()
		}
		got := int(s.NumSubscriptions())
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server has %d subscriptions, want %d", got, want)
		}
		if err := all[0].conn.Flush(); err != nil { // lets a round trip pass
			t.Fatal(err)
		}
	}
}
