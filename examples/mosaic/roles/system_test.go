package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/examples/mosaic/picture"
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
			t.Errorf("the mosaic was put together %d times; want 1", got)
		}
		if got := p.sent.Load(); got != 2*testSlices+2 || c.Sent() != int(got) {
			t.Errorf("%d messages were sent, the order knows of %d, want %d", got, c.Sent(), 2*testSlices+2)
		}
		if n := w.poisoned(); n != 0 {
			t.Errorf("got %d messages poison; want 0", n)
		}
		if log := p.log.String(); log != "" {
			t.Errorf("logged: %s; want log \"\"", log)
		}
	})
}

// slowly has nothing go wrong, but everything take time, so that steps overlap.
func slowly(seed uint64) *faults {
	return &faults{seed: seed, slow: 400 * time.Millisecond, times: map[string]int{}}
}

func TestTwoProcessesShareRequestsWithoutOneMessageMore(t *testing.T) {
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
			t.Errorf("%d messages, want %d", got, want)
		}
	})
}

// TestAnotherProcessTakesTheResponse has the asking process take part in nothing, so
// that all it learns is in the store.
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
		if log := working.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, c.ID.String()) {
			t.Errorf("the working process said: %s", log)
		}
	})
}

// PM-17, PM-18: with any faults, each request ends with one mosaic.
//
// TestRequestsSucceedWithAnyFaults has two processes do everything while messages come
// twice, leases run out under running handlers, answers are lost, and every request
// and every blob operation fails now before its effect, now after it.
func TestRequestsSucceedWithAnyFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
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
				// Requests whose submission failed after it took effect are requests all
				// the same, which nobody waits for.
				w.settle()
				one.end()
				two.end()
				for _, c := range clients {
					w.check(c)
				}
				w.onlyEndsOf(ids)
				if n := w.poisoned(); n != 0 {
					t.Errorf("got %d messages poison; want 0", n)
				}
				if f.happened() == 0 {
					t.Error("nothing went wrong: this proves nothing")
				}
			})
		})
	}
}

// onlyEndsOf is onlyEnds where mosaics may have been kept: of requests that nobody
// waits for, and of those whose delivery could not be noted before another process had
// the response again.
func (w *world) onlyEndsOf(ids []uuid.UUID) {
	w.t.Helper()
	for _, name := range w.blobs() {
		container, rest, _ := strings.Cut(name, "/")
		id, err := uuid.Parse(rest[:min(len(rest), 36)])
		if err != nil {
			w.t.Fatal(err)
		}
		e, err := jobs{w.store}.ended(context.Background(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case container == jobState && strings.HasSuffix(rest, "/"+factEnd):
		case container == imageOutput && e != nil && e.Output != "":
		case container == imageInput && e == nil && !slices.Contains(ids, id): // its request was never sent
		default:
			w.t.Errorf("left in the store: %s, whose request ended as %+v", name, e)
		}
	}
}

// TestKilledAnywhereAndRunAgain kills a process after every number of operations it
// may have done, and starts another.
func TestKilledAnywhereAndRunAgain(t *testing.T) {
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
				t.Fatalf("after %d operations: %v; want no error", after, err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("after %d operations: the new request took %v; want at most %v", after, took, 10*time.Second)
			}
			w.settle()
			heir.end()
			w.check(c)
			for _, name := range w.blobs() {
				container, rest, _ := strings.Cut(name, "/")
				switch {
				case strings.HasSuffix(rest, "/"+factEnd), container == imageOutput:
				case container == imageInput && (old == nil || strings.HasPrefix(rest, old.ID.String())):
				default:
					t.Errorf("after %d operations: left in the store: %s", after, name)
				}
			}
			if old != nil && !finished {
				if log := heir.log.String(); strings.Count(log, old.ID.String()) == 0 && w.poisoned() == 0 && !w.endedQuietly(old.ID) {
					t.Errorf("after %d operations: nothing is known of the old request; log: %s", after, log)
				}
			}
		})
		if finished || t.Failed() {
			return
		}
	}
}

