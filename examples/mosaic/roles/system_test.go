package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/listener"
)

// PM-03, PM-04, PM-18: a request of n slices takes 2n+2 messages.
func TestARequestTakesTwoMessagesPerSliceAndTwoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(slowly(1))
		w.start(p)
		c := w.submit(p)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		p.end()
		w.check(c)
		w.onlyEnds(c.ID)
		if got := p.store.made.Load(); got != 1 {
			t.Errorf("mosaics composed: got %d, want 1", got)
		}
		if got := p.sent.Load(); got != 2*testSlices+2 || c.Sent() != int(got) {
			t.Errorf("messages sent: got %d, and %d counted by the order; want %d", got, c.Sent(), 2*testSlices+2)
		}
		if n := w.poisoned(); n != 0 {
			t.Errorf("poison messages: got %d, want 0", n)
		}
		if log := p.log.String(); log != "" {
			t.Errorf("log: got %s, want it empty", log)
		}
	})
}

// slowly injects no faults, but delays every operation, so that steps overlap.
func slowly(seed uint64) *faults {
	return &faults{seed: seed, slow: 400 * time.Millisecond, times: map[string]int{}}
}

func TestTwoProcessesShareRequestsWithoutExtraMessages(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { twoProcesses(t, seed) })
	}
}

func twoProcesses(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		one, two := w.open(slowly(2*seed)), w.open(slowly(2*seed+1))
		w.start(one)
		w.start(two)
		a, b := w.submit(one), w.submit(two)
		for _, c := range []*client{a, b} {
			if err := c.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		one.end()
		two.end()
		w.check(a)
		w.check(b)
		w.onlyEnds(a.ID, b.ID)
		if got, want := one.sent.Load()+two.sent.Load(), int64(2*(2*testSlices+2)); got != want {
			t.Errorf("messages sent: got %d, want %d", got, want)
		}
	})
}

// In TestAnotherProcessTakesTheResponse the ordering process runs no role, so that it learns only from
// the store.
func TestAnotherProcessTakesTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		asking, working := w.open(nil), w.open(nil)
		w.start(working)
		c := w.submit(asking)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		working.end()
		w.check(c)
		w.onlyEnds(c.ID)
	})
}

// PM-17, PM-18: with any faults, each request ends with one mosaic.
//
// TestRequestsSucceedWithAnyFaults runs two processes while messages are delivered twice, leases expire
// under running handlers, responses are lost, and requests and blob operations fail before or after
// their effect.
func TestRequestsSucceedWithAnyFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1_000_000)
				f := &faults{seed: seed, rate: 20 + int(seed%4)*20, slow: time.Duration(seed%3) * time.Second, times: map[string]int{}}
				one, two := w.open(f), w.open(f)
				w.start(one)
				w.start(two)
				clients := []*client{w.submit(one), w.submit(two), w.submit(one)}
				var ids []uuid.UUID
				for _, c := range clients {
					if err := c.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					ids = append(ids, c.ID)
				}
				// A request whose submission failed after its effect exists too, but nobody
				// waits for it.
				w.settle()
				one.end()
				two.end()
				for _, c := range clients {
					w.check(c)
				}
				w.onlyEndsOf(ids, one.log.String()+two.log.String())
				if n := w.poisoned(); n != 0 {
					t.Errorf("poison messages: got %d, want 0", n)
				}
				if f.happened() == 0 {
					t.Error("faults injected: got none, want some")
				}
			})
		})
	}
}

