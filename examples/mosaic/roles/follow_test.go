package roles

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
)

func TestTheLayoutIsReadableFromTheChoiceToTheDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		asking, working := w.open(nil), w.open(nil)
		c := w.submit(asking)
		if l, err := c.Layout(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("layout before the picture was measured: got %v, %v; want none", l, err)
		}
		w.start(working) // another process, which keeps the mosaic for the client
		w.settle()
		early, err := c.Layout(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heir := &client{Order: w.open(nil).Broker.Resume(c.ID, testSlices)} // the next run
		if err := heir.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := w.wantLayout(); !reflect.DeepEqual(early, want) {
			t.Errorf("layout: got %+v, want %+v", early, want)
		}
		if l, err := c.Layout(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("layout after the delivery: got %v, %v; want none", l, err)
		}
		if err := c.Wait(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("a second delivery: got %v, want blob.ErrMissing", err)
		}
		working.end()
		w.check(heir)
		w.onlyEnds(c.ID)
	})
}

func TestProgressSaysWhichSlicesAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(slowly(3))
		c := w.submit(p)
		w.start(p)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.end()
		last := 0
		for _, now := range c.progress {
			if !slices.IsSorted(now.Stored) || now.Slices != testSlices || len(now.Stored) < last {
				t.Errorf("progress: got %+v, want ascending and more and more numbers of %d", now, testSlices)
			}
			last = len(now.Stored)
		}
		if last == 0 {
			t.Error("progress: got no slice, want some")
		}
	})
}

func TestAnUnknownOrderCannotBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		c := &client{Order: w.open(nil).Broker.Resume(uuid.New(), 1)}
		if err := c.Wait(t.Context()); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("an order without a request: got %v, want blob.ErrMissing", err)
		}
	})
}

// A request that nobody works on yet exists, however long that takes.
func TestAResumedOrderWaitsForItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		old := w.submit(w.open(nil))
		c := &client{Order: w.open(nil).Broker.Resume(old.ID, testSlices)}
		working := w.open(nil)
		time.AfterFunc(10*outage, func() { w.start(working) })
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		working.end()
		w.check(c)
	})
}