// endedQuietly tells whether the request has an end.
func (w *world) endedQuietly(id uuid.UUID) bool {
	e, err := jobs{w.store}.ended(context.Background(), id)
	return err == nil && e != nil
}

// submitOrDie is submit on a process that may be dead before it has sent anything.
func (w *world) submitOrDie(p *process) *client {
	c := &client{}
	var b bytes.Buffer
	img := testPicture()
	if err := picture.Encode(&b, img, img.Bounds(), picture.PNG); err != nil {
		w.t.Fatal(err)
	}
	o, err := p.Broker.Submit(w.t.Context(), Request{
		ClientID: "tester", Picture: &b, Library: testLibrary(w.t), Slices: testSlices,
		Deliver: func(r io.Reader) error {
			if _, err := io.Copy(io.Discard, r); err != nil {
				return err
			}
			return p.power.on()
		},
	})
	if err != nil {
		return nil
	}
	c.Order = o
	return c
}

func TestAPictureThatCannotBeDecodedFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		o, err := p.Broker.Submit(t.Context(), Request{
			ClientID: "tester", Picture: strings.NewReader("no picture"), Library: testLibrary(t), Slices: testSlices,
			Deliver: func(io.Reader) error { t.Error("something was delivered"); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		failed := (*FailedError)(nil)
		if err := o.Wait(t.Context()); !errors.As(err, &failed) || !strings.Contains(err.Error(), picture.ErrNotPicture.Error()) {
			t.Errorf("the order ended with %v", err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("got a duration of %v; want at most %v", took, 2*time.Second)
		}
		if err := o.Abandon(t.Context()); err != nil {
			t.Error(err)
		}
		w.settle()
		p.end()
		w.onlyEnds(o.ID)
		if n := w.poisoned(); n != 1 {
			t.Errorf("%d messages are poison, want 1", n)
		}
	})
}

// TestAStepThatKeepsFailingFailsTheRequest has one slice fail for ever.
func TestAStepThatKeepsFailingFailsTheRequest(t *testing.T) {
	for _, who := range []string{"the asking process", "another process"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				w.store = &noRoom{w.store}
				asking := w.open(nil)
				working := asking
				if who == "another process" {
					working = w.open(nil)
				}
				w.start(working)
				c := w.submit(asking)
				err := c.Wait(t.Context())
				if failed := (*FailedError)(nil); !errors.As(err, &failed) || !strings.Contains(err.Error(), "no space left") {
					t.Errorf("the order ended with %v", err)
				}
				w.settle()
				working.end()
				if len(c.deliveries()) != 0 {
					t.Error("something was delivered")
				}
				if n := w.poisoned(); n != 1 {
					t.Errorf("%d messages are poison, want 1", n)
				}
			})
		})
	}
}

// noRoom has no room for slice 2.
type noRoom struct{ blob.Store }

func (s *noRoom) Create(ctx context.Context, ref blob.Ref, r io.Reader) error {
	if ref.Container == sliceResponses && strings.HasSuffix(ref.Name, "2") {
		return errors.New("no space left on device")
	}
	return s.Store.Create(ctx, ref, r)
}

// TestWorkersThatDieFailTheRequest has a message nobody ever finished: no handler runs,
// and yet who waits must learn of it.
func TestWorkersThatDieFailTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		asking := w.open(nil)
		c := w.submit(asking)
		q := w.queue(imageRequests)
		for starts := range 3 { // three workers begin and die, the first without a record of it
			batch, err := q.Dequeue(t.Context(), 1, time.Second)
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			head, body, _, err := codec.Open(batch[0].Text, codec.Auto)
			if err != nil {
				t.Fatal(err)
			}
			head.Starts = starts
			text, err := codec.Seal(head, body, codec.Envelope)
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
			t.Errorf("the order ended with %v; want an error, an error with \"worker died\"", err)
		}
		asking.end()
	})
}

