package roles

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/listener"
)

// lateStore stores a mosaic only after its request was ended by another process and swept.
type lateStore struct {
	blob.Store
	end func()
}

func (s *lateStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if ref.Container != imageOutput {
		return s.Store.Create(ctx, ref, r, o)
	}
	s.end()
	if err := s.Store.Create(ctx, ref, r, o); err != nil {
		return err
	}
	return errors.New("the answer is lost")
}

// A worker that lost its lease stores the mosaic after the request has ended, without learning that it
// did. No other process would clean up, so it deletes the mosaic itself.
func TestAMosaicStoredTooLateIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		all := w.store
		first := &lateStore{Store: all}
		w.store = first
		p := w.open(nil)
		c := w.submit(p)
		var left bool
		var failure error
		first.end = sync.OnceFunc(func() { // now all slices are finished
			jobs := jobsIn(&lateStore{Store: all, end: func() {
				if err := endedQuietly(t.Context(), all, c.ID); err != nil {
					t.Error(err)
				}
			}})
			var plan picture.Plan
			err := jobs.readFact(t.Context(), c.ID, factPlan, &plan)
			if err != nil {
				t.Error(err)
			}
			late := &jobController{jobs: jobs, composing: make(chan struct{}, 1)}
			m := &listener.Message[SliceResponse]{Body: SliceResponse{Head: Head{RequestID: c.ID}}}
			failure = late.respond(t.Context(), m, plan)
			if left, err = blob.Exists(t.Context(), all, outputRef(c.ID)); err != nil {
				t.Error(err)
			}
		})
		w.start(p)
		time.Sleep(10 * time.Minute)
		p.end()
		if left || !errors.Is(failure, errEnded) {
			t.Errorf("late mosaic: got stored %v, error of the worker %v; want it deleted and errEnded", left, failure)
		}
	})
}
