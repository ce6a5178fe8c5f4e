package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// world has what machines share: the account, the store and the books.
type world struct {
	*testing.T
	account queue.Account
	store   blob.Store
	books   *memoryBooks
	want    map[string]bill // of the batches that were shipped, by name
}

// bill is the content of the books for a batch.
type bill struct {
	records, rejected int64
	sums              map[books.Key]string
}

func newWorld(t *testing.T) *world {
	return &world{
		T: t, account: must(localqueue.New(&localqueue.Options{Seed: 1})).Account("test"), store: blob.Memory(),
		books: &memoryBooks{bills: make(map[string]bill)}, want: make(map[string]bill),
	}
}

// memoryBooks are books in memory, without duplicates of records.
type memoryBooks struct {
	mu      sync.Mutex
	bills   map[string]bill // guarded by mu
	refused int             // batches that were recorded before; guarded by mu
	failure error           // of the next calls; guarded by mu
}

func (m *memoryBooks) Record(_ context.Context, b *books.Batch, parts iter.Seq2[*books.Part, error]) (bool, error) {
	one := bill{records: b.Records}
	sums := make(map[books.Key]books.Sum)
	var billed int64
	for part, err := range parts {
		if err != nil {
			return false, err
		}
		one.rejected += int64(len(part.Rejected))
		for _, c := range part.Charged {
			billed++
			add(sums, &c.Record, c.Currency, c)
		}
	}
	if billed+one.rejected != b.Records {
		return false, books.ErrInvalid
	}
	one.sums = texts(sums)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure != nil {
		return false, m.failure
	}
	if _, again := m.bills[b.Name]; again {
		m.refused++
		return false, nil
	}
	m.bills[b.Name] = one
	return true, nil
}

func add(sums map[books.Key]books.Sum, r *records.Record, currency string, c books.Charged) {
	key := books.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}
	sums[key] = sums[key].Plus(books.Sum{Records: 1, Quantity: c.Quantity, Amount: c.Amount})
}

func texts(sums map[books.Key]books.Sum) map[books.Key]string {
	all := make(map[books.Key]string)
	for key, sum := range sums {
		all[key] = fmt.Sprint(sum.Records, sum.Quantity, sum.Amount)
	}
	return all
}

func (m *memoryBooks) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
}

func (m *memoryBooks) bill(name string) (bill, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, found := m.bills[name]
	return one, found
}

// generate returns made-up records of a day, with one of an unknown tariff.
func generate(seed uint64, n int) []records.Record {
	all := slices.Collect(records.Generate(seed, n, 1))
	all[n/2].Tariff = "unknown"
	return all
}

