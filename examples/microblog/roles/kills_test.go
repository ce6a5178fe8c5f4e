package roles

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/killtest"
)

// A worker that is killed before or after any of its steps leaves nothing behind, while others read and write. In half of
// the runs the channel is made anew after the kill, in the others it stays deleted.
//
// T-12, T-14, T-15.
func TestAKillAtAnyStepLeavesNothing(t *testing.T) {
	for _, anew := range []bool{false, true} {
		steps := 0
		never := killtest.Every([]string{"dequeue", "enqueue", "update", "apply", "delete"}, func(k *killtest.Killer) (killed bool) {
			synctest.Test(t, func(t *testing.T) { killed = newWorld(t).kill(k, anew) })
			if killed {
				steps++
			}
			return killed
		})
		t.Log(steps, "steps")
		if len(never) > 0 || steps < 30 {
			t.Errorf("steps that were killed: got %d and none of %v, want 30 of all kinds", steps, never)
		}
	}
}

// kill runs a worker with the killer, and then another one, and reports whether the first was killed.
func (w *world) kill(k *killtest.Killer, anew bool) (killed bool) {
	w.request(w.create(75))
	leave := w.visitors(w.site, 10*time.Millisecond)
	first := w.startMortal(k)
	time.Sleep(500 * time.Millisecond)
	leave()
	if killed = k.Dead(); killed && anew {
		_, err := w.site(nil).Create(w.Context(), theName, "bob")
		if err != nil && !errors.Is(err, channels.ErrChannelExists) { // it was killed before the mark
			w.Error(err)
		}
	}
	if !killed {
		time.Sleep(2 * LateDelay)
		killed = k.Dead() // in the second deletion
	}
	first.end(killed)
	leave = w.visitors(w.site, 200*time.Millisecond)
	second := w.start(w.queue, w.site(nil))
	time.Sleep(6 * time.Second) // the lease of the dead has ended
	leave()
	w.settle()
	second.end(false)
	w.mustBeRight("killed at %s %d, after it: %v, made anew: %v", k.Kind, k.Nth, k.After, anew)
	return killed
}