func TestADeliveryThatFailsKeepsTheMosaic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		full := errors.New("disk full")
		var b bytes.Buffer
		img := testPicture()
		if err := picture.Encode(&b, img, img.Bounds(), picture.PNG); err != nil {
			t.Fatal(err)
		}
		o, err := p.Broker.Submit(t.Context(), Request{
			ClientID: "tester", Picture: &b, Library: testLibrary(t), Slices: testSlices,
			Deliver: func(io.Reader) error { return full },
		})
		if err != nil {
			t.Fatal(err)
		}
		kept := (*KeptError)(nil)
		if err := o.Wait(t.Context()); !errors.Is(err, full) || !errors.As(err, &kept) || kept.Where != outputRef(o.ID, picture.PNG).String() {
			t.Errorf("the order ended with %v", err)
		}
		time.Sleep(time.Minute) // nobody is to lose patience with the response
		p.end()

		// A later run finds the response, and keeps what it speaks of.
		heir := w.open(nil)
		w.start(heir)
		w.settle()
		heir.end()
		if there, err := blob.Exists(t.Context(), w.store, outputRef(o.ID, picture.PNG)); !there || err != nil {
			t.Errorf("the mosaic: %v, %v", there, err)
		}
		if log := heir.log.String(); !strings.Contains(log, o.ID.String()) {
			t.Errorf("the later run said: %s", log)
		}
	})
}

// TestMessagesWithoutBlobsArePoison has what is left when somebody deletes the blobs:
// no message may go round for ever.
func TestMessagesWithoutBlobsArePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		id := uuid.New()
		library := libraryRef("none")
		for _, err := range []error{
			p.Broker.queues.imageRequests.Submit(t.Context(), ImageRequest{Head: p.Broker.queues.imageRequests.Head("x", id), ImageURI: inputRef(id), ImageLibraryURI: library, TileSize: 4, Slices: 1, OutputFormat: "PNG"}),
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
				err = qs.imageResponses.Submit(t.Context(), ImageResponse{Head: qs.imageResponses.Head("x", id), ImageURI: outputRef(id, picture.PNG)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start(p)
		w.settle()
		p.end()
		if n := w.poisoned(); n != 4 {
			t.Errorf("%d messages are poison, want 4", n)
		}
		if n := p.retried(); n != 0 {
			t.Errorf("got %d deliveries were given back to be tried again; want 0", n)
		}
	})
}

// naiveCollector is the job controller that counts messages, to show that the check
// below catches it.
type naiveCollector struct{ left int }

func (n *naiveCollector) collect() (finished bool) {
	n.left--
	return n.left == 0
}

// PM-18: distinct slices are counted.
func TestDuplicatesDoNotFinishAJobEarly(t *testing.T) {
	// early sends the response of one slice as often as there are slices, and reports
	// whether the job is then taken for finished.
	early := func(collect func() bool) bool {
		finished := false
		for range testSlices {
			finished = collect() || finished
		}
		return finished
	}
	if naive := (&naiveCollector{left: testSlices}); !early(naive.collect) {
		t.Error("the check lets counting messages pass: it proves nothing")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		id := uuid.New()
		j := jobs{w.store}
		if err := j.writePlan(t.Context(), id, plan{Tile: testTile, Cols: testCols, Rows: testRows, Slices: testSlices, Format: "PNG"}); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Put(t.Context(), laidRef(id, 1), strings.NewReader("a slice")); err != nil {
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
			there, err := blob.Exists(t.Context(), w.store, outputRef(id, picture.PNG))
			return there || err != nil || w.poisoned() > 0
		})
		p.end()
		if finished {
			t.Error("one slice, told of often enough, finished the job")
		}
	})
}

func (p *process) retried() (n int64) {
	for _, l := range p.listeners {
		n += l.State().Retried
	}
	return n
}
