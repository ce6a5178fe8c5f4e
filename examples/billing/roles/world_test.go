package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/billing/totals"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// world has what processes share: the account, the store and the books.
type world struct {
	*testing.T
	account *localqueue.Account
	store   blob.Store
	books   *ledger
	want    map[string]*bill // of the batches that were shipped
}

// bill is what a batch should cost, or what the books say.
type bill struct {
	batch    books.Batch
	totals   string // as JSON
	rejected []records.Rejection
}

func newWorld(t *testing.T) *world {
	return &world{
		T: t, account: localqueue.New(&localqueue.Options{Seed: 1}).Account("test"), store: blob.Memory(),
		books: &ledger{bills: make(map[string]*bill)}, want: make(map[string]*bill),
	}
}

// ledger are books in memory.
type ledger struct {
	mu      sync.Mutex
	bills   map[string]*bill // guarded by mu
	refused int              // batches that were recorded before; guarded by mu
	failure error            // of the next calls; guarded by mu
}

func (l *ledger) Record(_ context.Context, b *books.Batch, sums *totals.Totals, rejected []records.Rejection) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return false, l.failure
	}
	if l.bills[b.Name] != nil {
		l.refused++
		return false, nil
	}
	text, err := json.Marshal(sums)
	l.bills[b.Name] = &bill{*b, string(text), slices.Clone(rejected)}
	return true, err
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bills)
}

func (l *ledger) bill(name string) *bill {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bills[name]
}

// generate returns made-up records of a day.
func generate(seed uint64, n int) []records.Record {
	return slices.Collect(records.Generate(seed, n, 1))
}

// ship hands a batch over as the shipping side does, in pieces of so many records, and returns its server.
func (w *world) ship(s *System, day string, all []records.Record, piece int) {
	w.Helper()
	server := shipping.NewServer(w.store, func(ctx context.Context, m shipping.Manifest) error { return s.Submit(ctx, m.Batch) },
		&shipping.ServerOptions{Reported: s.Reported})
	m := shipping.Manifest{Batch: day, File: "usage.csv"}
	var pieces [][]byte
	for some := range slices.Chunk(all, piece) {
		var text []byte
		for _, r := range some {
			text = records.AppendPiece(text, &r)
		}
		sum := sha256.Sum256(text)
		m.Pieces = append(m.Pieces, shipping.Piece{Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Records: len(some)})
		pieces = append(pieces, text)
	}
	m.Rejected = []records.Rejection{{File: "usage.csv", Line: 9999, Reason: "the quantity is negative"}}
	text, err := json.Marshal(m)
	if err != nil {
		w.Fatal(err)
	}
	w.call(server, http.MethodPut, "/batches/"+day, text)
	for n, piece := range pieces {
		w.call(server, http.MethodPut, fmt.Sprintf("/batches/%s/pieces/%d", day, n), piece)
	}
	w.call(server, http.MethodPost, "/batches/"+day+"/complete", nil)
	w.want[day] = straight(&m, all, records.BuiltInTariffs())
}

// call sends a request to a shipping server until it succeeds, and returns its answer.
func (w *world) call(server http.Handler, method, path string, body []byte) string {
	w.Helper()
	for range 100 {
		r := httptest.NewRequestWithContext(w.Context(), method, path, bytes.NewReader(body))
		sum := sha256.Sum256(body)
		r.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		if answer.Code == http.StatusOK {
			return answer.Body.String()
		}
		if answer.Code != http.StatusServiceUnavailable {
			w.Fatalf("%s %s: got %d %s", method, path, answer.Code, answer.Body)
		}
	}
	w.Fatalf("%s %s never succeeded", method, path)
	return ""
}

// straight computes a bill without roles.
func straight(m *shipping.Manifest, all []records.Record, tariffs *records.Tariffs) *bill {
	b := &bill{rejected: slices.Clone(m.Rejected)}
	var sums totals.Totals
	for _, r := range all {
		currency, amount, err := tariffs.Charge(&r)
		if err != nil {
			b.rejected = append(b.rejected, records.Rejection{File: m.File, Line: r.Line, ID: r.ID, Reason: err.Error()})
			continue
		}
		sums.Add(totals.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}, r.Quantity, amount)
	}
	text, _ := json.Marshal(&sums)
	b.totals = string(text)
	b.batch.Name, b.batch.Records = m.Batch, int64(len(all)+len(m.Rejected))
	return b
}

