package emulator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

const wakeupsPath = "/orders?comp=wakeups"

// opened is an open stream.
type opened struct {
	*testing.T
	id     string
	body   io.Closer
	reader *bufio.Reader
}

// openOver opens a stream of the queue "orders" and reads its first line.
func openOver(t *testing.T, transport http.RoundTripper, host string) *opened {
	t.Helper()
	r := signed("GET", wakeupsPath, "")
	if host != "" {
		r.URL.Host, r.Host = host, ""
	}
	response, err := transport.RoundTrip(r) //nolint:bodyclose // the test closes it when it ends
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{T: t, body: response.Body, reader: bufio.NewReader(response.Body)}
	t.Cleanup(o.close)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Fatalf("got status %d and headers %v, want a stream", response.StatusCode, response.Header)
	}
	words := strings.Split(o.line(), " ")
	if len(words) != 3 || words[0] != "ready" || len(words[1]) != 32 || words[2] != "15" {
		t.Fatalf("got %q as the first line, want ready, an id and 15", words)
	}
	o.id = words[1]
	return o
}

func (o *opened) close() { _ = o.body.Close() }

// line returns the next line, or the error in its place.
func (o *opened) line() string {
	line, err := o.reader.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(line, "\n")
}

func (o *opened) wantLine(want string) {
	o.Helper()
	if got := o.line(); got != want {
		o.Errorf("got the line %q, want %q", got, want)
	}
}

// say sends a request for readiness and returns the status.
func say(t *testing.T, s *Server, query string) int {
	t.Helper()
	response, err := s.RoundTrip(signed("PUT", wakeupsPath+query, ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func enqueue(t *testing.T, q queue.Manager, text string, delay time.Duration) {
	t.Helper()
	if _, err := q.Enqueue(t.Context(), text, &queue.EnqueueOptions{Delay: delay}); err != nil {
		t.Fatal(err)
	}
}

func TestAStreamHasALineForEveryEventAndWhenNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		o := openOver(t, s, "")
		enqueue(t, q, "abc", 0)
		o.wantLine("event 3")
		if _, err := q.Dequeue(t.Context(), 1, time.Second); err != nil {
			t.Fatal(err)
		}
		o.wantLine("event 0") // the lease has ended
		if err := q.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, "abc", 10*time.Second)
		o.wantLine("event 0")
		if err := q.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		began, lines := time.Now(), 0
		for line := ""; line == ""; lines++ {
			line = o.line()
		}
		if life := time.Since(began); life > maxStreamLife || lines < int(maxStreamLife/keepAlive)-2 {
			t.Errorf("the stream ended after %v and %d empty lines, want about an hour and one every 15 s", life, lines)
		}
		openOver(t, s, "").close()
	})
}

func TestOneStreamIsWokenAndTheNextOneWhenItDoesNotDequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		a, b := openOver(t, s, ""), openOver(t, s, "")
		enqueue(t, q, "1", 0)
		a.wantLine("event 1")
		a.close() // the process has died
		b.wantLine("event 1")
		c := openOver(t, s, "")
		if got := say(t, s, "&stream="+b.id+"&ready=false"); got != http.StatusNoContent {
			t.Fatalf("got %d, want 204", got)
		}
		c.wantLine("event 1")
		if got := say(t, s, "&stream="+b.id+"&ready=true"); got != http.StatusNoContent {
			t.Fatalf("got %d, want 204", got)
		}
		b.wantLine("event 1") // c hangs
		if got := s.Counts().Requests(); got != 0 {
			t.Errorf("got %d transactions, want none", got)
		}
	})
}

