package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/wakeup"
)

const day1, day2, day3 = "2026-11-01", "2026-11-02", "2026-11-03"

// M-05, M-07: what the books say is what a loop over the records computes.
func TestTotalsAreThoseOfAStraightComputation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var bus wakeup.Bus
		var mu sync.Mutex
		charged, reported := 0, map[string]books.Batch{}
		p := w.start(Options{
			Roles: All, Group: 7, Source: &bus, Publisher: &bus,
			Charged: func(c Charged) {
				mu.Lock()
				defer mu.Unlock()
				charged += c.Records
			},
			Reported: func(b books.Batch) {
				mu.Lock()
				defer mu.Unlock()
				reported[b.Name] = b
			},
		}, nil)
		for i, day := range []string{day1, day2, day3} {
			w.ship(p.System, day, generate(uint64(i), 300), 50)
		}
		w.settle()
		p.end()
		w.check()
		if charged != 900 || len(reported) != 3 {
			t.Errorf("got %d records charged and %d batches reported, want 900 and 3", charged, len(reported))
		}
		for day, b := range reported {
			if latency := b.Reported.Sub(b.HandedOver); latency < 0 || latency > 30*time.Second || b.Items != 6*8 {
				t.Errorf("batch %s: got a latency of %v and %d items, want less than 30s and 48", day, latency, b.Items)
			}
		}
		if n := strings.Count(p.log.String(), "a batch is reported"); n != 3 {
			t.Errorf("the log says %d times that a batch is reported, want 3", n)
		}
	})
}

// M-03, M-04: roles of other processes, any number of them, take part. Each of two workers goes on only when the other has charged an
// item too, and there are more items than one of them takes at once.
func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		took := []chan struct{}{make(chan struct{}), make(chan struct{})}
		worker := func(i int) Options {
			var once sync.Once
			return Options{Roles: Worker, Charged: func(Charged) {
				once.Do(func() { close(took[i]) })
				<-took[1-i]
			}}
		}
		processes := []*process{
			w.start(Options{Roles: Initiator, Group: 1}, nil),
			w.start(worker(0), nil),
			w.start(worker(1), nil),
			w.start(Options{Roles: Controller}, nil),
		}
		w.ship(w.submitter(), day1, generate(1, 800), 60)
		<-took[0]
		<-took[1]
		w.settle()
		for _, p := range processes {
			p.end()
		}
		w.check()
	})
}

// slow is a process whose operations take a while, so that another one has a share of the messages.
func slow() *power {
	p := newPower(-1)
	p.pace = 20 * time.Millisecond
	return p
}

// M-03, M-06: a process that is killed between any two of its steps leaves totals that are right, and no batch twice in the books.
func TestAKillBetweenAnyTwoStepsLosesNothing(t *testing.T) {
	steps := 0
	for done := false; !done; steps++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.ship(w.submitter(), day1, generate(1, 60), 4) // more pieces than a portion
				dying := newPower(steps)
				dying.after = after
				p := w.start(Options{Roles: All, Group: 3}, dying)
				select {
				case <-dying.failed:
				case <-time.After(10 * time.Minute):
					done = true
				}
				p.kill()
				next := w.start(Options{Roles: All, Group: 2}, nil) // the plan stays that of the first
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
	if steps < 100 {
		t.Errorf("a process had %d steps, want more", steps)
	}
}

// M-06: whatever fails, comes twice or late, totals are right and every batch is in the books once.
func TestFaultsOfQueuesStoreAndBooks(t *testing.T) {
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
				w.ship(w.submitter(), day1, generate(seed, 120), 20)
				w.ship(w.submitter(), day2, generate(seed+100, 120), 20)
				var all []*process
				for _, roles := range []Roles{All, Initiator | Worker, Controller} { // two controllers, by mistake
					all = append(all, w.startOn(queues, Options{Roles: roles, Group: 4}, faulty()))
				}
				w.settle()
				for _, p := range all {
					p.end()
				}
				queues.wait()
				last := w.start(Options{Roles: All}, nil) // late requests may have made messages
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
	faulty := faultqueue.New(q, &a.options)
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

// M-05: two controllers that run by mistake record a batch once.
func TestTwoControllersRecordABatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		worker := w.start(Options{Roles: Initiator | Worker, Group: 10}, nil)
		first, second := w.start(Options{Roles: Controller}, slow()), w.start(Options{Roles: Controller}, slow())
		for i := range 20 {
			w.ship(w.submitter(), fmt.Sprintf("2026-11-%02d", i+1), generate(uint64(i), 200), 50)
		}
		w.settle()
		for _, p := range []*process{worker, first, second} {
			p.end()
		}
		w.check()
		for i, p := range []*process{first, second} {
			if p.Counts().Total().Messages == 0 {
				t.Errorf("controller %d got no message, so nothing was shown", i)
			}
		}
	})
}