// process is one program that plays roles.
type process struct {
	*System
	power *power
	stop  context.CancelFunc
	ended chan struct{}
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts a process. What it sees of the world goes through f, if f is not nil.
func (w *world) start(o Options, f *power) *process { return w.startOn(w.account, o, f) }

// startOn is start with another view of the account.
func (w *world) startOn(account queue.Account, o Options, f *power) *process {
	w.Helper()
	if f == nil {
		f = newPower(-1)
	}
	p := &process{power: f, ended: make(chan struct{}), log: &lockedBuffer{}}
	if o.Roles.Has(Controller) {
		o.Books = &poweredBooks{w.books, f}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(p.log, nil))
	}
	var err error
	if p.System, err = New(&poweredAccount{account, f}, &poweredStore{w.store, f}, &o); err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.Context())
	p.stop = stop
	go func() {
		defer close(p.ended)
		if err := runAll(ctx, p.Runners()); err != nil && f.on() == nil {
			w.Errorf("listeners: got the error %v, want none", err)
		}
	}()
	return p
}

// runAll is millrace.Run without signals, which a bubble does not support.
func runAll(ctx context.Context, rs []millrace.Runner) error {
	errs := make([]error, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() { errs[i] = r.Run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// end stops a process gracefully.
func (p *process) end() {
	p.stop()
	<-p.ended
}

// kill ends a process as kill -9 would: nothing that it does has an effect any more.
func (p *process) kill() {
	p.power.cut()
	p.stop()
	for _, r := range p.Runners() {
		r.Halt()
	}
	<-p.ended
}

// submitter returns a System without roles, for the shipping server.
func (w *world) submitter() *System {
	s, err := New(w.account, w.store, nil)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// settle waits until nothing is pending: leases and delays have ended.
func (w *world) settle() {
	w.Helper()
	for range 500 {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if w.depth("") == 0 {
			time.Sleep(2 * time.Minute) // late requests
			synctest.Wait()
			if w.depth("") == 0 {
				return
			}
		}
	}
	w.Errorf("messages in the queues: got %d, want 0", w.depth(""))
}

// depth returns how many messages the queues have, or their siblings.
func (w *world) depth(suffix string) (n int64) {
	w.Helper()
	for _, name := range QueueNames() {
		p, err := w.queue(name + suffix).Properties(context.Background())
		if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			w.Fatal(err)
		}
		n += p.Depth
	}
	return n
}

func (w *world) queue(name string) queue.Manager {
	q, err := w.account.Open(name)
	if err != nil {
		w.Fatal(err)
	}
	return q
}

// check compares the books with straight computations, and looks for what nobody would delete.
func (w *world) check() {
	w.Helper()
	for day, want := range w.want {
		got := w.books.bill(day)
		if got == nil {
			w.Errorf("batch %s is not in the books", day)
			continue
		}
		if got.totals != want.totals {
			w.Errorf("totals of %s: got\n%.1000s\nwant\n%.1000s", day, got.totals, want.totals)
		}
		if !slices.Equal(got.rejected, want.rejected) {
			w.Errorf("rejections of %s: got %v, want %v", day, got.rejected, want.rejected)
		}
		if got.batch.Records != want.batch.Records || got.batch.Rejected != int64(len(want.rejected)) {
			w.Errorf("records of %s: got %d with %d rejected, want %d with %d", day, got.batch.Records, got.batch.Rejected, want.batch.Records, len(want.rejected))
		}
	}
	if n := w.depth("-poison"); n > 0 {
		w.Errorf("poison messages: got %d, want 0", n)
	}
	w.checkLeft()
}

// checkLeft checks that nothing is left of the batches but their manifests and ends.
func (w *world) checkLeft() {
	w.Helper()
	var want []string
	for _, day := range slices.Sorted(maps.Keys(w.want)) {
		want = append(want, shipping.Container+"/"+day+"/manifest.json", partsContainer+"/"+day+"/end")
	}
	slices.Sort(want)
	if got := w.blobs(); !slices.Equal(got, want) {
		w.Errorf("blobs: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// blobs lists what the store has of batches.
func (w *world) blobs() (names []string) {
	for _, container := range []string{shipping.Container, "billing-plans", partsContainer} {
		for b, err := range w.store.List(context.Background(), container, "") {
			if err != nil {
				w.Fatal(err)
			}
			names = append(names, b.Ref.Container+"/"+b.Ref.Name)
		}
	}
	slices.Sort(names)
	return names
}
