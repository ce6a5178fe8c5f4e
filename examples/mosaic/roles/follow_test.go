package roles

import (
	"context"
	"errors"
	"image"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
)

// wantLayout chooses the tiles of the test picture without queues.
func (w *world) wantLayout() *layout.Layout {
	w.t.Helper()
	whole := image.Rect(0, 0, testCols*testTile, testRows*testTile)
	cells, err := layout.Measure(testPicture(), whole, testCols, testRows)
	if err != nil {
		w.t.Fatal(err)
	}
	chosen, err := layout.Choose(w.t.Context(), cells, testLibrary(w.t), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return chosen
}

func TestTheLayoutIsReadableFromTheChoiceToTheDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		asking, working := w.open(nil), w.open(nil)
		c := w.submit(asking)
		var inDeliver *layout.Layout
		deliver := c.Deliver
		c.Deliver = func(r io.Reader) (err error) {
			if inDeliver, err = c.Layout(t.Context()); err != nil {
				return err
			}
			return deliver(r)
		}
		early := make(chan *layout.Layout, 1)
		go func() {
			l, err := c.Layout(t.Context())
			if err != nil {
				t.Error(err)
			}
			early <- l
		}()
		synctest.Wait()
		select {
		case l := <-early:
			t.Fatalf("layout before the picture was measured: got %v, want none", l)
		default:
		}
		w.start(working) // another process, which keeps the mosaic for the client
		want := w.wantLayout()
		if got := <-early; !reflect.DeepEqual(got, want) {
			t.Errorf("layout while slices are made: got %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(inDeliver, want) {
			t.Errorf("layout in Deliver: got %+v, want %+v", inDeliver, want)
		}
		if l, err := c.Layout(t.Context()); l != nil || !errors.As(err, new(*NoLayoutError)) {
			t.Errorf("layout after the delivery: got %v, %v; want a NoLayoutError", l, err)
		}
		w.settle()
		working.end()
		w.check(c)
		w.onlyEnds(c.ID)
	})
}

func TestWaitingForALayoutEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		c := w.submit(p)
		stop := errors.New("stop")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, stop)
		defer cancel()
		if _, err := c.Layout(ctx); !errors.Is(err, stop) {
			t.Errorf("layout that nobody chooses: got %v, want %v", err, stop)
		}
	})
}

func TestProgressSaysWhichSlicesAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(slowly(3))
		c := w.submit(p)
		var mu sync.Mutex
		var last []int
		c.Progress = func(stored []int, n int) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.IsSorted(stored) || n != testSlices {
				t.Errorf("progress: got %v of %d, want ascending numbers of %d", stored, n, testSlices)
			}
			if len(stored) > len(last) {
				last = stored
			}
		}
		w.start(p)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.end()
		if want := []int{0, 1, 2, 3}; !slices.Equal(last, want) {
			t.Errorf("stored slices in the end: got %v, want %v", last, want)
		}
	})
}

func TestAnOrderIsResumedByTheNextRun(t *testing.T) {
	for _, when := range []string{"before it is made", "after it is made"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				first, working := w.open(nil), w.open(nil)
				old := w.submit(first)
				if when == "after it is made" {
					w.start(working)
					w.settle()
				}
				heir := w.open(nil)
				c := &client{}
				c.Order = heir.Broker.Resume(old.ID, Request{Slices: testSlices, Deliver: func(r io.Reader) error {
					data, err := io.ReadAll(r)
					c.delivered = append(c.delivered, data)
					return err
				}})
				if when == "before it is made" {
					w.start(working)
				}
				if err := c.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.settle()
				working.end()
				w.check(c)
				w.onlyEnds(c.ID)
			})
		})
	}
}

func TestAnUnknownOrderCannotBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil) // with a patience of a day
		o := p.Broker.Resume(uuid.New(), Request{Slices: 1, Deliver: func(io.Reader) error { t.Error("delivery: got one, want none"); return nil }})
		begin := time.Now()
		if err := o.Wait(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("end of an order without a request: got %v, want an error that is blob.ErrMissing", err)
		}
		if took := time.Since(begin); took > 2*silence {
			t.Errorf("time until the order failed: got %v, want at most %v", took, 2*silence)
		}
	})
}

// A run that was killed after its mosaic was delivered, and before it had noted that, learns that nothing is left.
func TestADeliveredOrderIsNotDeliveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		c := w.submit(p)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		heir := w.open(nil)
		o := heir.Broker.Resume(c.ID, Request{Slices: testSlices, Deliver: func(io.Reader) error { t.Error("delivery: got one, want none"); return nil }})
		if err := o.Wait(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("end of an order that was delivered before: got %v, want an error that is blob.ErrMissing", err)
		}
		w.settle()
		p.end()
		w.onlyEnds(c.ID)
	})
}

// What has ended is not damaged: the layout of a mosaic that is kept is still needed.
func TestAMosaicThatIsKeptIsNotDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		asking, working := w.open(nil), w.open(nil)
		c := w.submit(asking)
		w.start(working)
		w.settle()
		if hit, err := c.Damage(t.Context()); hit || err != nil {
			t.Errorf("damage of a finished mosaic: got %v, %v; want none", hit, err)
		}
		if _, err := c.Layout(t.Context()); err != nil {
			t.Errorf("layout of the mosaic: got the error %v, want none", err)
		}
		working.end()
	})
}

// A request that nobody works on yet exists, however long that takes.
func TestAResumedOrderWaitsForItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		old := w.submit(w.open(nil))
		c := &client{}
		c.Order = w.open(nil).Broker.Resume(old.ID, Request{Slices: testSlices, Deliver: func(r io.Reader) error {
			data, err := io.ReadAll(r)
			c.delivered = append(c.delivered, data)
			return err
		}})
		working := w.open(nil)
		time.AfterFunc(10*silence, func() { w.start(working) })
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		working.end()
		w.check(c)
	})
}
