package emulator

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// discard is an http.ResponseWriter that costs next to nothing.
type discard struct{ header http.Header }

func (w *discard) Header() http.Header         { return w.header }
func (w *discard) WriteHeader(int)             {}
func (w *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkServe measures the server without a client: requests are signed before the clock
// starts.
func BenchmarkServe(b *testing.B) {
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "bench"})
	if err := q.Create(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("x", 1024)
	fill := func(n int) {
		for range n {
			if _, err := q.Enqueue(context.Background(), text, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	s := must(New(engine, nil))
	w := &discard{header: http.Header{}}
	serve := func(r *http.Request) {
		clear(w.header)
		s.ServeHTTP(w, r)
	}
	b.Run("put", func(b *testing.B) {
		body := "<QueueMessage><MessageText>" + text + "</MessageText></QueueMessage>"
		r := signed("POST", "/bench/messages?messagettl=-1", body)
		b.ReportAllocs()
		for b.Loop() {
			r.Body = io.NopCloser(strings.NewReader(body))
			serve(r)
		}
		q.Clear(context.Background())
	})
	b.Run("get32", func(b *testing.B) {
		fill(b.N * 32)
		r := signed("GET", "/bench/messages?numofmessages=32&visibilitytimeout=604800", "")
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			serve(r)
		}
		b.StopTimer()
		q.Clear(context.Background())
	})
	b.Run("delete", func(b *testing.B) {
		requests := make([]*http.Request, b.N)
		for i := range requests {
			m, err := q.Enqueue(context.Background(), text, nil)
			if err != nil {
				b.Fatal(err)
			}
			requests[i] = signed("DELETE", "/bench/messages/"+string(m.ID)+"?popreceipt="+url.QueryEscape(string(m.Receipt)), "")
		}
		b.ReportAllocs()
		b.ResetTimer()
		for _, r := range requests {
			serve(r)
		}
		b.StopTimer()
		if n := s.Counts().Statuses[4]; n > 0 {
			b.Fatal(n, "refused")
		}
	})
}

// BenchmarkSocket measures a get of 32 messages and a delete of each over one keep-alive
// connection, with a minimal client. One operation is 33 requests.
func BenchmarkSocket(b *testing.B) {
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "bench"})
	if err := q.Create(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	e, err := must(New(engine, nil)).Start("")
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	conn, err := net.Dial("tcp", e.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	host := e.Addr().String()
	do := func(r *http.Request) []byte {
		r.Host = host
		if err := r.Write(conn); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(in, r)
		if err != nil {
			b.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode >= 300 {
			b.Fatal(response.Status, err)
		}
		return body
	}
	text := strings.Repeat("x", 1024)
	get := signed("GET", "/bench/messages?numofmessages=32", "")
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for range 32 {
			if _, err := q.Enqueue(context.Background(), text, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		body := string(do(get))
		for range 32 {
			_, rest, _ := strings.Cut(body, "<MessageId>")
			id, rest, _ := strings.Cut(rest, "<")
			_, rest, _ = strings.Cut(rest, "<PopReceipt>")
			receipt, rest, _ := strings.Cut(rest, "<")
			body = rest
			do(signed("DELETE", "/bench/messages/"+id+"?popreceipt="+url.QueryEscape(receipt), ""))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/32, "µs/message")
}
