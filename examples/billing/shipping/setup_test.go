package shipping

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/records"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(consolidateForever); folder != "" {
		consolidateUntilKilled(folder)
	}
	goleak.VerifyTestMain(m)
}

const today = "2026-11-21"

// record returns record n of a day.
func record(day string, n int) records.Record {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		panic(err)
	}
	return records.Record{
		Line: n + 2, ID: fmt.Sprintf("u-%06d", n), Time: at.Add(time.Duration(n) * time.Millisecond), Account: fmt.Sprintf("a-%d", n%7),
		Tariff: "power", Quantity: decimal.New(int64(n), -2),
	}
}

// daily returns n records of a day, from the first one on.
func daily(day string, first, n int) iter.Seq[records.Record] {
	return func(yield func(records.Record) bool) {
		for i := first; i < first+n; i++ {
			if !yield(record(day, i)) {
				return
			}
		}
	}
}

// spoolOf consolidates sources in a new folder.
func spoolOf(t *testing.T, sources ...Source) *Spool {
	t.Helper()
	s, err := Consolidate(t.Context(), t.TempDir(), slices.Values(sources), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// batchOf makes a batch of today with a piece for each number of records.
func batchOf(t *testing.T, pieces ...int) *Batch {
	t.Helper()
	var sources []Source
	for i, n := range pieces { // pieces do not span files
		sources = append(sources, Records(fmt.Sprintf("f%d.csv", i), daily(today, 1000*i, n)))
	}
	for b, err := range spoolOf(t, sources...).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Manifest.Pieces) != len(pieces) {
			t.Fatalf("pieces: got %d, want %d", len(b.Manifest.Pieces), len(pieces))
		}
		return b
	}
	t.Fatal("got no batch")
	return nil
}

// initiator is a server that is a new process for each request, and what it did.
type initiator struct {
	store   blob.Store
	options ServerOptions

	mu        sync.Mutex
	completed []Manifest      // guarded by mu
	reported  map[string]bool // guarded by mu
	requests  []string        // guarded by mu
	resent    []string        // pieces that were sent though they were there; guarded by mu
	refuse    error           // of complete; guarded by mu
}

func newInitiator() *initiator {
	i := &initiator{store: blob.Memory(), reported: make(map[string]bool)}
	i.options = ServerOptions{Reported: i.isReported, Logger: slog.New(slog.DiscardHandler)}
	return i
}

func (i *initiator) complete(_ context.Context, m Manifest) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.refuse != nil {
		return i.refuse
	}
	i.completed = append(i.completed, m)
	return nil
}

func (i *initiator) isReported(_ context.Context, batch string) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reported[batch], nil
}

func (i *initiator) report(batch string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reported[batch] = true
}

func (i *initiator) server() *Server { return NewServer(i.store, i.complete, &i.options) }

func (i *initiator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	there := false
	if batch, piece, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/batches/"), "/pieces/"); ok && r.Method == http.MethodPut {
		if n, ok := pieceNumber(piece); ok {
			there, _ = blob.Exists(r.Context(), i.store, pieceRef(batch, n))
		}
	}
	i.mu.Lock()
	i.requests = append(i.requests, r.Method+" "+r.URL.Path)
	if there {
		i.resent = append(i.resent, r.URL.Path)
	}
	i.mu.Unlock()
	i.server().ServeHTTP(w, r)
}

// send is one request to a new server.
func (i *initiator) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	i.server().ServeHTTP(w, r)
	return w
}

func (i *initiator) sendManifest(t *testing.T, m *Manifest) *httptest.ResponseRecorder {
	t.Helper()
	text, digest, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	return i.send(manifestRequest(m.Batch, text, digest))
}

func manifestRequest(batch string, text []byte, digest string) *http.Request {
	r := httptest.NewRequest(http.MethodPut, "/batches/"+batch, bytes.NewReader(text))
	r.Header.Set(digestHeader, contentDigest(digest))
	return r
}

func (i *initiator) sendPiece(t *testing.T, b *Batch, n int) *httptest.ResponseRecorder {
	t.Helper()
	piece, err := b.readPiece(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i.send(pieceRequest(b.Manifest.Batch, n, piece))
}

func pieceRequest(batch string, n int, piece []byte) *http.Request {
	return httptest.NewRequest(http.MethodPut, fmt.Sprintf("/batches/%s/pieces/%d", batch, n), bytes.NewReader(piece))
}

// checkArrived fails unless the whole batch was stored, it was completed, and nothing that had arrived was sent again.
func (i *initiator) checkArrived(t *testing.T, b *Batch) {
	t.Helper()
	m, _, err := ReadManifest(t.Context(), i.store, b.Manifest.Batch)
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, &m, &b.Manifest)
	for n := range m.Pieces {
		want, err := b.readPiece(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, i.store, m.Batch, n); !bytes.Equal(got, want) {
			t.Fatalf("piece %d: got %q, want %q", n, got, want)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.completed) == 0 {
		t.Fatal("completed: got nothing")
	}
	for _, c := range i.completed {
		checkSame(t, &c, &b.Manifest)
	}
	if len(i.resent) > 0 {
		t.Fatalf("sent though they had arrived: %v", i.resent)
	}
}

func checkSame(t *testing.T, got, want *Manifest) {
	t.Helper()
	a, _, err := got.encode()
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Fatalf("manifest: got %s, want %s", a, b)
	}
}

func readAll(t *testing.T, store blob.Store, batch string, n int) []byte {
	t.Helper()
	r, err := OpenPiece(t.Context(), store, batch, n)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// logLines counts what is logged.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}
