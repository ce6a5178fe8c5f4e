package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// books are what the history of a world comes to, message by message. They are kept
// from the outside alone: from what the server did and what handlers said. They know
// the promises of docs/design.md and nothing of how they are kept.
type books struct {
	world    *world
	accounts map[queue.ID]*account
	order    []*account
	receipts map[queue.Receipt]*delivery
	staff    map[string]*worker
	acked    []entry
	stays    int // copies in the poison queue at the end
	copies   int // ever made

	complaints []string
	overlaps   map[string]int // messages that ended in several places, by these and the causes
}

// account is one message of the main queue, from its acceptance to its end.
type account struct {
	id         queue.ID
	job        jobPlan
	acceptance entry
	text       string // as the server has it
	newest     queue.Receipt
	deliveries []*delivery
	kept       int64 // delivery after which it was first given back as poison that stays
	settled    int64 // delivery of which it was last recorded what came of it
	failures   int   // runs that failed by themselves
	successes  int   // runs that succeeded
	copies     int   // in the poison queue
	removed    *delivery
	dropped    bool
	remains    bool
}

// delivery is one time that the server handed a message out.
type delivery struct {
	account *account
	who     string
	entry   entry
	head    codec.Head
	text    string // with its start, if that was recorded
	noted   bool   // it was
	began   *entry
	ended   *entry
	copied  bool
	back    bool // given back: an update after the run, or without one
}

// worker is what the books know of a process.
type worker struct {
	*process
	running int
	over    bool          // returned or died
	stopped time.Duration // when it was told to stop; 0 for not yet

	dequeues  []faultqueue.Call
	arrivals  map[time.Duration]faultqueue.Op // what arrived when its caller had given up
	failed    map[queue.ID][]faultqueue.Call  // calls about a message
	badCopies bool                            // whether any enqueue into the poison queue failed or was doubled
}

// askedOf reads what the worker asked of the queue, as it saw it.
func (s *worker) askedOf() {
	s.failed = make(map[queue.ID][]faultqueue.Call)
	s.arrivals = make(map[time.Duration]faultqueue.Op)
	for _, c := range s.wire.Trace() {
		bad := c.Fault != "" || c.Error != ""
		if c.Fault == faultqueue.Arrival {
			s.arrivals[s.birth+c.At] = c.Op
		}
		switch {
		case c.Op == faultqueue.Dequeue:
			s.dequeues = append(s.dequeues, c)
		case c.Op == faultqueue.Enqueue:
			s.badCopies = s.badCopies || bad
		case bad:
			s.failed[c.Message] = append(s.failed[c.Message], c)
		}
	}
}

// audit reads a history and complains about everything that breaks a promise.
func audit(w *world) *books {
	b := &books{
		world: w, accounts: make(map[queue.ID]*account), receipts: make(map[queue.Receipt]*delivery),
		staff: make(map[string]*worker), overlaps: make(map[string]int),
		complaints: slices.Clone(w.complaints),
	}
	for _, p := range w.processes {
		b.staff[p.plan.name] = &worker{process: p}
		b.staff[p.plan.name].askedOf()
	}
	for _, e := range w.history.entries {
		b.read(e)
	}
	for _, a := range b.order {
		b.close(a)
	}
	b.closeProducer()
	for _, p := range w.processes {
		b.closeWorker(b.staff[p.plan.name])
	}
	if b.stays != b.copies {
		b.complain(entry{}, "%d copies were made and %d are in the poison queue", b.copies, b.stays)
	}
	return b
}

func (b *books) complain(e entry, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if e.kind != "" {
		what += "\n\tat " + e.String()
	}
	b.complaints = append(b.complaints, what)
}

