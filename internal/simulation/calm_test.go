package simulation

import (
	"strings"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// rest is how often it is looked whether all is quiet.
const rest = 10*time.Second + 1

// The workers that clear up when all is over: healthy is of the next release, so that
// nothing is too new for it; mover takes away what others kept.
const (
	healthy = "healthy"
	mover   = "mover"
)

// calm is the end of every world: nothing goes wrong any more, and the queue must become
// empty. First those who survived the storm do what they can, with whatever it has made of
// them; then a healthy worker does the rest.
func (w *world) calm() {
	var alive []*process
	for _, p := range w.processes {
		if p.plan.survives && !p.isDead() {
			alive = append(alive, p)
		}
	}
	if len(alive) > 0 {
		w.clear(alive)
		if len(alive) == 1 {
			w.muster(alive[0])
		}
	}
	for _, p := range alive {
		close(p.calm)
	}
	w.surviving.Wait()

	keeps := false
	for _, one := range w.plan.workers {
		keeps = keeps || one.policy.keep
	}
	p := w.heal(healthy, keeps)
	if keeps {
		time.Sleep(150 * time.Minute) // what is kept comes up every hour
	}
	w.dismiss(p)
	if keeps {
		w.dismiss(w.heal(mover, false))
	}
}

// heal starts a worker whose settings are those of the world, and lets it clear up.
func (w *world) heal(name string, keeps bool) *process {
	policy, idle := w.plan.policy, 10*time.Second
	if policy.keep = keeps; keeps { // it will be idle for long
		idle = time.Minute
	}
	p := w.employ(workerPlan{
		name: name, survives: true, ending: stopped, release: 2, policy: policy,
		faults:      faultqueue.Options{Seed: uint64(w.plan.dice), UsualLatency: usual, Record: true},
		concurrency: 16, batch: 16, idleMin: 500 * time.Millisecond, idleMax: idle,
		loops: listener.Loops{Min: 1, Max: 1}, visibility: dispatcher.Fixed(30 * time.Second),
		grace: 10 * time.Minute, settle: 15 * time.Second, mostRetryDelay: 5 * time.Second,
	})
	w.surviving.Go(p.live)
	<-p.born
	time.Sleep(rest)
	w.clear([]*process{p})
	return p
}

func (w *world) dismiss(p *process) {
	close(p.calm)
	w.surviving.Wait()
}

// clear waits until the workers have emptied the queue, and complains if that takes
// longer than it may.
func (w *world) clear(by []*process) {
	w.look()
	begin, d := w.now(), w.deadline(by)
	complain := func(due time.Duration) func(queue.ID, leftover) {
		return func(id queue.ID, l leftover) {
			if due == d.late || !d.hang[id] {
				w.complain("%s has not emptied the queue in %v: message %s of job %d is left, hidden until %v", by[0].plan.name, due-begin, id, l.job.n, l.hidden)
			}
		}
	}
	for w.toDo(by, nil) > 0 && w.now() <= d.late {
		time.Sleep(rest)
		w.look()
		if w.now() > d.soon && w.now()-rest <= d.soon {
			w.toDo(by, complain(d.soon))
		}
	}
	w.toDo(by, complain(d.late))
}

// leftover is a message that is in the queue yet.
type leftover struct {
	job             jobPlan
	text            string
	hidden, expires time.Duration
	newer           bool // an envelope of the next release
	kept            bool // poison that stays, or so it seems
}

// look brings what is left up to date.
func (w *world) look() {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for ; w.seen < len(w.history.entries); w.seen++ {
		e := w.history.entries[w.seen]
		was, there := w.left[e.id]
		switch {
		case e.kind == accepted:
			w.left[e.id] = leftover{job: w.sent(e.text), text: e.text, hidden: e.hidden, expires: e.until, newer: strings.HasPrefix(e.text, nextMark)}
		case e.kind == deleted && e.said == "":
			delete(w.left, e.id)
		case e.kind == dropped:
			clear(w.left)
		case there && e.said == "" && (e.kind == updated || e.kind == delivered):
			was.hidden, was.text, was.kept = e.until, e.text, e.until > e.at+hour || poisoned(e.text)
			w.left[e.id] = was
		}
	}
}

// hour is longer than any delay but that of poison which is kept.
const hour = 50 * time.Minute

// poisoned tells whether an envelope says that it is poison.
func poisoned(text string) bool {
	head, _, _ := strings.Cut(text, "\n")
	return strings.Contains(head, "px=")
}

// sent returns the job of which the text was sent.
func (w *world) sent(text string) jobPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[w.texts[text]]
}

// hangsUntil returns until when a run of the message takes whatever happens.
func (w *world) hangsUntil(id queue.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hangs[id]
}

// toDo counts what is left that the workers can do something about, and shows it. They
// cannot read what is too new for one of them, nor hurry what is kept hidden for an hour,
// or to the end of its life.
func (w *world) toDo(by []*process, show func(queue.ID, leftover)) (n int) {
	old, keeps := false, false
	for _, p := range by {
		old = old || p.plan.release < 2
		keeps = keeps || p.plan.policy.keep
	}
	for id, l := range w.left {
		if gone := l.expires != 0 && l.expires <= w.now(); gone || keeps && (l.kept || l.expires != 0) || old && l.newer {
			continue
		}
		n++
		if show != nil {
			show(id, l)
		}
	}
	return n
}