// cutOne makes one batch of records, in pieces of so many, with a rejected line.
func (w *world) cutOne(file string, all []records.Record, group int) *batch {
	w.Helper()
	lines := func(yield func(records.Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
		yield(records.Record{}, &records.Rejection{File: file, Line: 9999, Reason: "the quantity is negative", Text: "a,b"})
	}
	for b, err := range cut(source{file, lines}, group) {
		if err != nil {
			w.Fatal(err)
		}
		one := bill{records: b.records(), rejected: 1}
		sums := make(map[books.Key]books.Sum)
		for _, r := range all {
			currency, amount, err := records.BuiltInTariffs().Charge(&r)
			if err != nil {
				one.rejected++
				continue
			}
			add(sums, &r, currency, books.Charged{Record: r, Currency: currency, Amount: amount})
		}
		one.sums = texts(sums)
		w.want[b.Batch] = one
		return b
	}
	return nil
}

// ship hands a batch over.
func (w *world) ship(s *system, file string, all []records.Record, group int) *batch {
	w.Helper()
	b := w.cutOne(file, all, group)
	if _, err := s.ship(w.Context(), b); err != nil {
		w.Fatal(err)
	}
	return b
}

// machine is one program that plays roles.
type machine struct {
	*system
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

// start starts a machine. Everything that it does to the world goes through f, if f is not nil.
func (w *world) start(o options, f *power) *machine { return w.startOn(w.account, o, f) }

// startOn is start with another view of the account.
func (w *world) startOn(account queue.Account, o options, f *power) *machine {
	w.Helper()
	if f == nil {
		f = newPower(-1)
	}
	m := &machine{power: f, ended: make(chan struct{}), log: &lockedBuffer{}}
	if o.roles&controller != 0 {
		o.books = &poweredBooks{w.books, f}
	}
	o.logger = slog.New(slog.NewTextHandler(m.log, nil))
	var err error
	if m.system, err = newSystem(&poweredAccount{account, f}, &poweredStore{w.store, f}, o); err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.Context())
	m.stop = stop
	go func() {
		defer close(m.ended)
		if err := runAll(ctx, m.runners); err != nil && f.on() == nil {
			w.Errorf("listeners: got the error %v, want none", err)
		}
	}()
	return m
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

// end stops a machine gracefully.
func (m *machine) end() {
	m.stop()
	<-m.ended
}

// kill ends a machine as kill -9 would: nothing that it does has an effect any more.
func (m *machine) kill() {
	m.power.cut()
	m.stop()
	for _, r := range m.runners {
		r.Halt()
	}
	<-m.ended
}

// shipper returns a system without roles.
func (w *world) shipper() *system {
	s, err := newSystem(w.account, w.store, options{logger: slog.New(slog.DiscardHandler)})
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
	for _, name := range []string{batchesQueue, workQueue, resultsQueue} {
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

// check compares the books with straight computations, and looks for blobs that nobody would delete.
func (w *world) check() {
	w.Helper()
	for name, want := range w.want {
		got, found := w.books.bill(name)
		if !found || got.records != want.records || got.rejected != want.rejected || !maps.Equal(got.sums, want.sums) {
			w.Errorf("batch %s: got %.500v, want %.500v", name, got, want)
		}
	}
	if n := w.depth("-poison"); n > 0 {
		w.Errorf("poison messages: got %d, want 0", n)
	}
	w.checkLeft()
}

// checkLeft checks that nothing is left of the batches but their ends.
func (w *world) checkLeft() {
	w.Helper()
	var want, got []string
	for name := range w.want {
		want = append(want, partsContainer+"/"+name+"/end")
	}
	slices.Sort(want)
	for _, container := range []string{batchesContainer, partsContainer} {
		for b, err := range w.store.List(context.Background(), container, "") {
			if err != nil {
				w.Fatal(err)
			}
			got = append(got, b.Ref.Container+"/"+b.Ref.Name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Errorf("blobs: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// M-03, M-06: a machine that is killed between any two of its steps leaves totals that are right, and no batch twice in
// the books.
func TestAKillBetweenAnyTwoStepsLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many kills")
	}
	killAnywhere(t, 100, func(w *world, dying *power) {
		w.ship(w.shipper(), "day.csv", generate(1, 60), 3)
		m := w.start(options{roles: allRoles}, dying)
		select {
		case <-dying.failed:
		case <-time.After(10 * time.Minute):
		}
		m.kill()
	}, records.Tariffs{"electricity-de": {ID: "electricity-de", Unit: "kWh", Currency: "EUR"}})
}

// M-01, B-03: billing ship that is killed between any two steps, and then started again, hands the batch over once.
func TestAKilledShipperCompletesItsBatch(t *testing.T) {
	killAnywhere(t, 10, func(w *world, dying *power) {
		b := w.cutOne("day.csv", generate(1, 60), 6)
		for _, p := range []*power{dying, newPower(-1)} {
			m := w.start(options{}, p)
			_, err := m.ship(w.Context(), b)
			if (err == nil) != (p.on() == nil) {
				w.Errorf("shipping: got the error %v", err)
			}
			m.kill()
		}
	}, nil)
}

// killAnywhere plays with a power that fails before and after each step, and lets another machine end the work.
func killAnywhere(t *testing.T, least int, play func(*world, *power), others records.Tariffs) {
	t.Helper()
	steps, stride := 0, 1
	if testing.Short() {
		stride = 7
	}
	for done := false; !done; steps += stride {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				dying := newPower(steps)
				dying.after = after
				play(w, dying)
				dying.mu.Lock()
				done = dying.left >= 0
				dying.mu.Unlock()
				o := options{roles: allRoles}
				if w.fixed() {
					o.tariffs = others // the tariffs stay those of the first
				}
				next := w.start(o, nil)
				w.settle()
				next.end()
				w.check()
				if t.Failed() {
					t.Logf("killed at step %d, after it: %v", steps, after)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	if steps < least {
		t.Errorf("there were %d steps, want at least %d", steps, least)
	}
}

// fixed reports whether the tariffs of a batch are fixed.
func (w *world) fixed() bool {
	for name := range w.want {
		if found, err := blob.Exists(w.Context(), w.store, tariffsRef(name)); err == nil && found {
			return true
		}
	}
	return false
}

// M-06: if calls fail, come twice or late, totals are right and every batch is in the books once.
func TestFaultsOfQueuesStoreAndBooks(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many faults")
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				faulty := func() *power {
					p := newPower(-1)
					p.fault = func() (before, after bool) {
						mu.Lock()
						defer mu.Unlock()
						roll := random.IntN(100)
						return roll < 3, roll >= 3 && roll < 6
					}
					return p
				}
				rates := faultqueue.Rates{Throttled: 0.03, Unavailable: 0.02, LostRequest: 0.02, LostResponse: 0.03, Duplicate: 0.04, Slow: 0.02, Late: 0.02}
				queues := &faultyAccount{Account: w.account, options: faultqueue.Options{Seed: seed, Every: rates}}
				w.ship(w.shipper(), "day1.csv", generate(seed, 120), 4)
				w.ship(w.shipper(), "day2.csv", generate(seed+100, 120), 4)
				var all []*machine
				for _, played := range []roles{allRoles, initiator | worker, controller} { // two controllers, by mistake
					all = append(all, w.startOn(queues, options{roles: played}, faulty()))
				}
				w.settle()
				for _, m := range all {
					m.end()
				}
				queues.wait()
				last := w.start(options{roles: allRoles}, nil) // late requests may have made messages
				w.settle()
				last.end()
				w.check()
			})
		})
	}
}

// faultyAccount has faults in its queues.
type faultyAccount struct {
	queue.Account
	options faultqueue.Options

	mu     sync.Mutex
	queues []*faultqueue.Queue // guarded by mu
}

func (a *faultyAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	faulty := must(faultqueue.New(q, &a.options))
	a.queues = append(a.queues, faulty)
	return faulty, nil
}

// wait waits for late requests.
func (a *faultyAccount) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.queues {
		q.Wait()
	}
}

// M-04, M-05: roles in machines of their own, several workers, and two controllers, by mistake: each batch is recorded once.
func TestTwoControllersRecordEachBatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := func() *power {
			p := newPower(-1)
			p.pace = 20 * time.Millisecond
			return p
		}
		first, second := w.start(options{roles: controller}, slow()), w.start(options{roles: controller}, slow())
		all := []*machine{w.start(options{roles: initiator}, nil), w.start(options{roles: worker}, slow()), w.start(options{roles: worker}, slow()), first, second}
		for i := range 20 {
			w.ship(w.shipper(), fmt.Sprintf("day%d.csv", i), generate(uint64(i), 200), 10)
		}
		w.settle()
		for _, m := range all {
			m.end()
		}
		w.check()
		for i, m := range []*machine{first, second} {
			if m.meter.Counts().Total().Messages == 0 {
				t.Errorf("controller %d got no message, so nothing was shown", i)
			}
		}
	})
}