// read books one entry.
func (b *books) read(e entry) {
	if s := b.staff[e.who]; s != nil {
		b.onDuty(s, e)
	}
	switch e.kind {
	case accepted:
		b.accept(e)
	case acked:
		b.acked = append(b.acked, e)
	case dropped:
		for _, a := range b.order {
			a.dropped = a.dropped || a.removed == nil && !a.expired(e.at)
		}
	case copied:
		b.copy(e)
	case copyStays:
		b.stays++
	}
	a := b.accounts[e.id]
	switch e.kind {
	case delivered, updated, deleted, began, ended, remains:
		if a == nil {
			b.complain(e, "a message that was never accepted")
			return
		}
	}
	switch e.kind {
	case delivered:
		b.deliver(a, e)
	case updated:
		b.update(a, e)
	case deleted:
		b.delete(a, e)
	case began:
		b.start(a, e)
	case ended:
		b.end(a, e)
	case remains:
		a.remains = true
	}
}

// onDuty checks what is true of a process whatever it does.
func (b *books) onDuty(s *worker, e entry) {
	switch e.kind {
	case died, returned:
		s.over = true
	case stopping:
		s.stopped = e.at
	case ended: // an abandoned handler may end when it likes
	case sampled:
		if e.state.loops > s.plan.loops.Max || e.state.loops < s.plan.loops.Min {
			b.complain(e, "%d loops run, outside %d…%d", e.state.loops, s.plan.loops.Min, s.plan.loops.Max)
		}
		if e.state.running > s.plan.concurrency {
			b.complain(e, "State says that %d handlers run, the concurrency is %d", e.state.running, s.plan.concurrency)
		}
	case polled, delivered, copied, updated, deleted:
		if _, late := s.arrivals[e.at]; late {
			return // of this the worker knows nothing any more
		}
		if e.kind == polled && (e.n > s.plan.batch || e.n+s.running > s.plan.concurrency) {
			b.complain(e, "a dequeue asks for %d with %d handlers running, batch %d and concurrency %d", e.n, s.running, s.plan.batch, s.plan.concurrency)
		}
		fallthrough
	default:
		if s.over {
			b.complain(e, "a worker acts after its end")
		}
	}
}

func (b *books) accept(e entry) {
	n, known := b.world.texts[e.text]
	if !known || b.accounts[e.id] != nil {
		b.complain(e, "nobody sent this, or its id is taken")
		return
	}
	a := &account{id: e.id, job: b.world.plan.jobs[n], acceptance: e, text: e.text}
	b.accounts[e.id] = a
	b.order = append(b.order, a)
}

func (a *account) expired(at time.Duration) bool {
	return a.acceptance.until != 0 && a.acceptance.until <= at
}

// present tells whether the message is in its queue.
func (a *account) present(at time.Duration) bool {
	return a.removed == nil && !a.dropped && !a.expired(at)
}

func (b *books) deliver(a *account, e entry) {
	if !a.present(e.at) {
		b.complain(e, "a message that is not in the queue is delivered")
	}
	if e.text != a.text {
		b.complain(e, "the text is not the one that was written: %q", a.text)
	}
	if want := int64(len(a.deliveries)) + 1; e.count != want {
		b.complain(e, "delivery %d of the message", want)
	}
	d := &delivery{account: a, who: e.who, entry: e, text: e.text}
	d.head, _, _, _ = codec.Open(e.text, codec.Auto)
	a.deliveries = append(a.deliveries, d)
	a.newest = e.receipt
	b.receipts[e.receipt] = d
}

// counted tells whether attempts are counted in the text.
func (d *delivery) counted() bool { return strings.HasPrefix(d.entry.text, "millrace/1") }

// missing is how many deliveries before this one ended in nothing, as far as is recorded.
func (d *delivery) missing() int64 { return d.entry.count - 1 - d.head.Settled }

// lost is how many starts of handlers may have ended their workers, as the worker of this
// delivery can know it: those that it recorded itself did not, unless they have not ended,
// and others may have left theirs out.
func (d *delivery) lost() (n int) {
	for _, o := range d.account.deliveries[d.account.settled : d.entry.count-1] {
		if o.noted && (o.who != d.who || o.began != nil && o.ended == nil) {
			n++
		}
	}
	return min(n, d.head.Starts)
}

