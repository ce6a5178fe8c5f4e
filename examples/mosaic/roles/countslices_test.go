package roles

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// PM-18: a slice counts once, however often it was rendered, and only for its own request.
func TestASliceCountsOnceForItsRequest(t *testing.T) {
	j := jobsIn(blob.Memory())
	id, other := uuid.New(), uuid.New()
	var want []int
	for n := range 3 {
		want = append(want, n)
		for range 3 {
			for _, ref := range []blob.Ref{laidRef(id, n), laidRef(other, n), cutRef(id, n), {Container: sliceResponses, Name: id.String() + "/x"}} {
				if err := j.store.Put(t.Context(), ref, strings.NewReader("a slice"), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, err := j.parts.Stored(t.Context(), id.String()); err != nil || !slices.Equal(got, want) {
			t.Errorf("after slice %d was stored three times: got %v, %v; want %v", n, got, err, want)
		}
	}
}

// PM-18: no number of responses finishes a job while a slice is missing, however many there are.
func TestAJobIsNotFinishedBeforeItsLastSlice(t *testing.T) {
	for laid := 1; laid < testSlices; laid++ {
		t.Run(strconv.Itoa(laid), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				p := w.open(nil)
				w.start(p)
				id := uuid.New()
				if err := jobsIn(w.store).writeFact(t.Context(), id, factPlan, picture.Plan{Tile: testTile, Cols: testCols, Rows: testRows, Slices: testSlices}); err != nil {
					t.Fatal(err)
				}
				for n := range laid {
					if err := w.store.Put(t.Context(), laidRef(id, n), strings.NewReader("a slice"), nil); err != nil {
						t.Fatal(err)
					}
				}
				for n := range 3 * testSlices {
					err := p.Broker.queues.sliceResponses.Submit(t.Context(), SliceResponse{
						Head: p.Broker.queues.sliceResponses.Head("x", id), SliceURI: laidRef(id, n%laid), SliceSequence: n % laid, Slices: testSlices,
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				there, err := blob.Exists(t.Context(), w.store, outputRef(id))
				if err != nil || there || w.poisoned() != 0 || w.depth() != 0 {
					t.Errorf("%d of %d slices finished: got mosaic stored %v, %v, %d poison messages, %d messages left; want none", laid, testSlices, there, err, w.poisoned(), w.depth())
				}
				p.end()
			})
		})
	}
}