// M-06: items that come again, together with the first ones and after the batch is in the books, change nothing and
// leave nothing.
func TestItemsThatComeAgainChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		splitting := w.start(options{roles: initiator}, nil)
		w.ship(w.shipper(), "day.csv", generate(1, 99), 10)
		time.Sleep(10 * time.Second)
		splitting.end()
		work := w.queue(workQueue)
		copies, err := work.Peek(t.Context(), 32)
		if err != nil || len(copies) != 10 {
			t.Fatalf("got %d items and error %v, want 10", len(copies), err)
		}
		again := func() {
			for _, m := range copies {
				if _, err := work.Enqueue(t.Context(), m.Text, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		again()
		one, two := w.start(options{roles: worker}, nil), w.start(options{roles: worker | controller}, nil)
		w.settle()
		w.check()
		again()
		w.settle()
		one.end()
		two.end()
		w.check()
	})
}

// A batch that is shipped again is not billed twice, and leaves nothing.
func TestABatchShippedAgainIsNotBilledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.start(options{roles: allRoles}, nil)
		b := w.ship(m.system, "day.csv", generate(1, 100), 10)
		w.ship(m.system, "day.csv", generate(1, 100), 10)
		w.settle()
		if ended, err := m.ship(t.Context(), b); err != nil || !ended {
			t.Errorf("shipped again: got %v and error %v, want that it is in the books", ended, err)
		}
		// A shipper that was overtaken stores pieces and a message once more.
		if err := w.store.Put(t.Context(), pieceRef(b.Batch, 3), strings.NewReader("late"), nil); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := m.batches.Send(t.Context(), batchMessage{b.Batch}, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		m.end()
		w.check()
		if w.books.refused > 0 {
			t.Errorf("the batch was recorded %d more times", w.books.refused)
		}
	})
}