// onlyEndsOf is onlyEnds if mosaics may have been kept: those of requests that nobody waits for, and
// those whose delivery could not be recorded before another process received the response again. A mosaic of which a
// process said that it could not be deleted may have left anything.
func (w *world) onlyEndsOf(ids []uuid.UUID, log string) {
	w.t.Helper()
	for _, name := range w.blobs() {
		container, rest, _ := strings.Cut(name, "/")
		id, err := uuid.Parse(rest[:min(len(rest), 36)])
		if err != nil {
			w.t.Fatal(err)
		}
		e, err := jobsIn(w.store).ended(context.Background(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case container == sliceResponses && strings.HasSuffix(rest, "/end"):
		case strings.Contains(log, `not deleted from the store" request=`+id.String()):
		case e != nil && e.Output != "" && w.keptWith(container, rest):
		case container == imageInput && e == nil && !slices.Contains(ids, id): // its request was never sent
		default:
			w.t.Errorf("store: got %s, whose request ended as %+v; want it deleted", name, e)
		}
	}
}

// keptWith reports whether a blob belongs to a mosaic that is kept for its client.
func (w *world) keptWith(container, name string) bool {
	return container == imageOutput || container == jobState && (strings.HasSuffix(name, "/"+factPlan) || strings.HasSuffix(name, "/"+factLayout))
}

// TestKilledAnywhereAndRunAgain kills a process after each possible number of operations, and starts
// another.
func TestKilledAnywhereAndRunAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many kills")
	}
	for after := 0; ; after += 3 {
		finished := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 0)
			victim := w.open(nil)
			victim.sent.Store(0)
			budget := &countdown{left: after, power: &victim.power}
			victim.store.next = budget.around(w.store)
			w.start(victim)
			old := w.submitOrDie(victim)
			if old != nil {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				finished = old.Wait(ctx) == nil
				cancel()
			}
			victim.kill()

			heir := w.open(nil)
			w.start(heir)
			c := w.submit(heir)
			begin := time.Now()
			if err := c.Wait(t.Context()); err != nil {
				t.Fatalf("after %d operations: got the error %v, want none", after, err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("after %d operations: time of the new request: got %v, want at most %v", after, took, 10*time.Second)
			}
			w.settle()
			heir.end()
			w.check(c)
			for _, name := range w.blobs() {
				container, rest, _ := strings.Cut(name, "/")
				switch {
				case container == sliceResponses && strings.HasSuffix(rest, "/end"), w.keptWith(container, rest):
				case container == imageInput && (old == nil || strings.HasPrefix(rest, old.ID.String())):
				default:
					t.Errorf("after %d operations: store: got %s, want it deleted", after, name)
				}
			}
			if old != nil && !finished {
				if log := heir.log.String(); strings.Count(log, old.ID.String()) == 0 && w.poisoned() == 0 && !w.endedQuietly(old.ID) {
					t.Errorf("after %d operations: old request: got no end and no record in the log, want one; log: %s", after, log)
				}
			}
		})
		if finished || t.Failed() {
			return
		}
	}
}

// endedQuietly reports whether the request has an end.
func (w *world) endedQuietly(id uuid.UUID) bool {
	e, err := jobsIn(w.store).ended(context.Background(), id)
	return err == nil && e != nil
}

// submitOrDie is submit on a process that may die before it sends the request.
func (w *world) submitOrDie(p *process) *client {
	var b bytes.Buffer
	img := testPicture()
	if err := picture.Encode(&b, img); err != nil {
		w.t.Fatal(err)
	}
	o, err := p.Broker.Submit(w.t.Context(), Request{ClientID: "tester", Picture: &b, Library: testLibrary(w.t), Slices: testSlices})
	if err != nil {
		return nil
	}
	return &client{Order: o}
}

func TestAPictureThatCannotBeDecodedFailsAtOnce(t *testing.T) {
	for content, want := range map[string]error{"no picture": picture.ErrNotPicture, "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic": picture.ErrUnsupported} {
		t.Run(want.Error(), func(t *testing.T) { testUndecodable(t, content, want) })
	}
}

func testUndecodable(t *testing.T, content string, want error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		o, err := p.Broker.Submit(t.Context(), Request{
			ClientID: "tester", Picture: strings.NewReader(content), Library: testLibrary(t), Slices: testSlices,
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		c := &client{Order: o}
		if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), want.Error()) {
			t.Errorf("end of the order: got %v, want %v", err, want)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("time until the order failed: got %v, want at most %v", took, 2*time.Second)
		}
		if err := o.Cancel(t.Context(), "it cannot be decoded"); err != nil {
			t.Error(err)
		}
		w.settle()
		p.end()
		w.onlyEnds(o.ID)
		if n := w.poisoned(); n != 1 {
			t.Errorf("poison messages: got %d, want 1", n)
		}
	})
}

// TestWorkersThatDieFailTheRequest has a message that every worker died of. No handler runs for it any
// more, but its request must fail, because its client waits.
func TestWorkersThatDieFailTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		asking := w.open(nil)
		c := w.submit(asking)
		q := w.queue(imageRequests)
		for starts := range 3 { // three workers start it and die, the first before recording the start
			batch, err := q.Dequeue(t.Context(), 1, time.Second)
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			head, body, _, err := envelope.Open(batch[0].Text, codec.Auto)
			if err != nil {
				t.Fatal(err)
			}
			head.Starts = starts
			text, err := envelope.Seal(head, body, codec.Envelope)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Update(t.Context(), batch[0].Lease, text, time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		w.start(asking)
		if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "worker died") {
			t.Errorf("end of the order: got %v, want an error with \"worker died\"", err)
		}
		asking.end()
	})
}

func TestADeliveryThatFailsKeepsTheMosaic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		c := w.submit(p)
		full := errors.New("disk full")
		if err := c.Order.Wait(t.Context(), func(Progress) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.Deliver(t.Context(), func(io.Reader) error { return full }); !errors.Is(err, full) {
			t.Errorf("delivery: got %v, want its cause", err)
		}
		w.settle()
		if err := c.Wait(t.Context()); err != nil { // there is room again
			t.Fatal(err)
		}
		p.end()
		w.check(c)
		w.onlyEnds(c.ID)
	})
}

