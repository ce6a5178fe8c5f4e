package emulator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/pipelistener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// fortress is an endpoint with a small budget, under attack.
type fortress struct {
	*testing.T
	server   *Server
	budget   *budget
	listener *pipelistener.Listener
	clients  []net.Conn
}

// besiege runs a test in a bubble with an endpoint that has a budget of 2 MiB. At the end nothing
// may be charged.
func besiege(t *testing.T, test func(*fortress)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := must(New(nil, nil))
		s.memory = 2 << 20
		createOrders(t, s)
		l := pipelistener.New()
		e := s.serveOn(l, nil, patient, nil)
		f := &fortress{T: t, server: s, budget: e.budget, listener: l}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			for _, c := range f.clients {
				c.Close()
			}
			if b := e.budget; b.taken != 0 || b.held != 0 || b.waiting != 0 || len(b.conns) != 0 {
				t.Errorf("after the end: got %d bytes taken, %d held, %d waiting, %d connections; want 0", b.taken, b.held, b.waiting, len(b.conns))
			}
		}()
		test(f)
	})
}

// attack opens connections, each of which sends a text and reads no response.
func (f *fortress) attack(connections int, text string) (all []net.Conn) {
	f.Helper()
	for range connections {
		c := f.connect()
		all = append(all, c)
		go io.WriteString(c, text) // ends when the server or the test closes the connection
		synctest.Wait()
		f.check()
	}
	return all
}