// Of two machines that have the same message, one may record the batch and delete its blobs under the hands of the
// other, which then leaves nothing behind and reports no failure.
func TestABatchThatIsRecordedMeanwhileIsNoFailure(t *testing.T) {
	for _, at := range []func(string) blob.Ref{manifestRef, tariffsRef, func(name string) blob.Ref { return pieceRef(name, 2) }} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			b := w.ship(w.shipper(), "day.csv", generate(1, 50), 10)
			slower := &overtakenStore{Store: w.store, at: at(b.Batch), t: t, overtaker: w.shipper()}
			w.store = slower
			m := w.start(options{roles: allRoles}, nil)
			w.settle()
			m.end()
			w.store = slower.Store
			w.checkLeft()
			if log := m.log.String(); !slower.done || strings.Contains(log, "WARN") || strings.Contains(log, "ERROR") {
				t.Errorf("overtaken at %v: %v; the log has failures:\n%s", slower.at, slower.done, log)
			}
		})
	}
}

// A batch is deleted only if it is certain that it is in the books: not if the store does not answer that question.
func TestAStoreThatDoesNotAnswerDeletesNoBatch(t *testing.T) {
	for failing := 1; failing <= 3; failing++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.ship(w.shipper(), "day.csv", generate(1, 50), 10)
			endless := &endlessStore{Store: w.store, failing: failing}
			w.store = endless
			m := w.start(options{roles: allRoles}, nil)
			w.settle()
			m.end()
			w.check()
			if endless.asked < failing {
				t.Errorf("the end was asked for %d times, so question %d did not fail", endless.asked, failing)
			}
		})
	}
}

// endlessStore does not answer one of the questions for the end of a batch.
type endlessStore struct {
	blob.Store
	failing int

	mu    sync.Mutex
	asked int // guarded by mu
}

func (s *endlessStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if ref.Container == partsContainer && strings.HasSuffix(ref.Name, "/end") {
		s.mu.Lock()
		s.asked++
		fails := s.asked == s.failing
		s.mu.Unlock()
		if fails {
			return nil, errFault
		}
	}
	return s.Store.Open(ctx, ref)
}

// overtakenStore is the store of a machine that another one overtakes before it opens a blob.
type overtakenStore struct {
	blob.Store
	at        blob.Ref
	t         *testing.T
	overtaker *system
	done      bool
}