// TestMessagesWithoutBlobsArePoison: if the blobs are deleted, no message is retried for ever.
func TestMessagesWithoutBlobsArePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		id := uuid.New()
		library := libraryRef("none")
		for _, err := range []error{
			p.Broker.queues.imageRequests.Submit(t.Context(), ImageRequest{Head: p.Broker.queues.imageRequests.Head("x", id), ImageURI: inputRef(id), ImageLibraryURI: library, TileSize: 4, Slices: 1, Scale: 1}),
			p.Broker.queues.sliceRequests.Submit(t.Context(), SliceRequest{Head: p.Broker.queues.sliceRequests.Head("x", uuid.New()), ImageLibraryURI: library, SliceURI: cutRef(id, 0), Slices: 1, TileSize: 4}),
		} {
			if err == nil {
				continue
			}
			if !strings.Contains(err.Error(), "sliceUri") { // refused before it is sent
				t.Fatal(err)
			}
		}
		for i, id := range []uuid.UUID{uuid.New(), uuid.New(), uuid.New()} {
			var err error
			switch qs := p.Broker.queues; i {
			case 0:
				err = qs.sliceRequests.Submit(t.Context(), SliceRequest{Head: qs.sliceRequests.Head("x", id), ImageLibraryURI: library, SliceURI: cutRef(id, 0), Slices: 1, TileSize: 4})
			case 1:
				err = qs.sliceResponses.Submit(t.Context(), SliceResponse{Head: qs.sliceResponses.Head("x", id), SliceURI: laidRef(id, 0), Slices: 1})
			case 2:
				err = qs.imageResponses.Submit(t.Context(), ImageResponse{Head: qs.imageResponses.Head("x", id), ImageURI: outputRef(id)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start(p)
		w.settle()
		p.end()
		if n := w.poisoned(); n != 4 {
			t.Errorf("poison messages: got %d, want 4", n)
		}
		if n := p.retried(); n != 4*(poisonrecord.DefaultMaxAttempts-1) {
			t.Errorf("deliveries to be retried: got %d, want all but the last of each message: %d", n, 4*(poisonrecord.DefaultMaxAttempts-1))
		}
	})
}

// TestABlobThatComesLateIsNotTheEnd: a missing blob may be on its way, as when blobs are copied to another place.
func TestABlobThatComesLateIsNotTheEnd(t *testing.T) {
	for _, container := range []string{imageInput, imageLibrary, sliceRequests, sliceResponses} {
		t.Run(container, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				all := w.store
				hidden := &lateBlobs{Store: all, container: container, from: time.Now().Add(5 * time.Second)}
				w.store = hidden
				p := w.open(nil)
				w.start(p)
				w.store = all // what the test sees
				c := w.submit(p)
				if err := c.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.settle()
				p.end()
				w.check(c)
				w.onlyEnds(c.ID)
				if n := hidden.missed.Load(); n == 0 {
					t.Error("reads of a missing blob: got none, want some")
				}
			})
		})
	}
}

// lateBlobs is a store whose blobs in one container can be opened only from a time on.
type lateBlobs struct {
	blob.Store
	container string
	from      time.Time
	missed    atomic.Int64
}

func (s *lateBlobs) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if ref.Container == s.container && time.Now().Before(s.from) {
		s.missed.Add(1)
		return nil, fmt.Errorf("open %v: %w", ref, blob.ErrMissing)
	}
	return s.Store.Open(ctx, ref)
}

// naiveCollector is a job controller that counts messages. The check below must detect it.
type naiveCollector struct{ left int }

func (n *naiveCollector) collect() (finished bool) {
	n.left--
	return n.left == 0
}

// PM-18: distinct slices are counted.
func TestDuplicatesDoNotFinishAJobEarly(t *testing.T) {
	// early sends the response of one slice as many times as there are slices, and reports whether
	// the job then counts as finished.
	early := func(collect func() bool) bool {
		finished := false
		for range testSlices {
			finished = collect() || finished
		}
		return finished
	}
	if naive := (&naiveCollector{left: testSlices}); !early(naive.collect) {
		t.Error("check of a controller that counts messages: got a pass, want a failure")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		id := uuid.New()
		j := jobsIn(w.store)
		if err := j.writeFact(t.Context(), id, factPlan, picture.Plan{Tile: testTile, Cols: testCols, Rows: testRows, Slices: testSlices}); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Put(t.Context(), laidRef(id, 1), strings.NewReader("a slice"), nil); err != nil {
			t.Fatal(err)
		}
		finished := early(func() bool {
			err := p.Broker.queues.sliceResponses.Submit(t.Context(), SliceResponse{
				Head: p.Broker.queues.sliceResponses.Head("x", id), SliceURI: laidRef(id, 1), SliceSequence: 1, Slices: testSlices,
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			there, err := blob.Exists(t.Context(), w.store, outputRef(id))
			return there || err != nil || w.poisoned() > 0
		})
		p.end()
		if finished {
			t.Error("job after repeated responses of one slice: got it finished, want it unfinished")
		}
	})
}

func (p *process) retried() (n int64) {
	for _, l := range p.listeners {
		n += l.State().Outcomes[listener.Retried]
	}
	return n
}
