package keda

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// address is where clients find the server that runs at present, as the address of a Service of Kubernetes.
type address struct {
	mu sync.Mutex
	l  *bufconn.Listener
}

func (a *address) dial(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	l := a.l
	a.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.DialContext(ctx)
}

func (a *address) set(l *bufconn.Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.l = l
}

// start runs a server at the address; stop ends it and waits.
func (a *address) start(t *testing.T, pool *Pool) (stop func()) {
	t.Helper()
	s := serve(t, pool)
	a.set(s.listener)
	return func() {
		a.set(nil)
		s.end(t)
	}
}

// operate runs the operator against whatever server is at the address.
func (a *address) operate(t *testing.T, o *operator) {
	t.Helper()
	conn := dial(t, a.dial)
	o.client, o.ref = pb.NewExternalScalerClient(conn), about("worker")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = conn.Close()
	})
}

func scale(t *testing.T, p *Pool, n int) {
	t.Helper()
	if err := p.Scale(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// from zero to many and back.
func TestKEDAFollowsTheDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := asked(t, "worker", 0)
		var a address
		a.start(t, pool)
		o := &operator{interval: 30 * time.Second}
		a.operate(t, o)
		step := func(n int, after time.Duration, want int, changes ...string) {
			t.Helper()
			scale(t, pool, n)
			time.Sleep(after)
			synctest.Wait()
			got, log, failures := o.state()
			if got != want || !slices.Equal(log, changes) || failures != 0 {
				t.Errorf("asked for %d: got %d by %v and %d failures, want %d by %v", n, got, log, failures, want, changes)
			}
		}
		step(0, 40*time.Second, 0)
		step(4, time.Second, 1, "push: 0 → 1") // at once, although the next poll is far
		step(4, 30*time.Second, 4, "poll: 1 → 4")
		step(9, 30*time.Second, 9, "poll: 4 → 9")
		step(20, 30*time.Second, 20, "poll: 9 → 20")
		step(19, time.Minute, 20) // within the tolerance of the HorizontalPodAutoscaler
		step(17, 30*time.Second, 17, "poll: 20 → 17")
		step(0, time.Second, 17) // the stream says false, which KEDA ignores
		step(0, 30*time.Second, 0, "poll: 17 → 0")
		step(2, time.Second, 1, "push: 0 → 1") // the stream is still the same
	})
}

// a scaler that is killed and started again changes nothing by that.
func TestARestartChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := asked(t, "worker", 12)
		var a address
		stop := a.start(t, first)
		o := &operator{interval: 5 * time.Second}
		a.operate(t, o)
		quiet := func(what string, want int, fails bool) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got, log, failures := o.state(); got != want || len(log) != 0 || fails != (failures > 0) {
				t.Errorf("%s: got %d, changes %v, %d failures, want %d, none, failures %v", what, got, log, failures, want, fails)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, _, _ := o.state(); got != 12 {
			t.Fatalf("got %d, want 12", got)
		}
		stop()
		quiet("no server", 12, true)
		second := must(NewPool("worker", o.platform))
		a.start(t, second)
		quiet("a server that knows nothing", 12, true)
		if n, err := second.Instances(t.Context()); n != 12 || err != nil {
			t.Fatalf("the agent was told %d, %v, want the 12 that run", n, err)
		}
		time.Sleep(10 * time.Second)
		o.state()
		quiet("a server that has read the number", 12, false)
		scale(t, second, 14)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, _, _ := o.state(); got != 14 {
			t.Errorf("after the first decision: got %d, want 14", got)
		}
	})
}

// After an orderly end KEDA connects again in 2 s, so a new server wakes the pool as fast as the old one.
func TestARestartAtZeroStillWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a address
		stop := a.start(t, asked(t, "worker", 0))
		o := &operator{interval: time.Hour} // so that only the stream wakes
		a.operate(t, o)
		time.Sleep(10 * time.Minute)
		stop()
		pool := asked(t, "worker", 0)
		a.start(t, pool)
		time.Sleep(4 * time.Second) // 2 s, and as much for gRPC's own connection
		scale(t, pool, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if got, _, _ := o.state(); got != 1 {
			t.Errorf("got %d replicas, want 1 by the stream", got)
		}
	})
}

// A client whose machine has died sends no end of its streams.
func TestADeadClientIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 0))
		opened := make(chan *silent, 10) // the first, and those of later tries
		conn := dial(t, func(ctx context.Context) (net.Conn, error) {
			c, err := s.listener.DialContext(ctx)
			one := &silent{Conn: c}
			opened <- one
			return one, err
		})
		stream, err := pb.NewExternalScalerClient(conn).StreamIsActive(t.Context(), about("worker"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.service.streams); got != 1 {
			t.Fatalf("got %d streams, want 1", got)
		}
		(<-opened).die()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(s.service.streams); got != 0 {
			t.Errorf("a minute after its death: got %d streams, want none", got)
		}
	})
}

// silent is a connection that can stop to send without being closed.
type silent struct {
	net.Conn

	mu   sync.Mutex
	dead bool
}

func (s *silent) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

func (s *silent) Write(b []byte) (int, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// A call that does not end holds the stop up no longer than the drain allows.
func TestTheStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 0))
		conn := s.connect(t)
		// Watching the health is a call that does not end by itself.
		watch, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/grpc.health.v1.Health/Watch")
		if err != nil {
			t.Fatal(err)
		}
		if err := watch.SendMsg(&pb.ScaledObjectRef{}); err != nil {
			t.Fatal(err)
		}
		if err := watch.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		s.end(t)
		if took := time.Since(begun); took != drain {
			t.Errorf("the stop took %v, want %v", took, drain)
		}
	})
}

func TestTheStopOfIdleClientsIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 0))
		c := s.client(t)
		for range 10 {
			stream, err := c.StreamIsActive(t.Context(), about("worker"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		s.end(t)
		if took := time.Since(begun); took != 0 {
			t.Errorf("the stop took %v, want no time", took)
		}
	})
}

func TestHaltCutsTheStopShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 10)
		s, err := NewServer(l, []*Pool{asked(t, "worker", 1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Halt()
		s.Halt() // more than once does no harm
		begun := time.Now()
		if err := s.Run(t.Context()); err != nil || time.Since(begun) != 0 {
			t.Errorf("got %v after %v, want no error at once", err, time.Since(begun))
		}
	})
}

func TestRunSaysWhenItCannotAccept(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(l, []*Pool{asked(t, "worker", 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("got no error, want one")
	}
}
