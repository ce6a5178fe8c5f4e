package azurequeue_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

// counter counts the requests to the next transport.
type counter struct {
	next http.RoundTripper
	n    atomic.Int64
}

func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(r)
}

// counters are the counters of the queues of one harness.
type counters struct{ byQueue sync.Map } // queue.Manager → *counter

func (c *counters) open(t *testing.T, location, name string, next http.RoundTripper) queue.Manager {
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

func TestConformanceOfTheEmulatorInProcess(t *testing.T) {
	var c counters
	queuetest.Run(t, queuetest.Harness{
		Bubble:   true,
		HTTP:     true,
		Requests: c.requests,
		Secrets:  []string{emulator.DevelopmentKey},
		Open: func(t *testing.T, name string) queue.Manager {
			s := must(emulator.New(nil, nil))
			return c.open(t, s.ConnectionString(), name, s)
		},
	})
}

func TestConformanceOfTheEmulatorOverASocket(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real leases")
	}
	t.Parallel() // it spends most of its time waiting
	e, err := must(emulator.New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
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
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
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

// openAccount opens an account whose requests are counted.
func openAccount(t *testing.T, location string, count *counter) queue.Account {
	t.Helper()
	a, err := azurequeue.OpenAccount(location, &azurequeue.Options{Transport: count})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestConformanceOfAccountsOfTheEmulatorInProcess(t *testing.T) {
	var counts sync.Map // queue.Account → *counter
	queuetest.RunAccount(t, queuetest.AccountHarness{
		Bubble:  true,
		Secrets: []string{emulator.DevelopmentKey},
		Open: func(t *testing.T) queue.Account {
			s := must(emulator.New(nil, nil))
			count := &counter{next: s}
			a := openAccount(t, s.ConnectionString(), count)
			counts.Store(a, count)
			return a
		},
		Requests: func(a queue.Account) int {
			count, _ := counts.Load(a)
			return int(count.(*counter).n.Load())
		},
	})
}

func TestConformanceOfAccountsOfAzurite(t *testing.T) {
	t.Parallel()
	location := azuritetest.ConnectionString(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	queuetest.RunAccount(t, queuetest.AccountHarness{
		Secrets: []string{azuritetest.Key},
		Open:    func(t *testing.T) queue.Account { return openAccount(t, location, &counter{next: transport}) },
		Quirks:  queuetest.Quirks{ListWhileCreating: "Azurite goes on after the queue with the number of the last one, and numbers queues as they are created"},
	})
}
