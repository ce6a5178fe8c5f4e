package emulator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// exchangeRaw sends a request and returns its response as text, without request id and dates.
func exchangeRaw(t *testing.T, e *Endpoint, method, text string) string {
	t.Helper()
	conn, in := dial(t, e)
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	id := response.Header.Get("X-Ms-Request-Id")
	response.Header.Del("X-Ms-Request-Id")
	response.Header.Del("Date")
	var b strings.Builder
	fmt.Fprintln(&b, response.Status, response.ContentLength, response.TransferEncoding, response.Close)
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		fmt.Fprintf(&b, "%s: %q\n", name, response.Header[name])
	}
	document, _, _ := strings.Cut(strings.ReplaceAll(string(body), id, "ID"), "\nTime:")
	return b.String() + document
}

// TestBothLoopsRespondTheSame: an endpoint's response does not depend on whether our own loop or
// net/http serves it. A delay selects net/http; this one is no time. So do faults, with the first
// request of a connection; this one never happens.
func TestBothLoopsRespondTheSame(t *testing.T) {
	start := func(o *Options) *Endpoint {
		e, err := must(New(nil, o)).Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	lean := start(nil)
	faulty := start(&Options{Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, At: []int64{1 << 60}}}}})
	watching := start(&Options{Delay: 1})
	if _, ok := watching.server.(*waitingServer); !ok {
		t.Fatalf("server with a delay: got %T, want *waitingServer", watching.server)
	}
	for name, e := range map[string]*Endpoint{"without": lean, "with": faulty} {
		if _, ok := e.server.(*waitingServer); ok {
			t.Fatalf("server %s faults: got %T, want our own", name, e.server)
		}
	}
	with := func(method, path, body string, headers ...string) string {
		return raw(method, path, body, "HTTP/1.1", strings.Join(append(headers, ""), "\r\n"))
	}
	for _, c := range []struct{ method, text string }{
		{"PUT", with("PUT", "/orders", "")},
		{"PUT", with("PUT", "/orders", "")},
		{"PUT", with("PUT", "/orders", "", "x-ms-meta-unsigned: 1")},
		{"GET", with("GET", "/orders?comp=metadata", "")},
		{"HEAD", with("HEAD", "/orders?comp=metadata", "")},
		{"HEAD", with("HEAD", "/missing?comp=metadata", "")},
		{"GET", with("GET", "?comp=list&prefix=or", "")},
		{"GET", with("GET", "/orders/messages", "")},
		{"POST", with("POST", "/orders/messages", "<QueueMessage>", "Origin: http://a.example")},
		{"DELETE", with("DELETE", "/orders/messages/x?popreceipt=%2Fy+z", "")},
		{"PUT", with("PUT", "/orders/messages/x?popreceipt=y&visibilitytimeout=0", "")},
		{"OPTIONS", with("OPTIONS", "/orders", "", "Origin: http://a.example")},
		{"GET", with("GET", "/or%2Fders/messages", "")},
		{"DELETE", with("DELETE", "/orders", "", "X-Ms-Client-Request-Id: mine")},
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	} {
		want := exchangeRaw(t, watching, c.method, c.text)
		for name, e := range map[string]*Endpoint{"without": lean, "with": faulty} {
			want := strings.ReplaceAll(want, watching.Addr().String(), e.Addr().String())
			if got := exchangeRaw(t, e, c.method, c.text); got != want {
				t.Errorf("%q %s faults: got\n%s\nwant, as from net/http,\n%s", c.text, name, got, want)
			}
		}
	}
}

// TestShutdownLetsOrdinaryRequestsFinish is TestShutdownLetsRequestsFinish with a request
// that net/http never sees.
func TestShutdownLetsOrdinaryRequestsFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	e, err := must(New(nil, &Options{Front: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		io.WriteString(w, "page")
	})})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	conn, in := dial(t, e)
	idle, _ := dial(t, e)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-entered
	done := make(chan error, 1)
	go func() { done <- e.Shutdown(context.Background()) }()
	if _, err := bufio.NewReader(idle).ReadByte(); err == nil {
		t.Error("an idle connection got a byte, want it closed")
	}
	close(release)
	if got := status(t, in, "GET"); got != http.StatusOK {
		t.Errorf("status: got %d, want 200", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
