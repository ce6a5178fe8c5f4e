package emulator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// nginxSettings make nginx cache every response that does not forbid it, errors too.
const nginxSettings = `
daemon off;
master_process off;
pid DIR/pid;
error_log DIR/errors;
events {}
http {
	access_log off;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	proxy_cache_path DIR/cache keys_zone=all:1m;
	server {
		listen unix:DIR/s;
		location / {
			proxy_pass http://UPSTREAM;
			proxy_cache all;
			proxy_cache_key $request_method$request_uri;
			proxy_cache_valid any 1h;
			proxy_cache_convert_head off;
			add_header X-Cache $upstream_cache_status always;
		}
	}
}
`

// cachingProxy is an nginx in front of a server, as the transport of clients.
type cachingProxy struct {
	http.Transport
	dir  string
	hits atomic.Int64 // responses from the cache
}

func (p *cachingProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.Transport.RoundTrip(r)
	if err == nil && response.Header.Get("X-Cache") == "HIT" {
		p.hits.Add(1)
	}
	return response, err
}

// startProxy starts an nginx in front of an address, which the test's end stops.
func startProxy(t *testing.T, upstream string) *cachingProxy {
	t.Helper()
	nginx := azuritetest.Program(t, "nginx")
	dir, err := os.MkdirTemp("", "proxy") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(settings, []byte(strings.NewReplacer("DIR", dir, "UPSTREAM", upstream).Replace(nginxSettings)), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(nginx, "-p", dir, "-c", settings, "-e", filepath.Join(dir, "errors")) //nolint:noctx // the cleanup ends it
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &cachingProxy{dir: dir}
	p.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "s"))
	}
	t.Cleanup(func() {
		p.CloseIdleConnections()
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // it reports the signal
		if t.Failed() {
			said, _ := os.ReadFile(filepath.Join(dir, "errors"))
			t.Logf("nginx: %s", said)
		}
		_ = os.RemoveAll(dir)
	})
	azuritetest.Until(t, "nginx listens", func() bool {
		conn, err := p.DialContext(t.Context(), "", "")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p
}

// stored returns how many responses the proxy keeps.
func (p *cachingProxy) stored(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(p.dir, "cache"), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// signedLocation returns a location of the account with a signature in its query instead of a header in
// each request.
func signedLocation(t *testing.T, address string) string {
	t.Helper()
	v := sas.AccountSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(time.Hour), Permissions: "rwdlacup", ResourceTypes: "sco"}
	signature, err := v.SignWithSharedKey(developmentKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return address + "?" + signature.Encode()
}

// useThroughCache sends the same requests again after changes, and returns the responses that were
// wrong.
func useThroughCache(t *testing.T, location, name string, p *cachingProxy) (stale []string) {
	t.Helper()
	q, err := azurequeue.Open(location, name, &azurequeue.Options{Transport: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	fail := func(format string, args ...any) { stale = append(stale, fmt.Sprintf(format, args...)) }
	if _, err := q.Properties(ctx); !errors.Is(err, queue.ErrQueueMissing) {
		fail("properties of no queue: %v", err)
	}
	if err := q.Create(ctx, nil); err != nil {
		fail("create: %v", err)
	}
	for depth := range 3 {
		if properties, err := q.Properties(ctx); err != nil || properties.Depth != int64(depth) {
			fail("properties after %d puts: %+v, %v", depth, properties, err)
		}
		if found, err := q.Peek(ctx, 32); err != nil || len(found) != depth {
			fail("peek after %d puts: %d messages, %v", depth, len(found), err)
		}
		if _, err := q.Enqueue(ctx, "a+b/c=", nil); err != nil {
			fail("put: %v", err)
		}
	}
	seen := make(map[queue.ID]bool)
	for n := range 4 {
		got, err := q.Dequeue(ctx, 1, time.Minute)
		switch {
		case err != nil || len(got) > 1:
			fail("dequeue %d: %v, %v", n, got, err)
		case len(got) == 0 && n < 3 || len(got) == 1 && (n == 3 || seen[got[0].ID]):
			fail("dequeue %d: %v, of %v", n, got, seen)
		case len(got) == 1:
			seen[got[0].ID] = true
			if err := q.Delete(ctx, got[0].Lease); err != nil {
				fail("delete: %v", err)
			}
		}
	}
	return stale
}

// TestACachingProxyServesNothingStale (N-06): a dequeue is a GET, and its address is always the same. A
// signature is in the address or in a header that proxies may ignore.
func TestACachingProxyServesNothingStale(t *testing.T) {
	e, err := must(New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := startProxy(t, e.Addr().String())
	for name, location := range map[string]string{"with-key": e.ConnectionString(), "with-signature": signedLocation(t, e.URL())} {
		if stale := useThroughCache(t, location, name, p); len(stale) > 0 {
			t.Errorf("%s: got %d wrong responses: %s", name, len(stale), strings.Join(stale, "\n"))
		}
	}
	if n := p.stored(t); n != 0 || p.hits.Load() != 0 {
		t.Errorf("cache: got %d responses in it and %d from it, want 0", n, p.hits.Load())
	}

	// The same calls notice a server that leaves caching to the proxy.
	upstream := &url.URL{Scheme: "http", Host: e.Addr().String()}
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	naive := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Transport: own,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = upstream.Scheme, upstream.Host, upstream.Host
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Cache-Control")
			return nil
		},
	}}
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = naive.Serve(listening) })
	defer serving.Wait()
	defer naive.Close()
	if p := startProxy(t, listening.Addr().String()); len(useThroughCache(t, e.ConnectionString(), "naive", p)) == 0 || p.hits.Load() == 0 {
		t.Error("a server without Cache-Control: got no stale response, want some")
	}
}

