//go:build !race

package plainhttp

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// fixed are constant headers, which cost no allocation.
var fixed, fixedLength = []string{"x"}, []string{"4"}

// wire is a client on a real socket that does not allocate.
type wire struct {
	conn    net.Conn
	request []byte
	room    []byte
	answer  int // how long it is
}

func (w *wire) round(t testing.TB) {
	if _, err := w.conn.Write(w.request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(w.conn, w.room[:w.answer]); err != nil {
		t.Fatal(err)
	}
}

// newWire returns a client of a server that reads bodies and responds with four bytes.
func newWire(t testing.TB, request string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scrap := make([]byte, 64)
	s := New(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body.Read(scrap)
		h := w.Header()
		h["Date"], h["Content-Type"], h["Content-Length"] = fixed, fixed, fixedLength
		w.Write(scrap[:4])
	})})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // http.ErrServerClosed
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Close()
		<-done
	})
	w := &wire{conn: conn, request: []byte(request), room: make([]byte, 4<<10)}
	if _, err := conn.Write(w.request); err != nil {
		t.Fatal(err)
	}
	if w.answer, err = conn.Read(w.room); err != nil {
		t.Fatal(err)
	}
	return w
}

const deletion = "DELETE /devstoreaccount1/orders/messages/5?popreceipt=abc HTTP/1.1\r\n" + host +
	"User-Agent: azsdk\r\nAccept: application/xml\r\nauthorization: SharedKey x:y\r\nx-ms-client-request-id: z\r\n" +
	"X-Ms-Date: today\r\nx-ms-version: 2020-01-01\r\nAccept-Encoding: gzip\r\n"

// TestOneAllocationPerRequest: a request allocates only the string of its head.
func TestOneAllocationPerRequest(t *testing.T) {
	for name, request := range map[string]string{
		"plain": deletion + "\r\n",
		"body":  deletion + "Content-Length: 3\r\n\r\nabc",
	} {
		w := newWire(t, request)
		if n := testing.AllocsPerRun(2000, func() { w.round(t) }); n > 1 {
			t.Errorf("%s: allocations per request: got %v, want 1", name, n)
		}
	}
}

func BenchmarkRound(b *testing.B) {
	w := newWire(b, deletion+"\r\n")
	b.ReportAllocs()
	for b.Loop() {
		w.round(b)
	}
}
