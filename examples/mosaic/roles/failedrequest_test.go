package roles

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/poison"
)

// A step that keeps failing is poison, which its client sees, whichever process works. Once the cause is mended, a redrive
// finishes the mosaic.
func TestPoisonStopsAMosaicUntilItIsRedriven(t *testing.T) {
	for _, who := range []string{"the asking process", "another process"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				full := &noRoom{Store: w.store}
				w.store = full
				asking := w.open(nil)
				working := asking
				if who == "another process" {
					working = w.open(nil)
				}
				w.start(working)
				c := w.submit(asking)
				if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left") {
					t.Errorf("end of the wait: got %v, want an error with \"no space left\"", err)
				}
				w.settle()
				if n := w.poisoned(); n != 1 || len(c.deliveries()) != 0 {
					t.Errorf("got %d poison messages and %d deliveries, want 1 and 0", n, len(c.deliveries()))
				}
				full.mended.Store(true)
				w.redrive(sliceRequests)
				if err := c.Order.Wait(t.Context(), func(Progress) error { return nil }); err != nil {
					t.Fatal(err)
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

// redrive sends the poison messages of a queue back.
func (w *world) redrive(name string) {
	w.t.Helper()
	report, err := poison.Redrive(w.t.Context(), w.queue(name), nil)
	if err != nil || report.Done != 1 {
		w.t.Fatalf("redrive: got %+v, %v; want one message", report, err)
	}
}

// A damaged slice is poison, and is cut again, so a redrive finishes the mosaic.
func TestADamagedSliceOnceRedrivenCompletesThePicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		controller := w.player(Controller|Client, nil)
		c := w.submit(controller)
		time.Sleep(time.Minute)
		if hit, err := c.Damage(t.Context()); !hit || err != nil {
			t.Fatalf("damage: got %v, %v; want a slice", hit, err)
		}
		processor := w.player(Processor, nil)
		if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), layout.ErrBadLayout.Error()) {
			t.Errorf("wait for a damaged mosaic: got %v, want the damage", err)
		}
		w.settle()
		if n := w.poisoned(); n != 1 {
			t.Fatalf("poison messages: got %d, want 1", n)
		}
		w.redrive(sliceRequests)
		w.settle()
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if hit, err := c.Damage(t.Context()); hit || err != nil {
			t.Errorf("damage of a finished mosaic: got %v, %v; want none", hit, err)
		}
		controller.end()
		processor.end()
		w.check(c)
		w.onlyEnds(c.ID)
	})
}

// noRoom is a store without space for slice 2.
type noRoom struct {
	blob.Store
	mended atomic.Bool
}

func (s *noRoom) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if !s.mended.Load() && ref.Container == sliceResponses && strings.HasSuffix(ref.Name, "2") {
		return errors.New("no space left on device")
	}
	return s.Store.Create(ctx, ref, r, o)
}

// The message that becomes poison may be the last one of its request, so that no handler cleans up after a cancel.
func TestACancelledRequestLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.store = &noRoom{Store: w.store}
		p := w.open(nil)
		w.start(p)
		c := w.submit(p, func(r *Request) { r.Slices = 3 })
		if err := c.Wait(t.Context()); err == nil {
			t.Error("wait for a mosaic with poison: got no error, want one")
		}
		if err := c.Cancel(t.Context(), "not wanted any more"); err != nil {
			t.Error(err)
		}
		if err := c.Wait(t.Context()); err == nil || err.Error() != "not wanted any more" {
			t.Errorf("wait for a cancelled mosaic: got %v, want the reason", err)
		}
		w.settle()
		p.end()
		w.onlyEnds(c.ID)
	})
}
