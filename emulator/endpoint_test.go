package emulator

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func queueClient(url, account, key string, transport http.RoundTripper) (*azqueue.QueueClient, error) {
	credential, err := azqueue.NewSharedKeyCredential(account, key)
	if err != nil {
		return nil, err
	}
	return azqueue.NewQueueClientWithSharedKeyCredential(url, credential, clientOptions(transport))
}

func TestStartRefusesAddresses(t *testing.T) {
	s := must(New(nil, nil))
	taken, err := s.Start("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		"0.0.0.0:0":            "not a loopback address",
		":0":                   "not a loopback address",
		"example.com:1":        "not a loopback address",
		"127.0.0.1":            "not host:port",
		taken.Addr().String():  "address already in use",
		"[::ffff:192.0.2.1]:0": "not a loopback address",
	} {
		if e, err := s.Start(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start(%q): got %v, %v; want an error with %q", address, e, err, want)
		}
	}
}

// underway starts a request and returns when the server is reading its body, the rest of which
// follows when release is called. The result is the status, or 0 without a response.
func underway(ctx context.Context, t *testing.T, e *Endpoint) (release func(), result <-chan int) {
	t.Helper()
	body := wrap("x")
	blocked, reading, status := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	r := signed("POST", "/orders/messages", body)
	r.URL.Host, r.Host = e.Addr().String(), ""
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body[:1]), after{blocked}, strings.NewReader(body[1:])))
	r.Header.Set("Expect", "100-continue") // net/http sends it when the handler reads the body
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { close(reading) }}))
	transport := &http.Transport{ExpectContinueTimeout: time.Hour}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(r)
		if err != nil {
			status <- 0
			return
		}
		defer response.Body.Close()
		io.Copy(io.Discard, response.Body)
		status <- response.StatusCode
	}()
	<-reading
	release = sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(func() {
		release()
		<-ended
	})
	return release, status
}

// after is an empty reader that blocks until its channel is closed.
type after struct{ closed <-chan struct{} }

func (a after) Read([]byte) (int, error) {
	<-a.closed
	return 0, io.EOF
}

func TestCloseEndsRequests(t *testing.T) {
	s := must(New(nil, nil))
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	createOrders(t, s)
	release, status := underway(t.Context(), t, e)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	release()
	if got := <-status; got != 0 {
		t.Errorf("status: got %d, want no response", got)
	}
	if err := e.Close(); err != nil { // again
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", e.Addr().String()); err == nil {
		conn.Close()
		t.Error("the endpoint still accepts connections after Close")
	}
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	s := must(New(nil, nil))
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	createOrders(t, s)
	release, status := underway(t.Context(), t, e)
	done := make(chan error)
	go func() { done <- e.Shutdown(context.Background()) }()
	release()
	if got := <-status; got != 201 {
		t.Errorf("status: got %d, want 201", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	s := must(New(nil, nil))
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	createOrders(t, s)
	underway(t.Context(), t, e)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func createOrders(t *testing.T, s *Server) {
	t.Helper()
	if a := do(t, s, signed("PUT", "/orders", "")); a.status != 201 {
		t.Fatalf("create orders: got status %d, want 201: %s", a.status, a.body)
	}
}

// TestCancelOverSocket: a request whose client leaves while it is delayed is not executed, and
// Shutdown does not wait for the rest of its delay.
func TestCancelOverSocket(t *testing.T) {
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	e, err := must(New(engine, &Options{Delay: 2 * time.Hour})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	release, status := underway(ctx, t, e)
	release()
	cancel()
	if got := <-status; got != 0 {
		t.Errorf("status: got %d, want no response", got)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if got := depth(t, q); got != 0 {
		t.Errorf("depth: got %d, want 0", got)
	}
}