// isFirst tells whether its worker was never given the message since the last record, and so
// cannot know more of it than it says.
func (d *delivery) isFirst() bool {
	return !slices.ContainsFunc(d.account.deliveries[d.account.settled:d.entry.count-1], func(o *delivery) bool { return o.who == d.who })
}

// starts tells whether an update with the text records that the handler is about to start.
func (d *delivery) starts(text string) bool {
	head, _, format, err := codec.Open(text, codec.Auto)
	return err == nil && format == codec.Envelope && d.began == nil && head.Starts > 0 && head.Settled == d.head.Settled
}

func (b *books) start(a *account, e entry) {
	s := b.staff[e.who]
	s.running++
	if s.running > s.plan.concurrency {
		b.complain(e, "%d handlers run at once, the concurrency is %d", s.running, s.plan.concurrency)
	}
	var d *delivery
	if i := int(e.count) - 1; i >= 0 && i < len(a.deliveries) && a.deliveries[i].who == e.who {
		d = a.deliveries[i]
	}
	if d == nil {
		b.complain(e, "a handler runs for what was not delivered to its worker")
		return
	}
	if d.began != nil {
		b.complain(e, "one delivery is handled twice")
	}
	d.began = &e
	if a.kept > 0 && e.count > a.kept {
		b.complain(e, "a handler runs for what is poison and kept")
	}
	p := b.world.plan
	attempt := int(e.count)
	if d.counted() {
		attempt = d.head.Attempts + 1
		if d.missing() > 0 && !d.noted {
			b.complain(e, "a handler runs after %d deliveries that ended in nothing, and its start is not recorded", d.missing())
		}
		if n := d.head.Starts; n >= p.maxLost && d.isFirst() {
			b.complain(e, "a handler runs after %d starts that nothing came of, MaxLost is %d", n, p.maxLost)
		}
		if n := a.killed(); n > p.maxLost {
			b.complain(e, "a handler runs after %d that never ended, MaxLost is %d", n, p.maxLost)
		}
	}
	if e.n != attempt {
		b.complain(e, "the handler is told of attempt %d, it is %d", e.n, attempt)
	}
	if attempt > p.maxAttempts {
		b.complain(e, "attempt %d, MaxAttempts is %d", attempt, p.maxAttempts)
	}
}

func (b *books) end(a *account, e entry) {
	b.staff[e.who].running--
	i := int(e.count) - 1
	if i < 0 || i >= len(a.deliveries) || a.deliveries[i].began == nil {
		b.complain(e, "a handler ends that never began")
		return
	}
	a.deliveries[i].ended = &e
	if e.said == didSucceed || strings.HasPrefix(e.said, didSucceed) {
		a.successes++
	}
	if strings.HasPrefix(e.said, didFail) && (!strings.Contains(e.said, "cut off") || strings.Contains(e.said, "handler time-out")) {
		a.failures++
	}
}

// killed counts the runs since the last record that have not ended, but for the newest.
func (a *account) killed() int {
	n := -1
	for _, d := range a.deliveries[a.settled:] {
		if d.began != nil && d.ended == nil {
			n++
		}
	}
	return n
}

// hour is longer than any delay but that of poison which is kept.
const hour = 50 * time.Minute

// said tells whether the run of the delivery has ended like this.
func (d *delivery) said(result string) bool {
	return d.ended != nil && strings.HasPrefix(d.ended.said, result)
}