// M-06: items that come again, together with the first ones and after the batch is reported, change nothing and leave nothing.
func TestItemsThatComeAgainChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		initiator := w.start(Options{Roles: Initiator, Group: 10}, nil)
		w.ship(w.submitter(), day1, generate(1, 100), 50)
		time.Sleep(10 * time.Second)
		initiator.end()
		work := w.queue(WorkQueue)
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
		one, two := w.start(Options{Roles: Worker}, nil), w.start(Options{Roles: Worker | Controller}, nil)
		w.settle()
		w.check()
		again()
		w.settle()
		one.end()
		two.end()
		w.check()
	})
}

// A batch that is sent again is answered with its state, and is not billed twice.
func TestABatchSentAgainIsNotBilledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(Options{Roles: All, Group: 10}, nil)
		all := generate(1, 100)
		w.ship(p.System, day1, all, 50)
		if reported, err := p.Reported(t.Context(), day1); err != nil || reported {
			t.Errorf("reported: got %v and error %v, want false", reported, err)
		}
		w.settle()
		if reported, err := p.Reported(t.Context(), day1); err != nil || !reported {
			t.Errorf("reported: got %v and error %v, want true", reported, err)
		}
		w.ship(p.System, day1, all, 50) // the whole batch, pieces and all
		for range 3 {                   // and the message alone
			if err := p.Submit(t.Context(), day1); err != nil {
				t.Fatal(err)
			}
		}
		server := shipping.NewServer(w.store, func(context.Context, shipping.Manifest) error { return nil }, &shipping.ServerOptions{Reported: p.Reported})
		if status := w.call(server, http.MethodGet, "/batches/"+day1, nil); !strings.Contains(status, `"reported"`) {
			t.Errorf("status: got %s, want that the batch is reported", status)
		}
		w.settle()
		p.end()
		w.check()
		if w.books.refused > 0 {
			t.Errorf("the batch was recorded %d more times", w.books.refused)
		}
		if n := strings.Count(p.log.String(), "was sent again"); n != 3 {
			t.Errorf("the log says %d times that a batch was sent again, want 3", n)
		}
	})
}

// Records with a tariff that does not exist are rejected with file, line and reason; the largest amounts are billed exactly.
func TestUnknownTariffsAreRejectedAndTheRestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var named []string
		p := w.start(Options{Roles: All, Group: 10, Rejected: func(batch string, uncharged []records.Rejection) {
			for _, r := range uncharged { // called from one goroutine at a time
				named = append(named, batch+" "+r.Error())
			}
		}}, nil)
		all := generate(1, 100)
		all[7].Tariff, all[42].Tariff = "nonsense", "none, \"really\""
		for r, err := range records.ReadPiece(strings.NewReader(
			"9000,big-1,2026-11-01T00:00:00Z,whale,"+all[0].Tariff+",1000000000000\n"+
				"9001,big-2,2026-11-01T00:00:00Z,whale,"+all[0].Tariff+",999999999999.999999999\n"), "big") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		w.ship(p.System, day1, all, 50)
		w.settle()
		p.end()
		w.check()
		got := w.books.bill(day1)
		if len(got.rejected) != 3 || got.rejected[1].Line != all[7].Line || got.rejected[1].File != "usage.csv" || !strings.Contains(got.rejected[1].Reason, "nonsense") {
			t.Errorf("rejections: got %v, want line 9999 of the manifest, and two with unknown tariffs", got.rejected)
		}
		if len(named) != 2 || !strings.HasPrefix(named[0], fmt.Sprintf("%s usage.csv:%d: ", day1, all[7].Line)) {
			t.Errorf("named by the controller: got %q, want the two with unknown tariffs", named)
		}
		if !strings.Contains(got.totals, "whale") {
			t.Error("the largest quantities are not billed")
		}
	})
}