// TestOneMessageCostsTwoDequeuesWhateverTheNumberOfIdleInstances runs instances that dequeue when
// they hear an event, until nothing is left.
func TestOneMessageCostsTwoDequeuesWhateverTheNumberOfIdleInstances(t *testing.T) {
	for _, instances := range []int{1, 2, 10} {
		synctest.Test(t, func(t *testing.T) {
			s, q := withOptions(t, nil)
			for range instances {
				o := openOver(t, s, "")
				go func() {
					for strings.HasPrefix(o.line(), "event") {
						for found := true; found; {
							response, err := s.RoundTrip(signed("GET", "/orders/messages?numofmessages=32", ""))
							if err != nil {
								t.Error(err)
								return
							}
							text, _ := io.ReadAll(response.Body)
							_ = response.Body.Close()
							found = strings.Contains(string(text), "MessageText")
						}
					}
				}()
			}
			for range 20 {
				synctest.Wait()
				before := s.Counts().Operations[GetMessages]
				enqueue(t, q, "x", 0)
				synctest.Wait()
				if got := s.Counts().Operations[GetMessages] - before; got != 2 {
					t.Errorf("%d idle instances sent %d dequeues for a message, want 2", instances, got)
				}
			}
			if err := q.Drop(t.Context()); err != nil { // ends the streams
				t.Fatal(err)
			}
			synctest.Wait()
		})
	}
}

func TestAStreamEndsWithItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		o := openOver(t, s, "")
		if err := q.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.wantLine("EOF")
		if got := say(t, s, "&stream="+o.id+"&ready=true"); got != http.StatusNotFound {
			t.Errorf("ready after the end: got %d, want 404", got)
		}
	})
}

func TestAStreamNeedsThePermissionToProcess(t *testing.T) {
	s, _ := withOptions(t, nil)
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, c := range []struct {
		name, method, path string
		change             func(*http.Request)
		want               int
	}{
		{"key", "GET", wakeupsPath, nil, 200},
		{"process", "GET", wakeupsPath, serviceSAS("orders", "sp", "p"), 200},
		{"account process", "GET", wakeupsPath, accountSAS("sp", "p", "srt", "o"), 200},
		{"read", "GET", wakeupsPath, serviceSAS("orders", "sp", "r"), 403},
		{"account read", "GET", wakeupsPath, accountSAS("sp", "r", "srt", "o"), 403},
		{"all but process", "GET", wakeupsPath, serviceSAS("orders", "sp", "rau"), 403},
		{"other queue", "GET", wakeupsPath, serviceSAS("letters"), 403},
		{"wrong service", "GET", wakeupsPath, accountSAS("ss", "b"), 403},
		{"nobody", "GET", wakeupsPath, anonymously, 401},
		{"wrong key", "GET", wakeupsPath, func(r *http.Request) {
			r.Header.Set("Authorization", "SharedKey devstoreaccount1:AAAA")
		}, 403},
		{"signed for another request", "GET", wakeupsPath, func(r *http.Request) {
			r.Header.Set("Authorization", signed("GET", "/orders?comp=metadata", "").Header.Get("Authorization"))
		}, 403},
		{"page", "GET", wakeupsPath, func(r *http.Request) { r.Header.Set("Origin", "https://example.com") }, 403},
		{"image of a page", "GET", wakeupsPath, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"foreign host", "GET", wakeupsPath, func(r *http.Request) { r.Host = "example.com" }, 403},
		{"missing queue", "GET", "/nothing?comp=wakeups", nil, 404},
		{"bad name", "GET", "/Bad_Name?comp=wakeups", nil, 400},
		{"short name", "GET", "/q?comp=wakeups", nil, 400},
		{"account", "GET", "/?comp=wakeups", nil, 400},
		{"verb", "POST", wakeupsPath, nil, 405},
		{"verb HEAD", "HEAD", wakeupsPath, nil, 405},
		{"escaped", "GET", "/orders?comp=%77akeups", nil, 501},
		{"twice", "GET", "/orders?comp=wakeups&comp=wakeups", nil, 400},
		{"no stream", "PUT", wakeupsPath, nil, 400},
		{"no readiness", "PUT", wakeupsPath + "&stream=x", nil, 400},
		{"maybe", "PUT", wakeupsPath + "&stream=x&ready=maybe", nil, 400},
		{"unknown stream", "PUT", wakeupsPath + "&stream=x&ready=true", nil, 404},
		{"ready by a reader", "PUT", wakeupsPath + "&stream=x&ready=true", serviceSAS("orders", "sp", "rau"), 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := signed(c.method, c.path, "")
			r.URL.Host = e.Addr().String()
			r.Host = ""
			if c.change != nil {
				c.change(r)
			}
			transport := new(http.Transport)
			defer transport.CloseIdleConnections()
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != c.want {
				t.Errorf("got %d, want %d", response.StatusCode, c.want)
			}
		})
	}
}

func TestAStreamOfAnotherQueueCannotBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		if err := q.Sibling("-x").Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		o := openOver(t, s, "")
		if a := do(t, s, signed("PUT", "/orders-x?comp=wakeups&ready=false&stream="+o.id, "")); a.status != http.StatusNotFound {
			t.Fatalf("got status %d, want 404", a.status)
		}
		enqueue(t, q, "1", 0)
		o.wantLine("event 1")
	})
}

func TestStreamsAreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a thousand streams")
	}
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		status := func(path string) int {
			response, err := s.RoundTrip(signed("GET", path, ""))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = response.Body.Close() })
			return response.StatusCode
		}
		open, first := 0, openOver(t, s, "")
		for i := range 6 {
			if err := q.Sibling(fmt.Sprint("-", i)).Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			path := "/orders?comp=wakeups"
			if i > 0 {
				path = fmt.Sprintf("/orders-%d?comp=wakeups", i)
			}
			for range maxQueueStreams {
				if status(path) == http.StatusOK {
					open++
				}
			}
		}
		if open != maxStreams-1 {
			t.Errorf("got %d more streams, want %d", open, maxStreams-1)
		}
		if got := status(wakeupsPath); got != http.StatusServiceUnavailable {
			t.Errorf("got %d above the limit, want 503", got)
		}
		first.close()
		if got := status(wakeupsPath); got != http.StatusOK {
			t.Errorf("got %d after a stream was closed, want 200", got)
		}
		enqueue(t, q, "1", 0) // nobody reads
		if got, err := q.Dequeue(t.Context(), 1, time.Minute); err != nil || len(got) != 1 {
			t.Errorf("dequeue beside the streams: got %d messages, %v", len(got), err)
		}
	})
}

func TestAStreamThatIsNotReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		response, err := s.RoundTrip(signed("GET", wakeupsPath, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		enqueue(t, q, "1", 0)
		time.Sleep(writeWithin)
		synctest.Wait()
		if n := s.openStreams(); n != 0 {
			t.Errorf("%d streams are open, want none", n)
		}
		if _, err := response.Body.Read(make([]byte, 10)); !errors.Is(err, errSlowReader) {
			t.Errorf("read: got %v, want %v", err, errSlowReader)
		}
	})
}

// deadlines is a ResponseWriter that records deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	write  []time.Time
	writes int
}

func (d *deadlines) SetReadDeadline(time.Time) error { return nil }
func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.write = append(d.write, at)
	return nil
}

func (d *deadlines) WriteString(text string) (int, error) { return d.Write([]byte(text)) }

func (d *deadlines) Write(p []byte) (int, error) {
	if len(d.write) <= d.writes || !d.write[d.writes].Equal(time.Now().Add(writeWithin)) {
		return 0, errors.New("a write without a deadline of its own")
	}
	if d.writes++; d.writes == 2 {
		return 0, errors.New("i/o timeout")
	}
	return d.ResponseRecorder.Write(p)
}

func TestEveryLineHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withOptions(t, nil)
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s.ServeHTTP(w, signed("GET", wakeupsPath, "")) // until the second write fails
		if text := w.Body.String(); w.writes != 2 || !strings.HasSuffix(text, " 15\n") {
			t.Errorf("got %q in %d writes, want the first line in the first of two", text, w.writes)
		}
	})
}

func TestAServerThatCannotStreamSaysSo(t *testing.T) {
	s, _ := withOptions(t, nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(struct{ http.ResponseWriter }{w}, signed("GET", wakeupsPath, ""))
	if w.Code != http.StatusNotImplemented {
		t.Errorf("got %d, want 501", w.Code)
	}
}

func TestFaultsSpareStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := faulty(t, 1, "*:reset")
		o := openOver(t, s, "")
		enqueue(t, q, "1", 0)
		o.wantLine("event 1")
	})
}

func TestStreamsAreCountedButNotAsTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withOptions(t, nil)
		o := openOver(t, s, "")
		say(t, s, "&ready=true&stream="+o.id)
		do(t, s, signed("GET", "/orders/messages", ""))
		c := s.Counts()
		if c.Requests() != 1 || c.Operations[OpenWakeups] != 1 || c.Operations[ReadyWakeups] != 1 || c.Tallies[OpenWakeups].Responses[2] != 1 {
			t.Errorf("got %+v", c)
		}
		before, after, _ := strings.Cut(c.String(), "transactions")
		if strings.Contains(before, "Wakeups") || !strings.Contains(after, "OpenWakeups") || !strings.Contains(after, "ReadyWakeups") {
			t.Errorf("got the table\n%s\nwant the streams below the transactions", c)
		}
	})
}

func TestTheEndOfAnEndpointEndsStreams(t *testing.T) {
	for name, end := range map[string]func(*Endpoint) error{
		"close": (*Endpoint).Close,
		"shutdown": func(e *Endpoint) error {
			return e.Shutdown(context.Background()) // hangs if streams do not end
		},
	} {
		for _, waiting := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", waiting), func(t *testing.T) {
				o := new(Options)
				if waiting {
					o.Delay = time.Nanosecond // net/http serves everything
				}
				s, _ := withOptions(t, o)
				e, err := s.Start("")
				if err != nil {
					t.Fatal(err)
				}
				transport := new(http.Transport)
				var all []*opened
				for range 20 {
					all = append(all, openOver(t, transport, e.Addr().String()))
				}
				if err := end(e); err != nil {
					t.Fatal(err)
				}
				for _, o := range all {
					if got := o.line(); got != "EOF" && got != "unexpected EOF" && !strings.Contains(got, "reset") {
						t.Errorf("got %q, want the end", got)
					}
				}
				if len(s.streams.open) != 0 {
					t.Errorf("%d streams are open, want none", len(s.streams.open))
				}
			})
		}
	}
}

