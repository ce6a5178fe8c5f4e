package http1_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

// counter counts the requests to the transport.
type counter struct {
	next *http1.Transport
	n    atomic.Int64
}

func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.Do(r)
}

// counters are the counters of the queues of one harness.
type counters struct{ byQueue sync.Map } // queue.Manager → *counter

func (c *counters) open(t *testing.T, location, name string, next *http1.Transport) queue.Manager {
	count := &counter{next: next}
	q, err := azurequeue.Open(location, name, &azurequeue.Options{Transport: count})
	if err != nil {
		t.Fatal(err)
	}
	c.byQueue.Store(queue.Manager(q), count)
	return q
}

func (c *counters) requests(q queue.Manager) int {
	count, _ := c.byQueue.Load(q)
	return int(count.(*counter).n.Load())
}

// refusing is a fallback that must not be used.
type refusing struct{ t *testing.T }

func (f refusing) Do(r *http.Request) (*http.Response, error) {
	f.t.Errorf("%s %s: got a request to the fallback, want none", r.Method, r.URL.Path)
	return http.DefaultTransport.RoundTrip(r)
}

func TestConformanceOfTheEmulator(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real leases")
	}
	t.Parallel() // it spends most of its time waiting
	e, err := must(emulator.New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := http1.New(&http1.Options{Fallback: refusing{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.Close()
		e.Close()
	})
	var c counters
	queuetest.Run(t, queuetest.Harness{
		HTTP:     true,
		Requests: c.requests,
		Secrets:  []string{emulator.DevelopmentKey},
		Open: func(t *testing.T, name string) queue.Manager {
			return c.open(t, e.ConnectionString(), name, transport)
		},
		Quirks: queuetest.Quirks{RecreateAtOnce: "this server is told to take a nanosecond over it, not 30 s"},
	})
}

func TestConformanceOfAzurite(t *testing.T) {
	t.Parallel() // it spends most of its time waiting
	location := azuritetest.ConnectionString(t)
	transport, err := http1.New(&http1.Options{Fallback: refusing{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close() })
	var c counters
	queuetest.Run(t, queuetest.Harness{
		HTTP:     true,
		Requests: c.requests,
		Secrets:  []string{azuritetest.Key},
		Open: func(t *testing.T, name string) queue.Manager {
			return c.open(t, location, name, transport)
		},
		Quirks: queuetest.Quirks{
			UpdatePastExpiry: "Azurite does not compare an update's visibility with the expiry",
			RecreateAtOnce:   "Azurite deletes a queue at once",
			LargeUnicode:     "Azurite decodes each chunk of a request by itself, so that a character on the border of two becomes U+FFFD",
		},
	})
}