func (b *books) update(a *account, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.account != a {
		b.complain(e, "an update with a receipt that nobody was given")
		return
	}
	if e.said != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.complain(e, "the server took an update with a receipt that is not the newest, or of a message that is gone")
	}
	a.newest = e.receipt
	b.receipts[e.receipt] = d
	switch running := d.began != nil && d.ended == nil; {
	case d.starts(e.text):
		d.noted, d.text = true, e.text
	case !running:
		// A renewal can arrive after the handler has returned.
		d.back = !d.said(didSucceed) && !d.said(didDiscard)
		// In a foreign message, which is not rewritten, nothing can say so.
		if a.kept == 0 && b.world.plan.keep && e.until > e.at+hour && strings.HasPrefix(e.text, "millrace/1") {
			a.kept = d.entry.count
		}
	case e.text != a.text:
		b.complain(e, "the text changes while the handler runs")
	}
	if e.text != a.text {
		b.record(a, d, e)
	}
	a.text = e.text
}

// record checks what a settlement wrote into the text.
func (b *books) record(a *account, d *delivery, e entry) {
	head, body, format, err := codec.Open(e.text, codec.Auto)
	_, was, _, _ := codec.Open(d.entry.text, codec.Auto)
	if err != nil || format != codec.Envelope || string(body) != string(was) {
		b.complain(e, "the text is not the one before with a record: %q", a.text)
		return
	}
	if !d.counted() && !b.world.plan.adopt {
		b.complain(e, "a foreign message is rewritten")
	}
	before := d.head.Attempts
	if !d.counted() {
		before = int(d.entry.count) - 1
	}
	switch recorded := head.Attempts - before; {
	case recorded == 0 && d.said(didFail) && !strings.Contains(d.ended.said, "cut off") && b.staff[d.who].stopped == 0 && head.Attempts < b.world.plan.maxAttempts && !b.staff[d.who].failedAfter(d, faultqueue.Update):
		b.complain(e, "a failure is not recorded")
	case recorded == 0:
	case b.world.plan.keep && head.Attempts == b.world.plan.maxAttempts && !d.said(didSucceed):
		// All at once, so that what is kept is handled no more.
	case recorded != 1:
		b.complain(e, "%d attempts are recorded after one run", recorded)
	case !d.said(didFail):
		b.complain(e, "a failure is recorded where there was none")
	}
	switch {
	case d.starts(e.text):
		if d.missing() == 0 || head.Starts > d.head.Starts+1 {
			b.complain(e, "%d starts are recorded after %d, with %d deliveries that ended in nothing", head.Starts, d.head.Starts, d.missing())
		}
	case d.counted() && d.began == nil:
		if head.Settled != d.head.Settled+1 || head.Starts > d.head.Starts {
			b.complain(e, "settled is %d with %d starts after a delivery without a run, before it %d with %d", head.Settled, head.Starts, d.head.Settled, d.head.Starts)
		}
	case head.Settled != d.entry.count || head.Starts != 0:
		b.complain(e, "settled is %d with %d starts at delivery %d", head.Settled, head.Starts, d.entry.count)
	default:
		a.settled = d.entry.count
	}
	if head.Attempts > b.world.plan.maxAttempts && head.Attempts > before && d.counted() { // a foreign one brings its deliveries
		b.complain(e, "%d failures are recorded, MaxAttempts is %d", head.Attempts, b.world.plan.maxAttempts)
	}
}

func (b *books) delete(a *account, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.account != a || d.who != e.who {
		b.complain(e, "a delete with a receipt that the worker was not given")
		return
	}
	copied := d.copied || b.world.plan.bare && a.copies > 0 // a bare one does not say which delivery it is of
	if !d.said(didSucceed) && !d.said(didDiscard) && !copied {
		b.complain(e, "a delete without a success, a discard or a copy before it")
	}
	if e.said != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.complain(e, "the server took a delete with a receipt that is not the newest, or of a message that is gone")
	}
	a.removed = d
}

