package emulator_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

func open(t *testing.T, location, name string, transport http.RoundTripper) queue.Manager {
	q, err := azurequeue.Open(location, name, &azurequeue.Options{Transport: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func TestConformanceInProcess(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble:  true,
		HTTP:    true,
		Secrets: []string{emulator.DevelopmentKey},
		Open: func(t *testing.T, name string) queue.Manager {
			s := must(emulator.New(nil, nil))
			return open(t, s.ConnectionString(), name, s)
		},
	})
}

func TestConformanceOverSocket(t *testing.T) {
	if testing.Short() {
		t.Skip("the test waits for real seconds")
	}
	t.Parallel()
	s := must(emulator.New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), nil))
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		e.Close()
	})
	queuetest.Run(t, queuetest.Harness{
		HTTP:    true,
		Secrets: []string{emulator.DevelopmentKey},
		Open: func(t *testing.T, name string) queue.Manager {
			return open(t, e.ConnectionString(), name, transport)
		},
		Quirks: queuetest.Quirks{RecreateAtOnce: "the test does not wait for 30 s"},
	})
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
