package replay

import (
	"math"
	"math/rand/v2"
)

// fleet are the instances: starting, ready, and draining. Times are whole seconds since the beginning.
type fleet struct {
	trace    *Trace
	random   *rand.Rand
	starting map[int]int // when they will be ready → how many
	waiting  int         // sum of starting
	ready    int
	draining map[int]int // when they have ended → how many
	leaving  int         // sum of draining

	changes, reversals int
	up                 bool // the direction of the last change
}

func newFleet(t *Trace, random *rand.Rand) *fleet {
	return &fleet{trace: t, random: random, starting: map[int]int{}, draining: map[int]int{}, ready: t.Initial}
}

// asked returns how many instances there are: what was last asked for.
func (f *fleet) asked() int { return f.ready + f.waiting }

// paid returns how many instances are paid for: from being asked for to the end.
func (f *fleet) paid() int { return f.asked() + f.leaving }

// tick lets those become ready, and those end, whose time has come.
func (f *fleet) tick(now int) {
	if n := f.starting[now]; n > 0 {
		f.ready += n
		f.waiting -= n
		delete(f.starting, now)
	}
	if n := f.draining[now]; n > 0 {
		f.leaving -= n
		delete(f.draining, now)
	}
}

// scale asks for n instances, within 0 and the trace's Max. Surplus ones end: first those that start, the latest first, because they hold no jobs;
// then ready ones, which finish their jobs within so many seconds. It returns how many of the ready ones leave.
func (f *fleet) scale(now, n, finish int) (leave int) {
	n = min(max(n, 0), f.trace.Max)
	if n == f.asked() {
		return 0
	}
	up := n > f.asked()
	if f.changes > 0 && up != f.up {
		f.reversals++
	}
	f.changes++
	f.up = up
	if up {
		f.start(now, n-f.asked())
		return 0
	}
	f.cancel(f.asked() - n)
	if leave = f.asked() - n; leave <= 0 {
		return 0
	}
	f.ready -= leave
	if finish > 0 {
		f.draining[now+finish] += leave
		f.leaving += leave
	}
	return leave
}

// start asks for more instances, each of which takes its own time.
func (f *fleet) start(now, more int) {
	for range more {
		takes := f.trace.Start.Seconds()
		if f.trace.Vary > 0 {
			takes *= 1 + f.trace.Vary*(2*f.random.Float64()-1)
		}
		if takes < 0.5 {
			f.ready++
			continue
		}
		f.starting[now+int(math.Round(takes))]++
		f.waiting++
	}
}

// cancel ends starting instances, at most so many, the latest first.
func (f *fleet) cancel(surplus int) {
	for surplus > 0 && f.waiting > 0 {
		latest := 0
		for at := range f.starting {
			latest = max(latest, at)
		}
		n := min(surplus, f.starting[latest])
		surplus -= n
		f.waiting -= n
		if f.starting[latest] -= n; f.starting[latest] == 0 {
			delete(f.starting, latest)
		}
	}
}
