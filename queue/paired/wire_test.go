package paired_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// two servers on sockets, of which the primary one ends, refuses, and comes back.
func TestAServerThatEndsAndComesBack(t *testing.T) {
	engine := must(localqueue.New(nil))
	start := func(engine *localqueue.Engine) (*emulator.Server, *emulator.Endpoint) {
		server := must(emulator.New(engine, nil))
		endpoint, err := server.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = endpoint.Close() })
		return server, endpoint
	}
	open := func(endpoint *emulator.Endpoint, o *azurequeue.Options) *azurequeue.Queue {
		q, err := azurequeue.Open(endpoint.ConnectionString(), "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	server, endpoint := start(engine)
	_, other := start(must(localqueue.New(nil)))
	// A server that comes back has another port, because somebody else may have taken the old one.
	var at atomic.Pointer[string]
	move := func(address string) { at.Store(&address) }
	move(endpoint.Addr().String())
	wire := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *at.Load())
	}}
	t.Cleanup(wire.CloseIdleConnections)
	primary := open(endpoint, &azurequeue.Options{Transport: &http.Client{Transport: wire}})
	if err := primary.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	q := must(paired.New(primary, open(other, nil), &paired.Options{FailoverInterval: -1, ProbeInterval: time.Millisecond, Backlogs: 2}))
	t.Cleanup(func() { _ = q.Close() })
	if err := q.Pair(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs := producer.New[string](q, nil)
	sends := func(to string, want paired.Status) {
		t.Helper()
		sent, err := jobs.Send(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		if isHome := sent.Queue == primary.Name(); isHome != (want == paired.Healthy) {
			t.Errorf("%s: the job went to %v", to, sent.Queue)
		}
		if got := q.State().Status; got != want {
			t.Errorf("%s: status %v, want %v", to, got, want)
		}
	}
	sends("a healthy primary", paired.Healthy)
	if err := server.SetFaults(&emulator.Faults{Rules: []emulator.Fault{{Operation: emulator.PutMessage, Kind: "403", Every: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Send(t.Context(), "job", nil); !errors.Is(err, queue.ErrUnauthorized) {
		t.Errorf("got %v, want %v", err, queue.ErrUnauthorized)
	}
	q.Close() // no readings: a send each millisecond probes
	if err := endpoint.Close(); err != nil {
		t.Fatal(err)
	}
	move("127.0.0.1:1") // where nobody listens
	sends("a primary that refuses connections", paired.FailedOver)
	sends("a primary that still does", paired.FailedOver)
	_, endpoint = start(engine)
	move(endpoint.Addr().String())
	diverted := int64(2)
	for t.Context().Err() == nil { // until a send probes again
		sent, err := jobs.Send(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		if sent.Queue == primary.Name() {
			break
		}
		diverted++
	}
	sends("a primary that is back", paired.Healthy)
	if backlog, err := q.Backlog(t.Context()); err != nil || backlog.Depth != diverted {
		t.Errorf("got %+v and %v, want %d jobs in the backlog", backlog, err, diverted)
	}
}
