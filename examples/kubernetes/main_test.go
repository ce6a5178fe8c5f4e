package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a worker with a running handler for each of its queues.
type bundle struct {
	*testing.T
	client  *http.Client
	address string
	stop    context.CancelFunc
	release chan struct{} // closed to let the handlers return
	ended   chan error
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &bundle{
		T: t, client: &http.Client{Transport: &http.Transport{}}, stop: stop,
		release: make(chan struct{}), ended: make(chan error, 1),
	}
	t.Cleanup(b.client.CloseIdleConnections)
	account := must(localqueue.New(nil)).Account("test")
	send(t, account, "orders", Order{ID: "7"})
	send(t, account, "emails", Email{To: "bob"})

	address := make(chan net.Addr, 1)
	server := &http.Server{Addr: "localhost:0", BaseContext: func(l net.Listener) context.Context {
		address <- l.Addr()
		return context.Background()
	}}
	begun := make(chan struct{}, 2)
	hold := func() error { begun <- struct{}{}; <-b.release; return nil }
	go func() {
		b.ended <- run(ctx, account, server, 0,
			func(context.Context, *listener.Message[Order]) error { return hold() },
			func(context.Context, *listener.Message[Email]) error { return hold() })
	}()
	b.address = "http://" + (<-address).String()
	<-begun
	<-begun
	return b
}

func send[T any](t *testing.T, account queue.Account, name string, job T) {
	t.Helper()
	q, err := account.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.New(q, &producer.Options[T]{Create: true}).Send(t.Context(), job, nil); err != nil {
		t.Fatal(err)
	}
}

// get returns the status and the body of a response, or 0 and the error if there is none.
func (b *bundle) get(path string) (int, string) {
	b.Helper()
	response, err := b.client.Get(b.address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestTheProbesRespondUntilTheListenersHaveDrained(t *testing.T) {
	b := setup(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := b.get(path); status != http.StatusOK {
			t.Errorf("%s while running: got %d %s, want %d", path, status, body, http.StatusOK)
		}
	}
	b.stop()
	// The worker becomes unready soon after the stop; the held handlers keep it from ending.
	for status := http.StatusOK; status != http.StatusServiceUnavailable; {
		var body string
		if status, body = b.get("/readyz"); status == 0 {
			t.Fatalf("/readyz: got no response (%s), want one until the listeners have drained", body)
		}
	}
	if status, body := b.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz while draining: got %d %s, want %d", status, body, http.StatusOK)
	}
	status, body := b.get("/metrics")
	for _, line := range []string{
		"# TYPE jobs_running gauge", "# HELP jobs_succeeded_total Jobs whose handler succeeded.",
		`jobs_running{queue="orders"} 1`, `jobs_running{queue="emails"} 1`, `jobs_succeeded_total{queue="orders"} 0`,
	} {
		if status != http.StatusOK || !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics while draining: got %d %s, want %s", status, body, line)
		}
	}
	close(b.release)
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
	if status, body := b.get("/healthz"); status != 0 {
		t.Errorf("/healthz after the drain: got %d %s, want no response", status, body)
	}
}

// The manifest must match the constants and routes of the program.
func TestTheManifestMatchesTheProgram(t *testing.T) {
	manifest, err := os.ReadFile("deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"terminationGracePeriodSeconds: 30\n", "path: /healthz,", "path: /readyz,", "containerPort: 8080}"} {
		if !strings.Contains(string(manifest), want) {
			t.Errorf("deployment.yaml: got no %q, want it", want)
		}
	}
	if end := grace + settle + 2e9; end >= 30e9 {
		t.Errorf("shutdown: got up to %v, want less than 30 s", end)
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
