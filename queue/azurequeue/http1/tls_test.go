package http1

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// writes counts the writes to a socket.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Write(p []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(p)
}

// A request is sent in as few TLS records as possible, each one write, also on a new connection,
// where TLS begins with small records.
func TestASmallRequestIsOneWrite(t *testing.T) {
	address, o, _ := serveFlights(t, true, func(s *served) { io.WriteString(s.wire, s.text()) })
	var n atomic.Int64
	o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return writes{c, &n}, err
	}
	transport := must(New(o))
	defer transport.Close()
	if _, err := fetch(t, transport, newRequest(t, "GET", address, "")); err != nil { // includes the handshake
		t.Fatal(err)
	}
	before := n.Load()
	if _, err := fetch(t, transport, newRequest(t, "PUT", address, strings.Repeat("x", 10_000))); err != nil {
		t.Fatal(err)
	}
	if got := n.Load() - before; got != 1 {
		t.Errorf("writes of a request of 10 kB: got %d, want 1", got)
	}
}
