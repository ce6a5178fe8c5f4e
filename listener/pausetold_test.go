package listener

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// A loop that takes a signal in a pause, and then ends because fewer may run, leaves it to one that
// sleeps for long.
func TestASignalInAPauseIsNotSwallowedByALoopThatEnds(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Fetch.Loops = noSafety, Loops{Min: 2, Max: 2}
		o.Fetch.Idle.Min, o.Fetch.Idle.Max = time.Hour, time.Hour
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Second)
		l.Pause()
		synctest.Wait()
		b.put(1)
		l.Wake()
		synctest.Wait()
		if err := l.Configure(Settings{Loops: Loops{Min: 1, Max: 1}}); err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		l.Resume()
		advance(0)
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Loops != 1 {
			b.Errorf("got %d jobs done with %d loops at the resumption, want 1 with 1", st.Outcomes[Deleted], st.Loops)
		}
		b.mustFinish()
	})
}

// The hook is told of each change in their order, one at a time, also if it makes the next one itself.
func TestPausesAreToldInOrder(t *testing.T) {
	bubble(t, func(b *bundle) {
		var told []string
		o := options()
		var l *Listener[job]
		o.Observer.Paused = func(_ queue.Name, by PausedBy) {
			if by == ByProgram {
				l.Resume()
			}
			told = append(told, string(by)) // after what its call may tell
		}
		l = New(b.queue, nothing, o)
		b.run(l)
		advance(time.Second)
		l.Pause()
		advance(time.Second)
		if got, want := strings.Join(told, ", "), "program, "; got != want {
			b.Errorf("told %s, want %s", got, want)
		}
		b.mustFinish()
	})
}

// The resumption of an idle listener with wake-ups costs one dequeue, as an event does.
func TestAResumptionWithWakeupsCostsFewDequeues(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := &wakeup.Bus{}
		o := wakeOptions(source)
		o.Fetch.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		for range 20 {
			before := b.dequeues()
			l.Pause()
			advance(time.Minute)
			l.Resume()
			advance(time.Minute)
			// One for the resumption, one because events come again from then on, and one for the signal.
			if got := b.dequeues() - before; got < 1 || got > 3 {
				b.Errorf("got %d dequeues, want 1 to 3", got)
			}
			b.mustBeIdle(l)
		}
		b.mustFinish()
	})
}
