package keda

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// openStream opens a stream and waits for its first answer.
func openStream(ctx context.Context, c pb.ExternalScalerClient) (grpc.ServerStreamingClient[pb.IsActiveResponse], error) {
	stream, err := c.StreamIsActive(ctx, about("worker"))
	if err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

func TestStreamsAreBounded(t *testing.T) {
	s := serve(t, asked(t, "worker", 1))
	ctx, cancel := context.WithCancel(within(t))
	var c pb.ExternalScalerClient
	for i := range maxStreams {
		if i%maxCalls == 0 {
			c = s.client(t) // one connection has room for so many only
		}
		if _, err := openStream(ctx, c); err != nil {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
	more := s.client(t)
	_, err := openStream(within(t), more)
	wantCode(t, "one stream more", err, codes.ResourceExhausted)
	if _, err := more.IsActive(within(t), about("worker")); err != nil {
		t.Errorf("IsActive meanwhile: got %v, want an answer", err)
	}
	cancel()
	for waiting := within(t); ; { // until the server knows of the ends
		if _, err = openStream(waiting, more); status.Code(err) != codes.ResourceExhausted {
			break
		}
	}
	if err != nil {
		t.Errorf("after they have ended: got %v, want a stream", err)
	}
}

func TestCallsOfOneConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 1))
		c := s.client(t)
		for range maxCalls {
			if _, err := openStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := openStream(ctx, c)
		wantCode(t, "one call more", err, codes.DeadlineExceeded)
	})
}

// A client that does not read costs no more than its window, and gets the newest state when it reads.
func TestASlowReaderMissesStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flips = 40_000
		pool := asked(t, "worker", 1)
		c := serve(t, pool).client(t, grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := openStream(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range flips {
			scale(t, pool, i%2)
			synctest.Wait() // the stream has seen it, and sent it if it could
		}
		scale(t, pool, 1)
		var received atomic.Int64
		var last atomic.Bool
		ended := make(chan error, 1)
		go func() {
			for {
				got, err := stream.Recv()
				if err != nil {
					ended <- err
					return
				}
				received.Add(1)
				last.Store(got.GetResult())
			}
		}()
		synctest.Wait()
		if got := received.Load(); got == 0 || got > flips*3/4 {
			t.Errorf("got %d of %d states, want those of its window", got, flips)
		}
		if !last.Load() {
			t.Error("the last state received is inactive, want active")
		}
		t.Logf("%d of %d states", received.Load(), flips)
		cancel()
		wantCode(t, "the end", <-ended, codes.Canceled)
	})
}

func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 1))
		c := s.client(t)
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := openStream(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		synctest.Wait()
		if got := len(s.service.streams); got != 0 {
			t.Errorf("got %d streams, want none", got)
		}
	})
}

func TestLargeRequestsAreRefused(t *testing.T) {
	c := serve(t, asked(t, "worker", 1)).client(t)
	large := about("worker")
	large.ScalerMetadata["more"] = strings.Repeat("x", maxRequest)
	_, err := c.IsActive(within(t), large)
	wantCode(t, "IsActive", err, codes.ResourceExhausted)
	_, err = c.IsActive(within(t), about("worker"))
	wantCode(t, "IsActive after it", err, codes.OK)
}

func TestLargeHeadersAreRefused(t *testing.T) {
	c := serve(t, asked(t, "worker", 1)).client(t)
	ctx := metadata.AppendToOutgoingContext(within(t), "more", strings.Repeat("x", 2*maxHeaders))
	if _, err := c.IsActive(ctx, about("worker")); err == nil {
		t.Error("got no error, want a refusal")
	}
	_, err := c.IsActive(within(t), about("worker"))
	wantCode(t, "IsActive after it", err, codes.OK)
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, asked(t, "worker", 1))
		open := func() net.Conn {
			conn, err := s.listener.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		conns := make([]net.Conn, maxConnections)
		for i := range conns {
			conns[i] = open() // says nothing, not even that it speaks HTTP/2
		}
		ctx, cancel := context.WithTimeout(t.Context(), handshake/2)
		defer cancel()
		c := s.client(t)
		_, err := c.IsActive(ctx, about("worker"))
		wantCode(t, "while all connections are taken", err, codes.DeadlineExceeded)
		time.Sleep(2 * handshake) // those that say nothing are closed
		_, err = c.IsActive(t.Context(), about("worker"))
		wantCode(t, "after the time for handshakes", err, codes.OK)
		for _, conn := range conns {
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("a silent connection: got %v, want its end", err)
			}
		}
	})
}

// Somebody speaks HTTP/1 or nonsense to the port.
func TestNonsenseIsSurvived(t *testing.T) {
	s := serve(t, asked(t, "worker", 1))
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 1000), "\x16\x03\x01", ""} {
		conn, err := s.listener.DialContext(within(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text) // may be refused before its end
		_ = conn.Close()
	}
	_, err := s.client(t).IsActive(within(t), about("worker"))
	wantCode(t, "IsActive", err, codes.OK)
}