// TestAWorkerBehindACachingProxy (N-06): producer, listener and wake-ups do not notice the proxy.
func TestAWorkerBehindACachingProxy(t *testing.T) {
	e, err := must(New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := startProxy(t, e.Addr().String())
	client := &http.Client{Transport: p}
	q, err := azurequeue.Open(e.ConnectionString(), "orders", &azurequeue.Options{Transport: client})
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 100
	orders := producer.New(q, &producer.Options[int]{Create: true})
	for n := range jobs {
		if _, err := orders.Send(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled [jobs]atomic.Int64
	var settled atomic.Int64
	o := &listener.Options[int]{Logger: slog.New(slog.DiscardHandler)}
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if outcome != listener.Deleted {
			t.Errorf("outcome: got %v, want deleted", outcome)
		}
		if settled.Add(1) == jobs {
			stop()
		}
	}
	l := listener.New(q, func(_ context.Context, m *listener.Message[int]) error { handled[m.Body].Add(1); return nil }, o)
	if err := l.Run(ctx); err != nil {
		t.Errorf("run: %v", err)
	}
	for n := range handled {
		if got := handled[n].Load(); got != 1 {
			t.Errorf("job %d: got handled %d times, want 1", n, got)
		}
	}
	if properties, err := q.Properties(t.Context()); err != nil || properties.Depth != 0 {
		t.Errorf("at the end: got %+v, %v; want depth 0", properties, err)
	}

	wakeups, err := serverwakeup.Open(e.ConnectionString(), &serverwakeup.Options{Transport: client})
	if err != nil {
		t.Fatal(err)
	}
	defer wakeups.Close()
	listening, events := make(chan bool, 10), make(chan event, 10)
	subscription, err := wakeups.Subscribe(q.Name(), func(q queue.Name, bytes int64, due time.Time) {
		events <- event{q, bytes, due}
	}, func(l bool) { listening <- l })
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Close()
	for _, step := range []string{"the stream is open", "the event"} {
		select {
		case <-listening:
			if _, err := orders.Send(t.Context(), jobs, nil); err != nil {
				t.Fatal(err)
			}
		case <-events:
		case <-time.After(time.Minute):
			t.Fatalf("waited for a minute until %s came through the proxy", step)
		}
	}
	if n := p.stored(t); n != 0 || p.hits.Load() != 0 {
		t.Errorf("cache: got %d responses in it and %d from it, want 0", n, p.hits.Load())
	}
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