// TestHostileClientsHurtNobody opens more streams than a queue may have, over connections that
// never read or are closed at any byte of the request, beside requests that work.
func TestHostileClientsHurtNobody(t *testing.T) {
	e := startEndpoint(t, patient)
	request := raw("GET", wakeupsPath, "", "HTTP/1.1", "")
	var open []net.Conn
	for i := range maxQueueStreams + 40 {
		conn, err := net.Dial("tcp", e.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		sent := request
		if i%8 == 0 {
			sent = request[:i*len(request)/(maxQueueStreams+40)]
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			_ = conn.Close()
		}
	}
	for i := range 20 {
		for _, r := range []string{raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", ""), raw("GET", "/orders/messages", "", "HTTP/1.1", "")} {
			conn, reader := dial(t, e)
			if _, err := io.WriteString(conn, r); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("request %d beside hostile streams: %v", i, err)
			}
			if _ = response.Body.Close(); response.StatusCode >= 300 {
				t.Fatalf("request %d beside hostile streams: got status %d", i, response.StatusCode)
			}
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
}

// TestAClientThatLeavesIsNoticed shows that the event of a client that has left over a socket goes
// to another.
func TestAClientThatLeavesIsNoticed(t *testing.T) {
	s, q := withOptions(t, nil)
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	transport := &http.Transport{DisableKeepAlives: true}
	for range 10 {
		a := openOver(t, transport, e.Addr().String())
		b := openOver(t, transport, e.Addr().String())
		enqueue(t, q, "1", 0)
		a.wantLine("event 1")
		a.close()
		b.wantLine("event 1")
		if _, err := q.Dequeue(t.Context(), 32, time.Hour); err != nil {
			t.Fatal(err)
		}
		b.close()
		waitForNoStream(t, s)
	}
}

// TestAStreamAfterAPipelinedRequest shows that requests that come in one piece with that for a
// stream are answered before it, and that what follows it neither breaks nor reaches anything.
func TestAStreamAfterAPipelinedRequest(t *testing.T) {
	s, _ := withOptions(t, nil)
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, after := range []string{"", "x", "GET / HTTP/1.1\r\n\r\n", raw("POST", "/orders/messages", wrap("y"), "HTTP/1.1", "")} {
		conn, reader := dial(t, e)
		put := raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", "")
		if _, err := io.WriteString(conn, put+put+raw("GET", wakeupsPath, "", "HTTP/1.1", "")+after); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			response, err := http.ReadResponse(reader, nil)
			if err != nil || response.StatusCode != http.StatusCreated {
				t.Fatalf("put before a stream: got %v, %v", response, err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("followed by %q: got %v, %v; want a stream", after, response, err)
		}
		line, err := bufio.NewReader(response.Body).ReadString('\n')
		if err != nil || len(line) < 6 || line[:6] != "ready " {
			t.Fatalf("followed by %q: got line %q, %v", after, line, err)
		}
		if got := s.Counts().Operations[PutMessage]; got%2 != 0 {
			t.Errorf("followed by %q: got %d messages put, want what came before the stream alone", after, got)
		}
		_ = conn.Close()
		_ = response.Body.Close()
	}
	waitForNoStream(t, s)
}

func waitForNoStream(t *testing.T, s *Server) {
	t.Helper()
	for {
		s.streams.mu.Lock()
		n := len(s.streams.open)
		s.streams.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("a stream stays open")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAStreamNeedsSignsOfLife opens streams over connections whose clients read every line: the
// server cannot tell whether a program or only its kernel does.
func TestAStreamNeedsSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		p := onPipes(t, s)
		quiet, lively := openOver(t, p.dial(t), "127.0.0.1"), openOver(t, p.dial(t), "127.0.0.1")
		ended := make(chan time.Duration, 2)
		began := time.Now()
		for _, o := range []*opened{quiet, lively} {
			go func() {
				for o.line() == "" {
				}
				ended <- time.Since(began)
			}()
		}
		for range 5 {
			time.Sleep(maxSilence - time.Second)
			if got := say(t, s, "&ready=true&stream="+lively.id); got != http.StatusNoContent {
				t.Fatalf("got %d, want 204", got)
			}
		}
		if got := <-ended; got != maxSilence || maxSilence > 30*time.Second {
			t.Errorf("the quiet stream ended after %v, want %v and at most 30 s", got, maxSilence)
		}
		if got := say(t, s, "&ready=true&stream="+quiet.id); got != http.StatusNotFound {
			t.Errorf("a sign of life after the end: got %d, want 404", got)
		}
		if got, want := <-ended, 6*maxSilence-5*time.Second; got != want {
			t.Errorf("the lively stream ended after %v, want %v", got, want)
		}
		enqueue(t, q, "1", 0)
		if n := s.openStreams(); n != 0 {
			t.Errorf("%d streams are open, want 0", n)
		}
	})
}

// TestAStreamThatIsNotReadAnyMoreEnds opens streams over connections that are read for a while,
// with an event later.
func TestAStreamThatIsNotReadAnyMoreEnds(t *testing.T) {
	for _, c := range []struct{ reads, event time.Duration }{
		{0, 0}, {0, 29 * time.Second}, {time.Second, 2 * time.Second}, {20 * time.Second, 25 * time.Second}, {20 * time.Second, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, q := withOptions(t, nil)
			conn, err := onPipes(t, s).Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, raw("GET", wakeupsPath, "", "HTTP/1.1", "")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := s.openStreams(); n != 1 {
				t.Fatalf("%d streams are open, want 1", n)
			}
			began := time.Now()
			_ = conn.SetReadDeadline(began.Add(c.reads))
			_, _ = io.Copy(io.Discard, conn) // until then
			time.Sleep(c.event - time.Since(began))
			enqueue(t, q, "1", 0)
			time.Sleep(30*time.Second - time.Since(began))
			synctest.Wait()
			if n := s.openStreams(); n != 0 {
				t.Errorf("read for %v, event after %v: %d streams are open after 30 s, want 0", c.reads, c.event, n)
			}
		})
	}
}

func (s *Server) openStreams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return len(s.streams.open)
}

