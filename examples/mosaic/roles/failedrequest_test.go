package roles

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/blob"
)

// TestAStepThatKeepsFailingFailsTheRequest makes one slice fail for ever.
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
					t.Errorf("end of the order: got %v, want a FailedError with \"no space left\"", err)
				}
				w.settle()
				working.end()
				if len(c.deliveries()) != 0 {
					t.Error("something was delivered")
				}
				if n := w.poisoned(); n != 1 {
					t.Errorf("poison messages: got %d, want 1", n)
				}
			})
		})
	}
}

// noRoom is a store without space for slice 2.
type noRoom struct{ blob.Store }

func (s *noRoom) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if ref.Container == sliceResponses && strings.HasSuffix(ref.Name, "2") {
		return errors.New("no space left on device")
	}
	return s.Store.Create(ctx, ref, r, o)
}

// The message that becomes poison may be the last one of its request, so that no other handler cleans up.
func TestAFailedRequestLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.store = &noRoom{w.store}
		p := w.open(nil)
		w.start(p)
		c := w.submit(p, func(r *Request) { r.Slices = 3 })
		if err := c.Wait(t.Context()); !errors.As(err, new(*FailedError)) {
			t.Errorf("end of the order: got %v, want a FailedError", err)
		}
		if err := c.Abandon(t.Context()); err != nil {
			t.Error(err)
		}
		w.settle()
		p.end()
		w.onlyEnds(c.ID)
	})
}

// An order that is given up is not ended by that: others may finish it.
func TestARequestThatHasNotEndedIsNotAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		c := w.submit(p)
		if err := c.Abandon(t.Context()); err != nil {
			t.Error(err)
		}
		w.start(p)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		p.end()
		w.check(c)
	})
}
