package poison_test

import (
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
)

// A panic of Progress comes out of Redrive, whichever goroutine it was on, and loses and doubles
// nothing: what was sent is deleted, and the rest is visible again.
func TestAPanicOfProgressComesOutOfTheRedrive(t *testing.T) {
	for _, at := range []int{0, 1, 20} {
		synctest.Test(t, func(t *testing.T) {
			m := newMorgue(t)
			for i := range 50 {
				m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
			}
			func() {
				defer func() {
					if p := recover(); p != "progress" {
						t.Errorf("at %d redriven: recovered %v, want the panic of Progress", at, p)
					}
				}()
				_, err := poison.Redrive(t.Context(), m.orders, &poison.Options{Parallel: 3, Progress: func(r poison.Summary) {
					if r.Done == at {
						panic("progress")
					}
				}})
				t.Errorf("at %d redriven: Redrive returned %v, want a panic", at, err)
			}()
			gone, left := jobs(t, drain(t, m.orders)), jobs(t, drain(t, m.poison))
			if len(gone)+len(left) != 50 || len(gone) < at || len(gone) > at+2 {
				t.Errorf("at %d redriven: got %d sent and %d left, want %d to %d and the rest", at, len(gone), len(left), at, at+2)
			}
		})
	}
}
