package natswakeup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/queue"
)

// The server is killed and started again while events are published. Whoever listens again hears
// again, and nobody believes meanwhile that it listens.
func TestAServerThatIsKilledUnderLoad(t *testing.T) {
	s := serve(t, -1, nil)
	port := portOf(s)
	others := int(s.NumSubscriptions())
	disconnected, reconnected := make(chan bool, 100), make(chan bool, 100)
	publisher := setup(t, s,
		nats.DisconnectErrHandler(func(*nats.Conn, error) { disconnected <- true }),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected <- true }))
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
			publish(t, publisher, orders, 1, time.Time{})
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
	c.Ready(false)
	for _, one := range []*Transport{publisher, worker, alsoWorker} {
		for one.conn.Flush() != nil { // it may not have connected yet
			runtime.Gosched()
		}
	}
	for worker.queued() > 0 { // what the load has left would push out what follows
		runtime.Gosched()
	}
	settle(t, s, []*Transport{worker, alsoWorker}, others)
	for i := range int64(10) {
		publish(t, worker, orders, 1000+i, time.Time{})
		a.awaitEvent(t, 1000+i)
		b.awaitEvent(t, 1000+i)
	}
	if len(full.events) != 0 || len(full.listening) != 0 {
		t.Errorf("a subscriber without room heard %d events, and was told %d times", len(full.events), len(full.listening))
	}
	receive(t, "the program's own handler of a break", disconnected)
	receive(t, "the program's own handler of a connection", reconnected)
}

// drain forgets what was heard, so that channels do not fill up.
func drain(all ...*recorder) {
	for _, r := range all {
		for len(r.events) > 1<<15 {
			<-r.events
		}
	}
}

// A message that was put while the publisher's connection was down is heard of when it is there again,
// even if all workers have connected before. What is kept is bounded.
func TestEventsOfAnOutageAreAddedUp(t *testing.T) {
	s := serve(t, -1, nil)
	port := portOf(s)
	var held atomic.Bool
	one := setup(t, s, nats.CustomReconnectDelay(func(int) time.Duration {
		for held.Load() {
			runtime.Gosched()
		}
		return time.Millisecond
	}))
	held.Store(true)
	defer held.Store(false)
	due := time.Now().Add(time.Hour)
	s.Shutdown()
	s.WaitForShutdown()
	for one.conn.IsConnected() {
		runtime.Gosched()
	}
	for range 1000 {
		publish(t, one, orders, 2, time.Time{})
		publish(t, one, orders, 3, due)
	}
	for i := range maxMissed - 2 {
		publish(t, one, queue.Name{Queue: fmt.Sprint(i)}, 0, time.Time{})
	}
	if err := one.Publish(t.Context(), queue.Name{Queue: "one too many"}, 0, time.Time{}); !errors.Is(err, ErrDisconnected) {
		t.Errorf("got %v, want ErrDisconnected", err)
	}
	if n, err := one.conn.Buffered(); n > 1024 {
		t.Errorf("%d bytes are in the buffer of the connection, %v", n, err)
	}
	// The worker is there before the publisher.
	worker := listener(t, setup(t, serve(t, port, nil)), orders)
	held.Store(false)
	got := map[int64]event{}
	for range 2 {
		e := receive(t, "an event", worker.events)
		got[e.Bytes] = e
	}
	if len(got) != 2 || !got[3000].Due.Equal(due) || !got[2000].Due.IsZero() {
		t.Errorf("heard %+v", got)
	}
}

// A subscriber may come while the connection is down.
func TestASubscriberDoesNotWaitForTheConnection(t *testing.T) {
	s := serve(t, -1, nil)
	port := portOf(s)
	one := setup(t, s)
	r := listener(t, one, orders)
	s.Shutdown()
	s.WaitForShutdown()
	r.awaitListening(t, false)
	late := subscribe(t, one, orders)
	late.Ready(false)
	late.Ready(true)
	serve(t, port, nil)
	r.awaitListening(t, true)
	late.awaitListening(t, true)
	publish(t, one, orders, 7, time.Time{})
	r.awaitEvent(t, 7)
	late.awaitEvent(t, 7)
}

// A server that does not answer for a while is asked again.
func TestASubscriptionIsConfirmedWhenASlowServerAnswers(t *testing.T) {
	s := serve(t, -1, nil)
	var gate sync.RWMutex               // locked: nothing comes from the server
	again := make(chan struct{}, 1<<10) // holds an element for each subscription that begins again
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		near, err := proxy.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		running.Go(func() {
			defer far.Close()
			for lines := bufio.NewReader(near); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(far, line)
				if strings.HasPrefix(line, "UNSUB") {
					again <- struct{}{}
				}
			}
		})
		buffer := make([]byte, 1<<12)
		for {
			n, err := far.Read(buffer)
			if err != nil {
				_ = near.Close()
				return
			}
			gate.RLock()
			_, _ = near.Write(buffer[:n])
			gate.RUnlock()
		}
	})
	defer proxy.Close()
	conn, err := nats.Connect("nats://" + proxy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one, err := New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	gate.Lock()
	r := subscribe(t, one, orders)
	receive(t, "the next subscription", again)
	told := len(r.listening)
	gate.Unlock()
	if told != 0 {
		t.Error("it listens, although the server has not answered")
	}
	r.awaitListening(t, true)
}

func portOf(s *server.Server) int { return s.Addr().(*net.TCPAddr).Port }

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
