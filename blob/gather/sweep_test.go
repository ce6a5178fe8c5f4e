package gather_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

func TestAGatherThatHasNotEndedKeepsItsParts(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 2)
	wantError(t, b.Sweep(t.Context(), batch), gather.ErrNotEnded)
	b.wantLeft(batch + "/000000 " + batch + "/000001")
}

// Of several gathers whose ids begin alike one is swept, and what is not a part stays.
func TestASweepTakesThePartsOfOneGather(t *testing.T) {
	b := setup(t, nil)
	for _, id := range []string{"day", "day-2", "day.2", "day_", "da"} {
		b.putAll(id, 2)
		b.end(id, "done")
	}
	for _, name := range []string{"day/notes", "day/1", "day/0000001", "day/000002/x", "day/+00001"} {
		// Not all are names that every store takes; what is refused cannot be there.
		_ = b.store.Store.Put(t.Context(), blob.Ref{Container: "batches", Name: name}, strings.NewReader(""), nil)
	}
	before := b.left()
	if err := b.Sweep(t.Context(), "day"); err != nil {
		t.Fatal(err)
	}
	b.wantLeft(strings.NewReplacer("day/000000 ", "", "day/000001 ", "").Replace(before))
	if stored, err := b.Stored(t.Context(), "day"); len(stored) > 0 || err != nil {
		t.Errorf("Stored: got %v, %v; want none", stored, err)
	}
}

// Each delete that fails leaves one part, and the sweep says so.
func TestASweepGoesOnAfterAFailure(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 4)
	b.end(batch, "done")
	b.store.before = func(_ context.Context, op string, ref blob.Ref) error {
		if op == "delete" && strings.HasSuffix(ref.Name, "/000001") {
			return blob.ErrUnavailable
		}
		return nil
	}
	wantError(t, b.Sweep(t.Context(), batch), blob.ErrUnavailable)
	b.wantLeft(batch + "/000001 " + batch + "/end")
	wantError(t, b.Forget(t.Context(), batch), blob.ErrUnavailable)
	b.wantLeft(batch + "/000001 " + batch + "/end")
	b.store.before = nil
	if err := b.Forget(t.Context(), batch); err != nil {
		t.Error(err)
	}
	b.wantLeft("")
}

// A sweep that was cut short must not look as if it were done.
func TestASweepEndsWithItsContext(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 4)
	b.end(batch, "done")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	b.store.before = func(_ context.Context, op string, _ blob.Ref) error {
		if op == "delete" {
			cancel(stop)
		}
		return nil
	}
	b.store.Store = deaf{b.store.Store}
	wantError(t, b.Sweep(ctx, batch), stop)
	b.wantLeft(batch + "/000001 " + batch + "/000002 " + batch + "/000003 " + batch + "/end")
}

// deaf is a store whose deletes ignore that their contexts have ended.
type deaf struct{ blob.Store }

func (s deaf) Delete(ctx context.Context, ref blob.Ref) error {
	return s.Store.Delete(context.WithoutCancel(ctx), ref)
}

// A gather that is forgotten before its end can begin anew, also in the process that remembered it.
func TestAForgottenGatherBeginsAnew(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 2)
	b.wantComplete(b.Gather, batch, 3, false)
	if err := b.Forget(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	b.wantLeft("")
	b.put(batch, 2)
	b.wantComplete(b.Gather, batch, 3, false)
	b.putAll(batch, 2)
	b.wantComplete(b.Gather, batch, 3, true)
}