// A poison message stops its batch alone, loudly, and the batch is reported when the message is sent back.
func TestABatchWithAPoisonMessageIsReportedWhenThatIsSentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ship(w.submitter(), day1, generate(1, 100), 50)
		damaged := blob.Ref{Container: shipping.Container, Name: day1 + "/pieces/piece-00001.csv"}
		r, err := w.store.Open(t.Context(), damaged)
		if err != nil {
			t.Fatal(err)
		}
		good, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		w.put(damaged, bytes.Replace(good, []byte("Z,"), []byte("z,"), 1))
		p := w.start(Options{Roles: All, Group: 10}, nil)
		w.ship(p.System, day2, generate(2, 100), 50)
		synctest.Wait() // the queue is created
		if _, err := w.queue(WorkQueue).Enqueue(t.Context(), "no item at all", nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if w.books.bill(day1) != nil || w.books.bill(day2) == nil {
			t.Fatalf("got batches %v in the books, want %s alone", w.books.bills, day2)
		}
		log := p.log.String()
		for _, want := range []string{"batch=" + day1, "piece 1 of batch " + day1 + " is damaged", "millrace poison redrive " + BatchesQueue, "test/" + WorkQueue} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}

		w.put(damaged, good)
		report, err := poison.Redrive(t.Context(), w.queue(BatchesQueue+poison.Suffix), &poison.RedriveOptions{Account: w.account})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("redrive: got %+v and error %v, want 1 message", report, err)
		}
		w.settle()
		p.end()
		if err := w.queue(WorkQueue + poison.Suffix).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.check()
	})
}

func (w *world) put(ref blob.Ref, content []byte) {
	w.Helper()
	if err := w.store.Put(w.Context(), ref, bytes.NewReader(content), nil); err != nil {
		w.Fatal(err)
	}
}

// Books that are away for hours, such as on a full disk, delay a batch and nothing else.
func TestBooksThatAreAwayDelayABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.books.fail(errors.New("no space left on device"))
		p := w.start(Options{Roles: All, Group: 10}, nil)
		w.ship(p.System, day1, generate(1, 100), 50)
		time.Sleep(5 * time.Hour)
		if !strings.Contains(p.log.String(), "no space left on device") {
			t.Error("the log does not say why the batch is not reported")
		}
		w.books.fail(nil)
		w.settle()
		p.end()
		w.check()
	})
}

// What a batch costs is fixed when it is first split: tariffs that change later do not count for it.
func TestTariffsOfABatchDoNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ship(w.submitter(), day1, generate(1, 100), 5)
		dying := newPower(20)
		first := w.start(Options{Roles: Initiator, Group: 10}, dying)
		<-dying.failed
		first.kill()
		tariffs, _, err := records.ReadTariffs(strings.NewReader("tariff,unit,currency,price\nother,kWh,EUR,1\n"), "tariffs.csv")
		if err != nil {
			t.Fatal(err)
		}
		next := w.start(Options{Roles: All, Group: 50, Tariffs: tariffs}, nil)
		w.settle()
		next.end()
		w.check()
	})
}

// An item that compression cannot make small enough goes through the claims.
func TestItemsThatAreTooLargeForAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := generate(1, 5000)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range all {
			all[i].ID = fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
		}
		bus := new(wakeup.Bus) // two weeks of polls would take long
		p := w.start(Options{Roles: All, Group: shipping.MaxPieceRecords, Source: bus, Publisher: bus}, nil)
		w.ship(p.System, day1, all, 3500)
		w.settle()
		if n := w.claims(); n != 2 {
			t.Errorf("claims: got %d, want 2", n)
		}
		// What is left of them is deleted with a later batch.
		time.Sleep(15 * 24 * time.Hour)
		w.ship(p.System, day2, generate(2, 10), 10)
		w.settle()
		p.end()
		w.check()
		if n := w.claims(); n != 0 {
			t.Errorf("claims after two weeks: got %d, want none", n)
		}
	})
}

