package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// rest is the interval between checks whether the queue is empty. It is not a multiple of the
// intervals of workers, which may begin some nanoseconds late.
const rest = 10*time.Second + 10

// The workers at the end: healthy is of the next release, so that no message is too new for it;
// mover moves the poison that others kept.
const (
	healthy = "healthy"
	mover   = "mover"
)

// calm is the end of every world, without faults. First the surviving workers must do what they
// can, then a healthy worker the rest.
func (w *world) calm() {
	var alive []*process
	for _, p := range w.processes {
		if p.plan.survives && !p.isDead() {
			alive = append(alive, p)
		}
	}
	if len(alive) > 0 {
		w.waitUntilEmpty(alive)
		if len(alive) == 1 {
			w.checkCapacity(alive[0])
		}
		w.checkIdle(alive)
		w.checkView(alive)
	}
	for _, p := range alive {
		close(p.calm)
	}
	w.surviving.Wait()

	keeps := false
	for _, one := range w.plan.workers {
		keeps = keeps || one.policy.keep
	}
	p := w.startHealthy(healthy, keeps)
	if keeps {
		time.Sleep(150 * time.Minute) // kept poison becomes visible again and again
	}
	w.stopWorker(p)
	if keeps {
		w.stopWorker(w.startHealthy(mover, false))
	}
}

// startHealthy starts a worker with the settings of the world and waits until the queue is empty.
func (w *world) startHealthy(name string, keeps bool) *process {
	policy, idle := w.plan.policy, 10*time.Second
	if policy.keep = keeps; keeps { // it will be idle for long
		idle = time.Minute
	}
	p := w.addProcess(workerPlan{
		name: name, survives: true, ending: stopped, release: 2, kinds: kindNames, policy: policy,
		faults:      faultqueue.Options{Seed: uint64(w.plan.dice), UsualLatency: usual, Record: true},
		concurrency: 16, batch: 16, idleMin: 500 * time.Millisecond, idleMax: idle,
		loops: listener.Loops{Min: 1, Max: 1}, visibility: dispatcher.FixedVisibility(30 * time.Second),
		grace: 10 * time.Minute, settle: 15 * time.Second, maxRetryDelay: 5 * time.Second,
	})
	w.surviving.Go(p.live)
	<-p.born
	time.Sleep(rest)
	w.waitUntilEmpty([]*process{p})
	return p
}

func (w *world) stopWorker(p *process) {
	close(p.calm)
	w.surviving.Wait()
}

// waitUntilEmpty waits until the workers have emptied the queue. It is a violation if that takes
// longer than the deadline.
func (w *world) waitUntilEmpty(by []*process) {
	w.updateLeft()
	begin, d := w.now(), w.deadline(by)
	report := func(due time.Duration) func(queue.ID, leftover) {
		return func(id queue.ID, l leftover) {
			if due == d.late || !d.hang[id] {
				w.addViolation("%s has not emptied the queue in %v: message %s of job %d is left, hidden until %v", by[0].plan.name, due-begin, id, l.job.n, l.hidden)
			}
		}
	}
	for w.remaining(by, nil) > 0 && w.now() <= d.late {
		time.Sleep(rest)
		w.updateLeft()
		if w.now() > d.soon && w.now()-rest <= d.soon {
			w.remaining(by, report(d.soon))
		}
	}
	w.remaining(by, report(d.late))
}

// leftover is a message that is still in the queue.
type leftover struct {
	job             jobPlan
	text            string
	hidden, expires time.Duration
	deliveries      int64
	kept            bool // poison that stays, as far as can be seen
}

// updateLeft reads new entries of the history into left.
func (w *world) updateLeft() {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for ; w.seen < len(w.history.entries); w.seen++ {
		e := w.history.entries[w.seen]
		was, there := w.left[e.id]
		switch {
		case e.kind == accepted:
			w.left[e.id] = leftover{job: w.sent(e.text), text: e.text, hidden: e.hidden, expires: e.until}
		case e.kind == deleted && e.outcome == "":
			delete(w.left, e.id)
		case e.kind == dropped:
			clear(w.left)
		case there && e.outcome == "" && (e.kind == updated || e.kind == delivered):
			was.hidden, was.text, was.deliveries = e.until, e.text, max(was.deliveries, e.count)
			was.kept = e.kind == updated && w.mayBeKept(was)
			w.left[e.id] = was
		}
	}
}

// mayBeKept reports whether a message that was given back may be poison that stays in its queue: it
// says so, or it is such that this cannot be recorded in it.
func (w *world) mayBeKept(l leftover) bool {
	j := l.job
	if poisoned(l.text) || j.form == junk || j.form == broken || j.undecoded || j.largest {
		return true
	}
	least := w.plan.policy.maxAttempts
	for _, one := range w.plan.workers {
		least = min(least, one.policy.maxAttempts)
	}
	return !strings.HasPrefix(l.text, "millrace/") && (j.behaviour == poisons || l.deliveries >= int64(least))
}

// poisoned reports whether an envelope is marked as poison.
func poisoned(text string) bool {
	head, _, _ := strings.Cut(text, "\n")
	return strings.Contains(head, "px=")
}

// sent returns the job that was sent with the text.
func (w *world) sent(text string) jobPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[w.texts[text]]
}

// hangsUntil returns until when a run of the message hangs.
func (w *world) hangsUntil(id queue.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hangs[id]
}

// allRead reports whether all of the workers handle such jobs.
func allRead(by []*process, j jobPlan) bool {
	return !slices.ContainsFunc(by, func(p *process) bool { return !p.plan.reads(j) })
}

// remaining counts the messages that the workers should handle, and calls show for each. Messages
// of a newer release, or of a kind that one of the workers does not know, are excluded, and also
// messages that are kept as poison or until they expire.
func (w *world) remaining(by []*process, show func(queue.ID, leftover)) (n int) {
	keeps := false
	for _, p := range by {
		keeps = keeps || p.plan.policy.keep
	}
	for id, l := range w.left {
		if gone := l.expires != 0 && l.expires <= w.now(); gone || keeps && (l.kept || l.expires != 0) || !allRead(by, l.job) {
			continue
		}
		n++
		if show != nil {
			show(id, l)
		}
	}
	return n
}
