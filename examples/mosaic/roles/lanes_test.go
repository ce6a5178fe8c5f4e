package roles

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/millrace/millrace/dispatcher"
)

func TestOwnHandlersGoFirstAndOthersAreSentAwayAtTheEnd(t *testing.T) {
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
			t.Errorf("a second one, while there is own work: %v; want an error, err.Error() %v", err, dispatcher.Snooze(0).Error())
		}
		leaveSide()
		busy = false
		enter(t.Context(), "own", own)
		lose(ended)
		if got := <-order; got != ended.Error() {
			t.Errorf("the one whose lease was lost: %s; want %v", got, ended.Error())
		}
		leave()
		if a, b := <-order, <-order; a != "own" || b != "other" {
			t.Errorf("got %s, then %s; want a \"own\", b \"other\"", a, b)
		}

		leave, err = l.enter(t.Context(), own, 1)
		if err != nil {
			t.Fatal(err)
		}
		enter(t.Context(), "other", uuid.New())
		l.close()
		l.close()
		if got := <-order; got != dispatcher.Snooze(0).Error() {
			t.Errorf("who waited: %s; want %v", got, dispatcher.Snooze(0).Error())
		}
		if _, err := l.enter(t.Context(), uuid.New(), 1); err == nil {
			t.Errorf("who comes late: %v; want an error", err)
		}
		leave()
		if leave, err = l.enter(t.Context(), own, 1); err != nil {
			t.Fatal(err)
		}
		leave()
		if l.free != 1 {
			t.Errorf("got %d lanes are free; want l.free 1", l.free)
		}
	})
}
