package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// kindNames are the kinds of jobs in a world with kinds. Other jobs have no kind.
var kindNames = []string{"invoice", "mail"}

// features are the features of envelopes that the ledger opens.
var features = []envelope.Feature{envelope.Claims, envelope.Kinds, envelope.Groups}

// drawKinds draws the kinds of the jobs, and which of them each worker handles. A worker without
// kinds is of a release that knows none. An outage of all handlers is left to other worlds.
func (p *plan) drawKinds() {
	d := p.dice
	if p.outage.long > 0 || p.claims.outage.long > 0 || p.pairing.on || p.shards.on() || p.adapts() || !d.chance(0.2, "kinds") {
		return
	}
	p.kinds = true
	for i := range p.jobs {
		j := &p.jobs[i]
		if (j.form == enveloped || j.form == newer) && !j.largest && d.chance(0.7, "job "+str(j.n), "of a kind") {
			j.kind = pick(d, kindNames, "job "+str(j.n), "kind")
		}
	}
	for i := range p.workers {
		w := &p.workers[i]
		w.kinds = pick(d, [][]string{nil, kindNames[:1], kindNames[1:], kindNames, kindNames}, w.name, "kinds")
	}
}

// knows reports whether the worker has a handler for the kind of the job. All have one for jobs
// without a kind.
func (w workerPlan) knows(j jobPlan) bool { return j.kind == "" || slices.Contains(w.kinds, j.kind) }

// reads reports whether the worker handles such jobs: it knows their kind, and their release.
func (w workerPlan) reads(j jobPlan) bool {
	return w.knows(j) && (j.form != newer || w.release == 2)
}

// listenTo returns a listener for the kinds of the worker.
func (p *process) listenTo(q queue.Queue, h listener.Handler[job], o *listener.Options[job]) running {
	if len(p.plan.kinds) == 0 {
		return listener.New(q, h, o)
	}
	var all []listener.Kind
	for _, name := range append([]string{""}, p.plan.kinds...) {
		all = append(all, kinds.Kind[job]{Name: name, Codec: o.Codec}.Handle(h, nil))
	}
	return must(listener.NewKinds(q, all, &listener.Options[any]{
		Concurrency: o.Concurrency, Timeout: o.Timeout, RetryDelay: o.RetryDelay, Poison: o.Poison, Grace: o.Grace,
		Wakeups: o.Wakeups, Claims: o.Claims, Slots: o.Slots, Interceptors: o.Interceptors, Beacon: o.Beacon, Seed: o.Seed,
		Observer: o.Observer, OnError: o.OnError, Logger: o.Logger,
		Fetch: o.Fetch, Lease: o.Lease, Wire: listener.WireOptions{AcceptForeign: o.Wire.AcceptForeign},
	}))
}

// maxSourceHold bounds how long a job waits before a run while its source keeps failing: twice until
// its turn, because others may take the places then.
const maxSourceHold = 25 * time.Minute

// sourceHold returns how long a run may wait for room, given how many runs are left: so many failures in
// a row limit their source.
func (w *world) sourceHold(c pace, runs int) time.Duration {
	if runs >= minOutage || (w.plan.kinds || w.plan.sick) && w.mayLookLikeAnOutage(c) {
		return maxSourceHold
	}
	return 0
}