// claims returns how many items are in the store, or were lately.
func (w *world) claims() (n int) {
	for _, err := range w.store.List(context.Background(), "billing-claims", "") {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}

// A store that retries by itself may say that an end exists which it has just stored.
func TestALostAnswerOfTheEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store = &repeatingStore{w.store}
		reported := 0
		p := w.start(Options{Roles: All, Group: 10, Reported: func(books.Batch) { reported++ }}, nil)
		w.ship(p.System, day1, generate(1, 50), 50)
		w.settle()
		p.end()
		w.check()
		if reported != 1 {
			t.Errorf("Reported was called %d times, want 1", reported)
		}
	})
}

// repeatingStore sends every Create of an end twice.
type repeatingStore struct{ blob.Store }

func (s *repeatingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	err := s.Store.Create(ctx, ref, r, o)
	if strings.HasSuffix(ref.Name, "/end") && err == nil {
		return blob.ErrExists
	}
	return err
}

// Of two processes that have the same message, one may report the batch and delete its blobs under the hands of the other, which
// then leaves nothing behind and reports no failure.
func TestABatchThatIsReportedMeanwhileIsNoFailure(t *testing.T) {
	for _, at := range []string{"billing-plans/" + day1 + ".json", partsContainer + "/" + day1 + "/000000"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.ship(w.submitter(), day1, generate(1, 50), 25)
			slower := &overtakenStore{Store: w.store, at: at, t: t}
			w.store = slower
			p := w.start(Options{Roles: All, Group: 10}, nil)
			w.settle()
			p.end()
			w.store = slower.Store
			w.checkLeft()
			if log := p.log.String(); !slower.done || strings.Contains(log, "WARN") || strings.Contains(log, "ERROR") {
				t.Errorf("overtaken: %v; the log has failures:\n%s", slower.done, log)
			}
		})
	}
}

// overtakenStore is the store of a process that another one overtakes when it comes to a blob.
type overtakenStore struct {
	blob.Store
	at   string
	t    *testing.T
	done bool
}

func (s *overtakenStore) overtake(ref blob.Ref) {
	if ref.Container+"/"+ref.Name != s.at || s.done {
		return
	}
	s.done = true
	b, err := newBatches(s.Store)
	if err == nil {
		_, err = b.parts.Once(s.t.Context(), day1, func(context.Context) ([]byte, error) { return []byte(`{"pieces":2}`), nil })
	}
	if err == nil {
		err = b.clean(s.t.Context(), day1, end{Pieces: 2})
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *overtakenStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if ref.Container != partsContainer {
		s.overtake(ref)
	}
	return s.Store.Create(ctx, ref, r, o)
}

func (s *overtakenStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.overtake(ref)
	return s.Store.Open(ctx, ref)
}

func TestInvalidMessagesArePoison(t *testing.T) {
	for _, bad := range []interface{ check() error }{
		&Batch{Name: "../etc"}, &Batch{Name: day1, Done: -1},
		&WorkItem{Batch: day1, Item: 1, Items: 1}, &WorkItem{Batch: day1, Item: -1, Items: 1}, &WorkItem{Batch: "x", Items: 1},
		&WorkItem{Batch: day1, Items: 1 << 40}, &Result{Batch: day1}, &Result{Batch: "2026-11-32", Items: 1},
	} {
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	w := newWorld(t)
	for want, o := range map[string]Options{
		"books":   {Roles: Controller},
		"role":    {Roles: 1 << 5},
		"records": {Group: shipping.MaxPieceRecords + 1},
		"hidden":  {Visibility: time.Second},
	} {
		if _, err := New(w.account, w.store, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one that says %q", o, err, want)
		}
	}
	if got := (Initiator | Controller).String(); got != "initiator, controller" {
		t.Errorf("got %q", got)
	}
}

func TestItemsOfAPieceAreItsLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines, group := rapid.IntRange(1, 50).Draw(t, "lines"), rapid.IntRange(1, 20).Draw(t, "group")
		piece := ""
		for range lines {
			piece += rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "line") + "\n"
		}
		var all string
		n := 0
		for item := range cut(piece, group) {
			if got := strings.Count(item, "\n"); got != group && (n != items(lines, group)-1 || got > group) {
				t.Errorf("item %d of %d has %d lines, want %d", n, items(lines, group), got, group)
			}
			all += item
			n++
		}
		if all != piece || n != items(lines, group) {
			t.Errorf("got %d items with %q, want %d with %q", n, all, items(lines, group), piece)
		}
	})
}
