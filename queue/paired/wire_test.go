package paired_test

import (
	"errors"
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
	engine := localqueue.New(nil)
	start := func(engine *localqueue.Engine, address string) (*emulator.Server, *emulator.Endpoint) {
		server := emulator.New(engine, nil)
		endpoint, err := server.Start(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = endpoint.Close() })
		return server, endpoint
	}
	open := func(endpoint *emulator.Endpoint) *azurequeue.Queue {
		q, err := azurequeue.Open(endpoint.ConnectionString(), "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	server, endpoint := start(engine, "")
	_, other := start(localqueue.New(nil), "")
	primary := open(endpoint)
	if err := primary.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	q := paired.New(primary, open(other), &paired.Options{FailoverInterval: -1, ProbeInterval: time.Microsecond, Backlogs: 2})
	t.Cleanup(q.Close)
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
	q.Close() // no readings: every send probes
	address := endpoint.Addr().String()
	if err := endpoint.Close(); err != nil {
		t.Fatal(err)
	}
	sends("a primary that refuses connections", paired.FailedOver)
	sends("a primary that still does", paired.FailedOver)
	start(engine, address)
	sends("a primary that is back", paired.Healthy)
	if backlog, err := q.Backlog(t.Context()); err != nil || backlog.Depth != 2 {
		t.Errorf("got %+v and %v, want 2 jobs in the backlog", backlog, err)
	}
}