func (f *fortress) connect() net.Conn {
	f.Helper()
	c, err := f.listener.Dial(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.clients = append(f.clients, c)
	return c
}

// check compares the bytes in use with the budget.
func (f *fortress) check() {
	f.Helper()
	f.budget.mu.Lock()
	defer f.budget.mu.Unlock()
	if used := f.budget.taken + f.budget.held; used > f.budget.most {
		f.Fatalf("got %d bytes in use on %d connections, want at most %d", used, len(f.budget.conns), f.budget.most)
	}
}

// worker is an honest client.
type worker struct {
	*fortress
	conn net.Conn
	in   *bufio.Reader
}

func (f *fortress) worker() *worker {
	f.Helper()
	c := f.connect()
	w := &worker{f, c, bufio.NewReader(c)}
	w.work()
	return w
}

// work puts and gets a message.
func (w *worker) work() {
	w.Helper()
	for _, r := range []struct {
		method, text string
		want         int
	}{
		{"POST", raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", ""), http.StatusCreated},
		{"GET", raw("GET", "/orders/messages", "", "HTTP/1.1", ""), http.StatusOK},
	} {
		if _, err := io.WriteString(w.conn, r.text); err != nil {
			w.Fatalf("%s of a worker: %v", r.method, err)
		}
		if got := status(w.T, w.in, r.method); got != r.want {
			w.Errorf("%s of a worker: got %d, want %d", r.method, got, r.want)
		}
	}
	w.check()
}

// closed returns how many of the connections the server has closed.
func closed(all []net.Conn) (n int) {
	for _, c := range all {
		c.SetReadDeadline(time.Now().Add(time.Nanosecond))
		for err := error(nil); err == nil; {
			if _, err = c.Read(make([]byte, 64<<10)); errors.Is(err, io.EOF) {
				n++
			}
		}
	}
	return n
}

// TestStrangersCannotTakeMemory: whatever strangers send without an end, the server closes their
// oldest connections, and workers lose none.
func TestStrangersCannotTakeMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	line := "a: " + strings.Repeat("b", 1000) + "\r\n"
	for name, c := range map[string]struct {
		text string
		most int // connections that stay open
	}{
		"nothing":             {"", 128},
		"unfinished head":     {"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat(line, 60), 13},
		"odd unfinished head": {"GET / HTTP/1.0\r\nHost: x\r\n" + strings.Repeat(line, 60), 13},
		"unfinished line":     {"GET /" + strings.Repeat("a", 60_000), 13},
		"body of a stranger":  {"POST /devstoreaccount1/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 131000\r\n\r\n" + strings.Repeat("a", 65_000), 13},
		"unread refusals":     {strings.Repeat("GET /devstoreaccount1/orders/messages HTTP/1.1\r\nHost: localhost\r\n\r\n", 300), 60},
		"unread chunks":       {strings.Repeat("GET /devstoreaccount1/orders/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 100), 128},
	} {
		t.Run(name, func(t *testing.T) {
			besiege(t, func(f *fortress) {
				idle := f.worker()
				var all []net.Conn
				for range 3 {
					all = append(all, f.attack(60, c.text)...)
					idle.work()
					f.worker() // a new one gets in
				}
				if open := len(all) - closed(all); open == 0 || open > c.most {
					t.Errorf("got %d of %d connections of strangers open, want 1 to %d", open, len(all), c.most)
				}
				if n := closed(all[len(all)-1:]); n != 0 {
					t.Error("the newest connection is closed, want the oldest ones closed")
				}
			})
		})
	}
}

// TestClientsWithAKeyCannotTakeMemory: connections with large bodies or responses that make no
// progress give way.
func TestClientsWithAKeyCannotTakeMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	for name, text := range map[string]string{
		"unread responses":       raw("GET", peekLarge, "", "HTTP/1.1", ""),
		"unread small responses": strings.Repeat(raw("GET", "/orders?comp=metadata", "", "HTTP/1.1", ""), 200),
		"unread over net/http":   raw("GET", peekLarge, "", "HTTP/1.1", "Pragma: x\r\n"),
		"unfinished bodies":      strings.TrimSuffix(raw("POST", "/orders/messages", wrap(strings.Repeat("a", 65_000)), "HTTP/1.1", ""), ">"),
		"bodies not begun":       strings.SplitAfter(raw("POST", "/orders/messages", wrap(strings.Repeat("a", 65_000)), "HTTP/1.1", ""), "\r\n\r\n")[0],
	} {
		t.Run(name, func(t *testing.T) {
			besiege(t, func(f *fortress) {
				fillLarge(f)
				idle := f.worker()
				all := f.attack(200, text)
				idle.work()
				newcomer := f.worker()
				for range 10 {
					time.Sleep(stallPatience)
					f.check()
					idle.work()
					newcomer.work()
				}
				if n := closed(all); n < 40 {
					t.Errorf("got %d of %d connections closed, want those beyond the budget", n, len(all))
				}
			})
		})
	}
}

// fillLarge makes the queue "large" with ten large messages.
func fillLarge(f *fortress) {
	f.Helper()
	large := f.server.engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "large"})
	if err := large.Create(f.Context(), nil); err != nil {
		f.Fatal(err)
	}
	for range 10 {
		enqueue(f.T, large, strings.Repeat("a", 50_000), 0)
	}
}

const peekLarge = "/large/messages?peekonly=true&numofmessages=10"

// TestLargeResponsesWaitForMemory: more readers than there is memory for get their responses in
// turn, as long as they read; nothing is refused or closed. Beyond a limit they are refused.
func TestLargeResponsesWaitForMemory(t *testing.T) {
	besiege(t, func(f *fortress) {
		readers := f.readLarge(12)
		if f.budget.held > f.budget.most/2 || f.budget.waiting == 0 {
			t.Fatalf("got %d bytes held and %d waiting, want two responses that wait", f.budget.held, f.budget.waiting)
		}
		refused := f.connect()
		go io.WriteString(refused, raw("GET", peekLarge, "", "HTTP/1.1", ""))
		if got := status(t, bufio.NewReader(refused), "GET"); got != http.StatusServiceUnavailable {
			t.Errorf("one too many: got %d, want 503", got)
		}
		var reading sync.WaitGroup
		for _, c := range readers {
			reading.Go(func() {
				if got := status(t, bufio.NewReaderSize(slowReader{c}, 16<<10), "GET"); got != http.StatusOK {
					t.Errorf("got %d, want 200", got)
				}
			})
		}
		reading.Wait()
	})
}

// TestAStalledResponseGivesWay: readers that wait for the memory of others that do not read get
// their responses.
func TestAStalledResponseGivesWay(t *testing.T) {
	besiege(t, func(f *fortress) {
		readers := f.readLarge(12)
		began := time.Now()
		for _, c := range readers[10:] {
			if got := status(t, bufio.NewReader(c), "GET"); got != http.StatusOK {
				t.Errorf("got %d, want 200", got)
			}
		}
		if waited := time.Since(began); waited > 2*stallPatience {
			t.Errorf("they waited for %v, want at most %v", waited, 2*stallPatience)
		}
		if n := closed(readers[:10]); n != 10 {
			t.Errorf("got %d of 10 stalled connections closed, want all", n)
		}
	})
}

// TestManyWaitsDoNotShortenThePatience: however often requests have waited, a client that makes progress
// within stallPatience keeps its connection.
func TestManyWaitsDoNotShortenThePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<20, false)
		connect := func() *countedConn {
			client, server := net.Pipe()
			t.Cleanup(func() { client.Close() })
			c := &countedConn{Conn: server, budget: b}
			b.conns[c] = struct{}{}
			return c
		}
		slow, other := connect(), connect()
		defer slow.Close()
		defer other.Close()
		const large = 400 << 10 // the budget has room for one
		for range 10 {
			slow.hold(large)
			go other.hold(120 << 10) // waits until the other one is released
			synctest.Wait()
			time.Sleep(stallPatience / 11)
			slow.release()
			synctest.Wait()
			other.release()
		}
		slow.hold(large)
		go other.hold(120 << 10)
		for range 20 {
			time.Sleep(stallPatience * 2 / 5)
			slow.moved()
		}
		b.mu.Lock()
		open, waiting := b.counts(slow), b.waiting
		b.mu.Unlock()
		if !open || waiting == 0 {
			t.Errorf("connection that makes progress: open %v, with %d bytes waiting; want it open while a request waits", open, waiting)
		}
		slow.release()
		synctest.Wait()
		other.release()
	})
}