// TestOneSignatureCannotTakeAllStreams fills a queue with the streams of one signature. Clients
// with the key get half of them.
func TestOneSignatureCannotTakeAllStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withOptions(t, nil)
		signature := serviceSAS("orders", "sp", "p", "se", inHours(1)) // the same one every time
		r := signed("GET", wakeupsPath, "")
		signature(r)
		response, err := s.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		first := opened{T: t, reader: bufio.NewReader(response.Body)}
		first.line()
		heard := time.Now()
		time.Sleep(time.Second) // the others are heard later
		open := func(n int, change func(*http.Request)) (opened int) {
			for range n {
				r := signed("GET", wakeupsPath, "")
				if change != nil {
					change(r)
				}
				response, err := s.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = response.Body.Close() })
				if response.StatusCode == http.StatusOK {
					opened++
				}
			}
			synctest.Wait()
			return opened
		}
		for _, c := range []struct {
			name   string
			n      int
			change func(*http.Request)
			want   int
		}{
			{"signature", maxQueueStreams + 10, signature, maxQueueStreams - 1},
			{"key", maxQueueStreams, nil, maxQueueStreams / 2},
			{"signature again", 10, signature, 0},
			{"another signature", maxQueueStreams, accountSAS("sp", "p", "srt", "o"), maxQueueStreams / 3},
		} {
			if got := open(c.n, c.change); got != c.want {
				t.Errorf("%s: got %d streams, want %d", c.name, got, c.want)
			}
			if got := s.openStreams(); got != maxQueueStreams {
				t.Errorf("%s: %d streams are open, want %d", c.name, got, maxQueueStreams)
			}
		}
		if first.wantLine("EOF"); time.Since(heard) > maxSilence/2 {
			t.Error("the stream that gave way ended late, want it to end when another one was opened")
		}
	})
}

func TestTheClientWithMostStreamsGivesWay(t *testing.T) {
	address := netip.MustParsePrefix
	key, signature := holder{"a", "key", address("10.0.0.1/32")}, holder{"a", "sig", address("10.0.0.1/32")}
	far, other := holder{"a", "sig", address("10.0.0.2/32")}, holder{"b", "key", address("10.0.0.1/32")}
	for name, c := range map[string]struct {
		open     map[holder]int
		newcomer holder
		want     holder // zero if no stream gives way
	}{
		"alone":                  {map[holder]int{key: 9}, key, holder{}},
		"another credential":     {map[holder]int{key: 9}, signature, key},
		"another address":        {map[holder]int{signature: 9}, far, signature},
		"a fair share":           {map[holder]int{key: 5, signature: 4}, signature, holder{}},
		"less than a fair share": {map[holder]int{key: 6, signature: 3}, signature, key},
		"the most of three":      {map[holder]int{key: 4, signature: 3, far: 2}, far, key},
		"another account":        {map[holder]int{key: 1, signature: 1, far: 1}, other, holder{account: "a"}},
		"the larger account":     {map[holder]int{key: 5, signature: 2, other: 6}, other, holder{}},
		"the smaller account":    {map[holder]int{key: 3, signature: 2, other: 2}, other, key},
		"within the account":     {map[holder]int{key: 4, other: 4}, signature, key},
	} {
		t.Run(name, func(t *testing.T) {
			var open []*stream
			for h, n := range c.open {
				for i := range n {
					open = append(open, &stream{holder: h, heard: time.Unix(int64(i), 0)})
				}
			}
			got := givesWay(open, c.newcomer)
			switch {
			case got == nil:
				if c.want != (holder{}) {
					t.Errorf("got no stream, want one of %v", c.want)
				}
			case c.want == (holder{}), got.holder.account != c.want.account, c.want.credential != "" && got.holder != c.want:
				t.Errorf("got one of %v, want one of %v", got.holder, c.want)
			case got.heard != time.Unix(0, 0):
				t.Errorf("got the stream heard at %v, want the one that was heard first", got.heard)
			}
		})
	}
}
