package roles

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/listener"
)

// Messages name slices, and Clean names ends, as package gather does.
func TestSlicesAndEndsHaveTheNamesOfTheirGather(t *testing.T) {
	j, id := jobsIn(blob.Memory()), uuid.New()
	for _, n := range []int{0, 7, 999_999} {
		if got, want := laidRef(id, n), j.parts.Ref(id.String(), n); got != want {
			t.Errorf("slice %d: got %v, want %v", n, got, want)
		}
	}
	if got, want := endRef(id), j.parts.EndRef(id.String()); got != want {
		t.Errorf("end: got %v, want %v", got, want)
	}
}

// A request with many slices does not list them for each response.
func TestResponsesDoNotListTheSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 300
		w := newWorld(t, 0)
		p := w.open(nil)
		lists := &listCounter{Store: w.store}
		j, id := jobsIn(lists), uuid.New()
		if err := j.writeFact(t.Context(), id, factPlan, picture.Plan{Tile: testTile, Cols: testCols, Rows: all, Slices: all}); err != nil {
			t.Fatal(err)
		}
		c := &jobController{jobs: j, queues: p.Broker.queues}
		for n := range all - 1 {
			if err := w.store.Put(t.Context(), laidRef(id, n), strings.NewReader("a slice"), nil); err != nil {
				t.Fatal(err)
			}
			err := c.collect(t.Context(), &listener.Message[SliceResponse]{Body: SliceResponse{
				Head: p.Broker.queues.sliceResponses.Head("x", id), SliceURI: laidRef(id, n), SliceSequence: n, Slices: all,
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := lists.n.Load(); got > 20 {
			t.Errorf("got %d lists, want at most 20", got)
		}
	})
}

// listCounter counts the lists of a store.
type listCounter struct {
	blob.Store
	n atomic.Int64
}

func (s *listCounter) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	s.n.Add(1)
	return s.Store.List(ctx, container, prefix)
}
