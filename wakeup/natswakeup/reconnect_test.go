package natswakeup

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/wakeup"
)

// The server is killed and started again while events are published. Whoever listens again hears
// again, and nobody believes meanwhile that it listens.
func TestAServerThatIsKilledUnderLoad(t *testing.T) {
	s := serve(t, -1, nil)
	port := s.Addr().(*net.TCPAddr).Port
	var disconnected, reconnected atomic.Int64
	publisher := setup(t, s,
		nats.DisconnectErrHandler(func(*nats.Conn, error) { disconnected.Add(1) }),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected.Add(1) }))
	worker, alsoWorker := setup(t, s), setup(t, s)
	a, b, c := listener(t, worker, orders), listener(t, worker, orders), listener(t, alsoWorker, orders)
	full := listener(t, alsoWorker, orders)
	full.Ready(false)

	var load sync.WaitGroup
	stop := make(chan struct{})
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := publisher.Publish(t.Context(), wakeup.Event{Queue: orders, Bytes: 1})
			if err != nil && !errors.Is(err, ErrDisconnected) {
				t.Error(err)
			}
			a.More()
			drain(a, b, c)
		}
	})
	for range 5 {
		s.Shutdown()
		s.WaitForShutdown()
		for _, r := range []*recorder{a, b, c} {
			r.awaitListening(t, false)
		}
		s = serve(t, port, nil)
		for _, r := range []*recorder{a, b, c} {
			r.awaitListening(t, true)
		}
	}
	close(stop)
	load.Wait()
	for !publisher.conn.IsConnected() {
		if err := publisher.conn.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, []*Transport{worker, alsoWorker}, int(s.NumSubscriptions())-worker.wanted()-alsoWorker.wanted())
	if err := worker.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	c.Ready(false)
	c.Close()
	for i := range int64(10) {
		publish(t, worker, wakeup.Event{Queue: orders, Bytes: 1000 + i})
		a.awaitEvent(t, 1000+i)
		b.awaitEvent(t, 1000+i)
	}
	if len(full.events) != 0 || len(full.listening) != 0 {
		t.Errorf("a subscriber without room heard %d events, and was told %d times", len(full.events), len(full.listening))
	}
	if disconnected.Load() == 0 || reconnected.Load() == 0 {
		t.Errorf("the program's own handlers were called %d and %d times", disconnected.Load(), reconnected.Load())
	}
}

// drain forgets what was heard, so that channels do not fill up.
func drain(all ...*recorder) {
	for _, r := range all {
		for len(r.events) > 1<<15 {
			<-r.events
		}
	}
}

// Nothing is kept for a connection that is down.
func TestPublishWithoutAConnectionIsAnError(t *testing.T) {
	s := serve(t, -1, nil)
	one := setup(t, s)
	r := listener(t, one, orders)
	s.Shutdown()
	s.WaitForShutdown()
	r.awaitListening(t, false)
	for range 1000 {
		if err := one.Publish(t.Context(), wakeup.Event{Queue: orders}); !errors.Is(err, ErrDisconnected) {
			t.Fatalf("got %v, want ErrDisconnected", err)
		}
	}
	if n, err := one.conn.Buffered(); n > 1024 {
		t.Errorf("%d bytes are kept, %v", n, err)
	}
	late := subscribe(t, one, orders) // it does not wait for a connection
	late.Ready(false)
	late.Ready(true)
	serve(t, portOf(one), nil)
	r.awaitListening(t, true)
	late.awaitListening(t, true)
	publish(t, one, wakeup.Event{Queue: orders, Bytes: 7})
	r.awaitEvent(t, 7)
	late.awaitEvent(t, 7)
}

func portOf(transport *Transport) int {
	for _, url := range transport.conn.Servers() {
		_, port, _ := net.SplitHostPort(url[len("nats://"):])
		n := 0
		for _, digit := range port {
			n = 10*n + int(digit-'0')
		}
		return n
	}
	return 0
}