// copy books a message in the poison queue: whose it is, and whether it should be there.
func (b *books) copy(e entry) {
	b.copies++
	d, record := b.origin(e)
	if d == nil {
		b.complain(e, "a copy of what its worker was never given, or not of its text")
		return
	}
	a := d.account
	a.copies++
	d.copied = true
	if d.began != nil && d.ended == nil {
		b.complain(e, "a copy while the handler runs")
	}
	if record.Version == 0 {
		return // bare: it has no reason
	}
	if record.Text != d.text {
		b.complain(e, "the record is not of this delivery")
	}
	p := b.world.plan
	attempt := d.head.Attempts + 1
	if !d.counted() {
		attempt = int(d.entry.count)
	}
	right := false
	switch record.Reason {
	case poison.ReasonAttempts:
		right = d.said(didFail) && attempt >= p.maxAttempts || d.began == nil && attempt > p.maxAttempts
	case poison.ReasonLost:
		right = d.began == nil && d.counted() && d.lost() >= p.maxLost
	case poison.ReasonUndecodable:
		right = d.began == nil && (a.job.form == junk || a.job.form == broken)
	case poison.ReasonRejected:
		right = d.said(didPoison)
	case poison.ReasonExpiring:
		right = a.acceptance.until != 0
	}
	// Poison that could not be moved carries its reason to the next delivery, where no
	// handler may run.
	if d.head.Poison != "" {
		right = d.began == nil && string(record.Reason) == d.head.Poison
	}
	if !right {
		b.complain(e, "the reason %q is not what happened: attempt %d, %d lost", record.Reason, attempt, d.lost())
	}
}

// origin finds the delivery that a copy is of.
func (b *books) origin(e entry) (found *delivery, _ poison.Record) {
	if record, err := poison.ParseRecord(e.text); err == nil {
		a := b.accounts[record.ID]
		i := record.DequeueCount - 1
		if a == nil || i < 0 || i >= int64(len(a.deliveries)) || a.deliveries[i].who != e.who {
			return nil, record
		}
		return a.deliveries[i], record
	}
	// Bare: the text says which message, but not which of its deliveries; rather one
	// that has no copy yet.
	for _, a := range b.order {
		for _, d := range a.deliveries {
			fits := d.who == e.who && d.text == e.text && (d.began == nil || d.ended != nil)
			if fits && (found == nil || found.copied || !d.copied) {
				found = d
			}
		}
	}
	return found, poison.Record{}
}

// close balances one account: the message is somewhere, and where it is in two places,
// or was handled twice, that has a cause.
func (b *books) close(a *account) {
	end := b.world.now()
	if a.present(end) != a.remains {
		b.complain(a.acceptance, "the message remains: %v; by the books: %v", a.remains, a.present(end))
	}
	fates := 0
	for _, fate := range []bool{a.successes > 0, a.copies > 0, a.remains, a.expired(end) && a.removed == nil, a.dropped, a.removed != nil && a.removed.said(didDiscard)} {
		if fate {
			fates++
		}
	}
	if fates == 0 {
		b.complain(a.acceptance, "the message is lost: neither handled to success nor poisoned nor discarded nor queued nor expired nor dropped")
	}
	causes := make(map[string]bool)
	for _, d := range a.deliveries {
		if d == a.removed || d.back && !d.copied {
			continue
		}
		cause := b.why(d)
		if cause == "" {
			b.complain(d.entry, "the delivery ended in nothing, and nothing explains it: its run %v", d.result())
			continue
		}
		causes[cause] = true
	}
	if len(causes) == 0 && b.doubled(a) {
		causes["the copy was made twice"] = true
	}
	ends := a.ends()
	if extra := max(a.successes+a.copies-1, 0); (extra > 0 || len(ends) > 1) && len(causes) == 0 {
		b.complain(a.acceptance, "%s, with %d successes and %d copies, without a cause", strings.Join(ends, " and "), a.successes, a.copies)
	}
	if len(ends) > 1 {
		b.overlaps[strings.Join(ends, " and ")+": "+strings.Join(slices.Sorted(maps.Keys(causes)), ", ")]++
	}
	if b.world.plan.faultless {
		b.closeExactly(a)
	}
}

