package roles

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/millrace/millrace/dispatcher"
)

func TestOwnRequestsGoFirstAndOthersAreGivenBackAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := uuid.New()
		busy := false
		l := newLanes(1, func(id uuid.UUID) bool { return id == own }, func() bool { return busy })
		leave, err := l.enter(t.Context(), uuid.New(), 1)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 4)
		enter := func(ctx context.Context, name string, id uuid.UUID) {
			go func() {
				leave, err := l.enter(ctx, id, 1)
				if err != nil {
					name = err.Error()
				}
				order <- name
				if err == nil {
					leave()
				}
			}()
			synctest.Wait()
		}
		ended := errors.New("lease lost")
		losing, lose := context.WithCancelCause(t.Context())
		enter(t.Context(), "other", uuid.New())
		enter(losing, "lost", own)
		busy = true
		leaveSide, err := l.enter(t.Context(), uuid.New(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.enter(t.Context(), uuid.New(), 1); err == nil || err.Error() != dispatcher.Snooze(0).Error() {
			t.Errorf("second message of another request: got %v, want a snooze", err)
		}
		leaveSide()
		busy = false
		enter(t.Context(), "own", own)
		lose(ended)
		if got := <-order; got != ended.Error() {
			t.Errorf("ended context: got %s, want %v", got, ended)
		}
		leave()
		if a, b := <-order, <-order; a != "own" || b != "other" {
			t.Errorf("order: got %s, then %s; want own, then other", a, b)
		}

		leave, err = l.enter(t.Context(), own, 1)
		if err != nil {
			t.Fatal(err)
		}
		enter(t.Context(), "other", uuid.New())
		l.close()
		l.close()
		if got := <-order; got != dispatcher.Snooze(0).Error() {
			t.Errorf("waiting handler after close: got %s, want a snooze", got)
		}
		if _, err := l.enter(t.Context(), uuid.New(), 1); err == nil {
			t.Errorf("handler after close: got %v, want an error", err)
		}
		leave()
		if leave, err = l.enter(t.Context(), own, 1); err != nil {
			t.Fatal(err)
		}
		leave()
		if l.free != 1 {
			t.Errorf("free lanes: got %d, want 1", l.free)
		}
	})
}
