package simulation

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/pipelistener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/localqueue"
)

// way is a way in which processes reach the engine.
type way string

const (
	inProcess   way = ""
	overNetHTTP way = "over net/http"
	overHTTP1   way = "over http1"
)

// network connects the processes with the engine: directly, or through the whole client,
// its connections, and the emulator. Connections are pipes, which a bubble understands.
type network struct {
	queue    queue.Manager // the jobs, as processes reach them
	service  *emulator.Server
	server   http.Server
	listener *pipelistener.Listener // nil if they use the engine itself
	hangUp   func()
	serving  sync.WaitGroup
}

// worldKey is the account's key. It is not secret.
var worldKey = []byte("the key of the account \"world\"")

func newNetwork(over way, engine *localqueue.Engine) *network {
	if over == inProcess {
		return &network{queue: engine.Queue(jobs), hangUp: func() {}}
	}
	n := &network{listener: pipelistener.New()}
	n.service = must(emulator.New(engine, &emulator.Options{Accounts: map[string][]byte{jobs.Account: worldKey}, Public: true}))
	n.server.Handler = n.service
	n.serving.Go(func() { _ = n.server.Serve(n.listener) }) // until it is closed
	q, err := azurequeue.Open(n.service.ConnectionString(), jobs.Queue, &azurequeue.Options{Transport: n.transport(over)})
	if err != nil {
		panic(err)
	}
	n.queue = q
	return n
}

func (n *network) transport(over way) policy.Transporter {
	if over == overHTTP1 {
		t, err := http1.New(&http1.Options{DialContext: n.dial, Fallback: unused{}})
		if err != nil {
			panic(err)
		}
		n.hangUp = func() { _ = t.Close() } // it never fails
		return t
	}
	t := &http.Transport{DialContext: n.dial, MaxIdleConnsPerHost: 64}
	n.hangUp = t.CloseIdleConnections
	return &http.Client{Transport: t}
}

// close closes all connections, after the last request.
func (n *network) close() {
	n.hangUp()
	if n.listener == nil {
		return
	}
	_ = n.server.Close() // pipes have no errors
	n.serving.Wait()
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return n.listener.Dial(ctx)
}

// unused is the fallback of a transport that must never use it.
type unused struct{}

func (unused) Do(r *http.Request) (*http.Response, error) {
	panic("not for the fallback: " + r.Method + " " + r.URL.Path)
}

// TestEveryTransportPlaysTheSame plays worlds over the whole client, with net/http and with http1.
// The history must be the same as without a network, entry by entry.
func TestEveryTransportPlaysTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("plays each world several times")
	}
	for n := uint64(1); n <= max(worlds()/25, 1); n++ {
		if newPlan(n).races() {
			continue
		}
		here := run(t, n, breakage{})
		if here.world == nil || here.world.raced() {
			continue // TestSeeds reports it, or see doc.go
		}
		for _, over := range []way{overNetHTTP, overHTTP1} {
			there := runOver(t, over, n, breakage{})
			report(t, n, there)
			if there.world == nil {
				continue
			}
			if what := difference(here.world.history.trace(), there.world.history.trace()); what != "" {
				t.Errorf("seed %d: the trace differs %s: %s", n, over, what)
			}
			if there.world.network.service.Counts().Requests() == 0 {
				t.Errorf("seed %d: got no requests %s", n, over)
			}
		}
	}
}