// readLarge sends requests for large responses: ten for which there is memory, and others.
func (f *fortress) readLarge(n int) (readers []net.Conn) {
	f.Helper()
	fillLarge(f)
	f.budget.most = 10<<20 + 300<<10 // responses have 500 KiB
	for range n {
		c := f.connect()
		readers = append(readers, c)
		go io.WriteString(c, raw("GET", peekLarge, "", "HTTP/1.1", ""))
		synctest.Wait()
	}
	return readers
}

// slowReader takes 100 ms for each read.
type slowReader struct{ io.Reader }

func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return r.Reader.Read(p)
}

// failingListener fails once, as if too many files were open.
type failingListener struct {
	*pipelistener.Listener
	fail chan error
}

func (l failingListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.fail:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestAFailedAcceptMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := failingListener{pipelistener.New(), make(chan error, 1)}
		e := must(New(nil, nil)).serveOn(l, nil, patient, nil)
		defer e.Close()
		var all []net.Conn
		for i := range 64 {
			if i == 63 {
				l.fail <- syscall.EMFILE
			}
			c, err := l.Dial(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			all = append(all, c)
		}
		time.Sleep(time.Second)
		if n := closed(all); n != 2 {
			t.Errorf("got %d connections closed, want 2", n)
		}
		if n := closed(all[:2]); n != 2 {
			t.Error("got others closed, want the oldest")
		}
	})
}

// TestAPageOfQueuesIsBounded lists queues with more metadata than a page may have.
func TestAPageOfQueuesIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("makes thousands of queues")
	}
	s := must(New(nil, nil))
	metadata := map[string]string{"a": strings.Repeat("b", driver.MaxMetadata-1)}
	const all = 200
	for i := range all {
		if err := s.engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: fmt.Sprintf("q-%03d", i)}).Create(t.Context(), metadata); err != nil {
			t.Fatal(err)
		}
	}
	seen, pages := 0, 0
	for marker := ""; pages == 0 || marker != ""; pages++ {
		a := do(t, s, signed("GET", "?comp=list&include=metadata&marker="+marker, ""))
		if len(a.body) > maxListing+64<<10 {
			t.Errorf("got a page of %d bytes, want about %d", len(a.body), maxListing)
		}
		seen += strings.Count(a.body, "<Name>")
		_, next, _ := strings.Cut(a.body, "<NextMarker>")
		marker, _, _ = strings.Cut(next, "</NextMarker>")
	}
	if seen != all || pages != 2 {
		t.Errorf("got %d queues on %d pages, want %d on 2", seen, pages, all)
	}
}