// ends are where the message ended that was accepted once: more than one is an overlap.
func (a *account) ends() (ends []string) {
	if a.successes > 0 {
		ends = append(ends, "succeeded")
	}
	if a.copies > 0 {
		ends = append(ends, "poisoned")
	}
	if a.remains {
		ends = append(ends, "still queued")
	}
	return ends
}

func (d *delivery) result() string {
	switch {
	case d.began == nil:
		return "never began"
	case d.ended == nil:
		return "never ended"
	}
	return "ended: " + d.ended.said
}

// doubled tells whether a fault may have made a second copy of the message.
func (b *books) doubled(a *account) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return d.copied && b.staff[d.who].badCopies })
}

// why explains a delivery after which the message was neither deleted nor given back.
func (b *books) why(d *delivery) string {
	a, s := d.account, b.staff[d.who]
	later := a.deliveries[d.entry.count:]
	switch {
	case d.began == nil && s.lostAnswer(d.entry.at):
		return "the answer to the dequeue was lost"
	case d.began == nil && s.arrivals[d.entry.at] == faultqueue.Dequeue:
		return "the dequeue arrived when nobody waited for it"
	case d.began == nil && s.doubledDequeue(d.entry.at):
		return "the dequeue was done twice"
	case a.dropped:
		return "the queue was dropped"
	case a.expired(b.world.now()) && a.removed == nil:
		return "the message expired"
	case s.abandoned[a.id] > 0:
		return "the handler was abandoned"
	case s.state.Unsettled > 0 && s.cutShort(d):
		return "the settlement was cut off by the stop"
	case s.failedAfter(d, faultqueue.Delete):
		return "a delete failed"
	case s.failedAfter(d, faultqueue.Update):
		return "an update failed"
	case d.copied && len(later) == 0 && a.removed != nil:
		return "deleted by an earlier delivery"
	case len(later) > 0 && d.ended != nil && later[0].entry.at < d.ended.at:
		return "the lease ended while the handler ran"
	case d.copied && s.badCopies:
		return "the copy was made and its answer lost"
	case s.slowAnswer(d.entry.at): // then nothing is started, or it ends in nothing
		return "the answer to the dequeue took too long"
	case d.said(didFail) && strings.Contains(d.ended.said, "lease expired") && a.acceptance.until != 0:
		return "its life was all but over"
	case d.ended != nil && s.plan.timeout > 0 && d.ended.at-d.began.at > s.plan.timeout:
		return "the handler went on after its time-out"
	case s.diedOver(d):
		return "the worker died"
	}
	return ""
}

// failedAfter tells whether such a call about the message failed after it was delivered.
func (s *worker) failedAfter(d *delivery, op faultqueue.Op) bool {
	return slices.ContainsFunc(s.failed[d.account.id], func(c faultqueue.Call) bool {
		return c.Op == op && s.birth+c.At >= d.entry.at
	})
}

// longestSettlement is how long it may take to copy, to fail with it and to give back, with
// slow calls and all that may be tried again.
const longestSettlement = 2 * time.Minute

// diedOver tells whether the worker died while the delivery was on its way, in its handler
// or being settled.
func (s *worker) diedOver(d *delivery) bool {
	last := d.entry.at
	switch {
	case s.death == 0:
		return false
	case d.ended != nil:
		last = d.ended.at
	case d.began != nil:
		return true
	}
	return s.death-last <= longestSettlement
}

// cutShort tells whether the worker may not have been given the time to settle: it was
// halted, or the handler returned when its patience was over.
func (s *worker) cutShort(d *delivery) bool {
	return s.plan.ending == halted || s.plan.ending == hurried || d.ended != nil && s.stopped > 0 && d.ended.at > s.stopped
}

// lostAnswer tells whether a dequeue that the server answered at the instant never got
// back.
func (s *worker) lostAnswer(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Error != "" })
}

// slowAnswer tells whether one took long.
func (s *worker) slowAnswer(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Fault == faultqueue.Slow })
}

// doubledDequeue tells whether one may have been the first of two that the server did for
// one call, whose answer nobody heard.
func (s *worker) doubledDequeue(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Fault == faultqueue.Duplicate })
}