func (s *overtakenStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if ref == s.at && !s.done {
		s.done = true
		name, _, _ := strings.Cut(ref.Name, "/")
		_, err := s.overtaker.parts.Once(s.t.Context(), name, func(context.Context) ([]byte, error) { return []byte("{}"), nil })
		if err = errors.Join(err, s.overtaker.clean(s.t.Context(), name)); err != nil {
			s.t.Error(err)
		}
	}
	return s.Store.Open(ctx, ref)
}

// Books that are away for hours delay a batch, and nothing else.
func TestBooksThatAreAwayDelayABatch(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the books")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.books.fail(errors.New("the books are away"))
		m := w.start(options{roles: allRoles}, nil)
		w.ship(m.system, "day.csv", generate(1, 100), 10)
		time.Sleep(5 * time.Hour)
		w.books.fail(nil)
		w.settle()
		m.end()
		w.check()
	})
}

// A damaged piece stops its batch alone, loudly. Shipping the file again replaces the piece; then the message is sent back.
func TestABatchWithADamagedPieceIsMendedByShippingItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := generate(1, 100)
		damaged := w.ship(w.shipper(), "day1.csv", all, 10)
		ref := pieceRef(damaged.Batch, 1)
		r, err := w.store.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		good, err := io.ReadAll(r)
		if err = errors.Join(err, w.store.Put(t.Context(), ref, bytes.NewReader(bytes.Replace(good, []byte("Z,"), []byte("z,"), 1)), nil)); err != nil {
			t.Fatal(err)
		}
		m := w.start(options{roles: allRoles}, nil)
		other := w.ship(m.system, "day2.csv", generate(2, 100), 10)
		synctest.Wait() // the queue is created
		if _, err := w.queue(workQueue).Enqueue(t.Context(), "not an item", nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if _, found := w.books.bill(other.Batch); len(w.books.bills) != 1 || !found {
			t.Fatalf("got batches %v in the books, want %s alone", w.books.bills, other.Batch)
		}
		for _, want := range []string{"batch=" + damaged.Batch, "piece 1 of batch " + damaged.Batch + " is damaged", "millrace poison redrive " + workQueue} {
			if log := m.log.String(); !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}
		w.ship(m.system, "day1.csv", all, 10) // sends all items again, the damaged one among them
		w.settle()
		if _, err := poison.Redrive(t.Context(), w.queue(workQueue), nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		m.end()
		if err := w.queue(workQueue + poison.Suffix).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.check()
	})
}

// O-06: a record is not a message: a million records take few requests.
func TestRecordsTakeFewRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("bills thousands of records")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.start(options{roles: allRoles}, nil)
		w.ship(m.system, "day.csv", generate(1, 50_000), 1000)
		before := m.meter.Counts().Total().Billed()
		time.Sleep(20 * time.Second)
		m.end()
		w.check()
		if n := m.meter.Counts().Total().Billed() - before; n > 500 {
			t.Errorf("50,000 records took %d requests to the queues, want at most 500", n)
		}
	})
}

func TestInvalidMessagesArePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.start(options{roles: allRoles}, nil)
		for _, name := range []string{"", "..", "A", "a/b", strings.Repeat("a", 63)} {
			_, err1 := m.batches.Send(t.Context(), batchMessage{name}, nil)
			_, err2 := m.items.Send(t.Context(), item{Batch: name, Items: 1}, nil)
			_, err3 := m.results.Send(t.Context(), result{name, 1}, nil)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
		}
		for _, one := range []item{{Batch: "aa", Items: 0}, {Batch: "aa", Items: 2, Item: 2}, {Batch: "aa", Items: 2, Item: -1}, {Batch: "aa", Items: 2_000_000}} {
			if _, err := m.items.Send(t.Context(), one, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		m.end()
		if n := w.depth("-poison"); n != 19 {
			t.Errorf("poison messages: got %d, want all 19", n)
		}
	})
}
