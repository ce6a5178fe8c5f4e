package simulation

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/beacon"
)

// reportInterval is how often workers report while something changes.
const reportInterval = 5 * time.Second

// reportStale is after how long without a report a viewer does not believe the last one: three and a half times the longest
// wait between two, which is six intervals. After so long every worker has reported again, too.
const reportStale = 6 * reportInterval * 7 / 2

// beacons is the control queue of a world whose workers report. It has an engine of its own, so that the
// reports change nothing in that of the jobs, such as the ids of messages.
type beacons struct {
	control queue.Queue
}

// drawBeacons draws whether the workers report.
func (p *plan) drawBeacons() { p.beacons = p.dice.chance(1.0/8, "beacons") }

// newBeacons returns the control queue, or nil if nobody reports. Members of a pool do not: the ledger takes Run's return, which the
// last report delays, for the instant in which the slots of abandoned handlers are free.
func (p *plan) newBeacons() *beacons {
	if !p.beacons || p.pool.on() {
		return nil
	}
	engine := must(localqueue.New(&localqueue.Options{Seed: uint64(p.dice) + 1}))
	control := engine.Queue(queue.Name{Account: jobs.Account, Queue: "control"})
	if err := control.Create(context.Background(), nil); err != nil {
		panic(err)
	}
	return &beacons{control: control}
}

// report returns where a worker reports, over a network of its own that is as bad as the other.
func (p *process) report() listener.BeaconOptions {
	b := p.world.beacons
	if b == nil {
		return listener.BeaconOptions{}
	}
	faults := *p.world.plan.since(p.birth, p.plan.faults)
	faults.DieAfter, faults.Record, faults.Missing = 0, false, faultqueue.Window{}
	faults.Faults = maps.Clone(faults.Faults)
	for op, r := range faults.Faults {
		r.Death = 0 // the network of the jobs decides about life
		faults.Faults[op] = r
	}
	p.reports = must(faultqueue.New(b.control, &faults))
	return listener.BeaconOptions{Queue: p.world.breakage.report(&reporting{p.reports, p}), Interval: reportInterval, Instance: p.plan.name}
}

// reporting is the control queue of a process, which sends nothing when it is dead.
type reporting struct {
	queue.Queue
	process *process
}

func (r *reporting) check() error {
	if r.process.isDead() {
		return &queue.Error{Op: "report", Queue: r.Name(), Kind: queue.ErrUnavailable}
	}
	return nil
}

func (r *reporting) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if err := r.check(); err != nil {
		return queue.Message{}, err
	}
	return r.Queue.Enqueue(ctx, r.noted(text), o)
}

func (r *reporting) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	if err := r.check(); err != nil {
		return l, err
	}
	return r.Queue.Update(ctx, l, r.noted(text), visibility)
}

// randomRun is the random id of a run in the text of a report.
var randomRun = regexp.MustCompile(`"run":"[0-9a-f]{16}"`)

// used matches what the real process uses, in the text of a report.
var used = regexp.MustCompile(`"(cpu|memory|memory_limit)":[0-9.e-]+,`)

// noted records a report and returns its text with the name of the process as the id of the run: a
// process runs once. The random id, and what the real process uses, would make every seed replay differently,
// because the fault queue draws the fault and the duration of an enqueue by its text.
func (r *reporting) noted(text string) string {
	text = used.ReplaceAllString(text, "")
	_, figures, _ := strings.Cut(text, `"phase":`)
	r.process.note(entry{kind: reports, text: figures})
	return randomRun.ReplaceAllString(text, fmt.Sprintf("%q:%q", "run", r.process.plan.name))
}

func (r *reporting) Delete(ctx context.Context, l queue.Lease) error {
	if err := r.check(); err != nil {
		return err
	}
	return r.Queue.Delete(ctx, l)
}

// looks is how often a viewer looks at most until it sees the living workers and them alone: their reports may fail many times in
// a row.
const looks = 20

// checkView checks that what a viewer sees becomes the living workers, and them alone.
func (w *world) checkView(alive []*process) {
	if w.beacons == nil {
		return
	}
	v, err := beacon.NewViewer(w.beacons.control)
	if err != nil {
		w.addViolation("view: %v", err)
		return
	}
	look := func() beacon.View {
		view, err := v.View(context.Background())
		if err != nil {
			w.addViolation("view: %v", err)
		}
		return view
	}
	look() // of a report that it has not seen change a viewer cannot say whether it is kept up to date
	var wrong string
	for range looks {
		time.Sleep(reportStale + reportInterval)
		view := look()
		wrong = unlike(view, alive)
		if wrong == "" || view.Full { // messages that their instances could not delete hide others
			return
		}
	}
	w.addViolation("%s", wrong)
}

// unlike returns in what a view differs from the living workers, or "".
func unlike(view beacon.View, alive []*process) string {
	seen := make(map[string]bool)
	for _, r := range view.Reports {
		seen[r.Instance] = seen[r.Instance] || r.Phase == "running"
	}
	for _, p := range alive {
		if !seen[p.plan.name] {
			return fmt.Sprintf("%s lives, and a viewer does not see it: %+v", p.plan.name, view)
		}
		delete(seen, p.plan.name)
	}
	for name, running := range seen {
		if running {
			return fmt.Sprintf("%s does not live, and a viewer sees it: %+v", name, view)
		}
	}
	return ""
}