// dequeued tells whether a dequeue was under way at the instant, and was like this.
func (s *worker) dequeued(at time.Duration, like func(faultqueue.Call) bool) bool {
	return slices.ContainsFunc(s.dequeues, func(c faultqueue.Call) bool {
		return c.At+s.birth <= at && at <= c.At+s.birth+c.Took && like(c)
	})
}

// closeExactly balances an account of a world in which nothing went wrong.
func (b *books) closeExactly(a *account) {
	p := b.world.plan
	if a.successes+a.copies > 1 && !b.outlived(a) {
		b.complain(a.acceptance, "without faults: %d successes and %d copies", a.successes, a.copies)
	}
	mortal := a.acceptance.until != 0
	if n := len(a.deliveries); n > 0 && a.removed == nil && a.expired(b.world.now()) && a.copies == 0 {
		// One that is given back may wait for a slot until it is too late. One whose life
		// ends in a handler's hands is poison, as expiring.
		if last := a.deliveries[n-1]; last.began != nil && !last.back && !last.said(didSucceed) && !a.job.heedless {
			b.complain(a.acceptance, "without faults: the message expired in silence under its handler, whose run %s", last.result())
		}
	}
	counts := a.job.form == enveloped && a.job.manner == never && !mortal && a.successes == 0
	if counts && a.failures != p.maxAttempts && !b.outlived(a) {
		b.complain(a.acceptance, "without faults: %d failed runs, MaxAttempts is %d", a.failures, p.maxAttempts)
	}
}

// outlived tells whether a run of the message went on after its time-out until its
// lease was over, which counts as lost and not as failed.
func (b *books) outlived(a *account) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return !d.back && d != a.removed })
}

// closeProducer checks that what the producer was told is true.
func (b *books) closeProducer() {
	for _, e := range b.acked {
		a := b.accounts[e.id]
		if a == nil || a.job.n != e.n {
			b.complain(e, "the producer was told of an acceptance that never was")
		}
	}
}

// closeWorker checks the counters of a listener against what its queue saw.
func (b *books) closeWorker(s *worker) {
	if s.death > 0 {
		return // nobody is left to read them
	}
	if s.err != nil && len(s.abandoned) == 0 {
		b.complain(entry{}, "%s: Run: %v", s.plan.name, s.err)
	}
	var polls, empty, received int64
	for _, c := range s.dequeues {
		if c.Error == "" && c.Fault != faultqueue.Arrival {
			polls++
			received += int64(c.Count)
			if c.Count == 0 {
				empty++
			}
		}
	}
	st := s.state
	if st.Polls != polls || st.EmptyPolls != empty || st.Received != received {
		b.complain(entry{}, "%s: State says %d polls, %d empty, %d received; the queue says %d, %d, %d",
			s.plan.name, st.Polls, st.EmptyPolls, st.Received, polls, empty, received)
	}
	settled := st.Succeeded + st.Retried + st.Discarded + st.Poisoned + st.Kept + st.Snoozed + st.GivenBack + st.Lost + st.Unsettled
	abandoned := int64(0)
	for _, n := range s.abandoned {
		abandoned += n
	}
	if settled+abandoned != received {
		b.complain(entry{}, "%s: %d messages received, %d deliveries ended, %d abandoned: %+v", s.plan.name, received, settled, abandoned, st)
	}
	if len(s.abandoned) == 0 && (st.Running != 0 || st.Settling != 0) || st.Loops != 0 {
		b.complain(entry{}, "%s: Run has returned and State says %+v", s.plan.name, st)
	}
	if st.LoopsPeak > s.plan.loops.Max || st.LoopsStarted < s.plan.loops.Min {
		b.complain(entry{}, "%s: peak of %d loops, %d started; the bounds are %+v", s.plan.name, st.LoopsPeak, st.LoopsStarted, s.plan.loops)
	}
}
