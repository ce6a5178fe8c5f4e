package roles

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
)

// endingStore ends a request of another process when a blob of the container is stored, just before its effect. The
// handler that stores it does not learn that it was stored, because it has lost its lease.
type endingStore struct {
	blob.Store
	container string
	end       func()
	lose      context.CancelFunc
}

func (s *endingStore) late(ref blob.Ref, store func() error) error {
	if ref.Container != s.container {
		return store()
	}
	s.end()
	if err := store(); err != nil {
		return err
	}
	s.lose()
	return errors.New("the answer is lost")
}

func (s *endingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.late(ref, func() error { return s.Store.Put(ctx, ref, r, o) })
}

func (s *endingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.late(ref, func() error { return s.Store.Create(ctx, ref, r, o) })
}

// A step that stores a blob after the request has ended, and then fails and has lost its lease, leaves nothing: its
// message is not delivered again, and no other step would clean up.
func TestAStepThatFailsTooLateLeavesNothing(t *testing.T) {
	for _, container := range []string{jobState, sliceRequests, sliceResponses} {
		t.Run(container, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				p := w.open(nil)
				c := w.submit(p)
				all := jobsIn(w.store)
				ctx, lose := context.WithCancel(t.Context())
				defer lose()
				late := jobsIn(&endingStore{Store: w.store, container: container, lose: lose, end: func() {
					if err := endedQuietly(t.Context(), all.store, c.ID); err != nil {
						t.Error(err)
					}
				}})
				libraries := &libraries{jobs: all, turn: make(chan struct{}, 1)}
				library := libraryRef(testLibrary(t).ID())
				queues := p.Broker.queues
				controller := &jobController{jobs: all, queues: queues, libraries: libraries, handled: func(Step) {}}
				request := ImageRequest{
					Head: queues.imageRequests.Head("tester", c.ID), ImageURI: inputRef(c.ID), ImageLibraryURI: library,
					TileSize: testTile, Slices: testSlices,
				}
				var err error
				if container == sliceResponses {
					if _, err := controller.cut(ctx, request); err != nil {
						t.Fatal(err)
					}
					slice := SliceRequest{
						Head: queues.sliceRequests.Head("tester", c.ID), ImageLibraryURI: library,
						SliceURI: cutRef(c.ID, 0), Slices: testSlices, TileSize: testTile,
					}
					processor := &imageProcessor{jobs: late, queues: queues, libraries: libraries, handled: func(Step) {}}
					err = processor.process(ctx, &listener.Message[SliceRequest]{Body: slice})
				} else {
					controller.jobs = late
					err = controller.plan(ctx, &listener.Message[ImageRequest]{Body: request})
				}
				if !errors.Is(err, errEnded) {
					t.Errorf("error of the late step: got %v, want errEnded", err)
				}
				w.onlyEnds(c.ID)
			})
		})
	}
}

// endedQuietly ends a request as the delivery of its mosaic does.
func endedQuietly(ctx context.Context, store blob.Store, id uuid.UUID) error {
	j := jobsIn(store)
	if _, err := j.finish(ctx, id, end{}); err != nil {
		return err
	}
	return j.sweep(ctx, id, false)
}
