package beacon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// The phases that viewers know.
const (
	running = "running"
	stopped = "stopped"
)

// Report is what one listener of one instance says of itself. Its JSON form is the text of the message: see the package's
// documentation. It may be copied.
type Report struct {
	// Instance identifies the instance among all.
	Instance string `json:"instance"`

	// Queue is where it takes jobs from.
	Queue queue.Name `json:"queue"`

	// Run identifies this run of the listener: the counts start over with the next one.
	Run string `json:"run"`

	// Sequence grows by one with each report of a run, from 1.
	Sequence int64 `json:"sequence"`

	// At is when the report was made, by the clock of the instance. It is for people: clocks differ.
	At time.Time `json:"at"`

	// Up is how long the listener has run.
	Up time.Duration `json:"up"`

	// Put is what Up was when the message was put into the control queue, at the time that the service has as the
	// message's Inserted.
	Put time.Duration `json:"put"`

	// Next is when the next report follows, counted from this one. Zero in the last one.
	Next time.Duration `json:"next"`

	// Phase is the phase of the listener's life: "running", "draining" or "stopped".
	Phase string `json:"phase"`

	// Paused reports that the listener fetches nothing.
	Paused bool `json:"paused"`

	// Shared reports that other listeners of the instance use the slots too: see package slots.
	Shared bool `json:"shared,omitempty"`

	// Received is how many messages it has received since its start.
	Received int64 `json:"received"`

	// Ended is how many messages it has taken off the queue since its start: deleted or moved to the poison queue.
	Ended int64 `json:"ended"`

	// Delayed is how many messages it has given back that are not due yet, and poison that it keeps hidden.
	Delayed int64 `json:"delayed"`

	// Load is its load. Depth is what it has read last, zero if it has read none.
	Load scaling.Load `json:"load"`

	// CPU is the share of its processor time that the process has used since the report before, from 0 to 1: of GOMAXPROCS
	// processors, or of the quota of its control group if that is less. Unknown in the first report of a run, and where the
	// system does not tell.
	CPU scaling.Optional[float64] `json:"cpu,omitzero"`

	// Memory is how many bytes of memory the process uses. On Linux that is its resident memory, elsewhere what the Go
	// runtime uses.
	Memory scaling.Optional[int64] `json:"memory,omitzero"`

	// MemoryLimit is how many bytes it may use: the limit of its control group, such as that of a container. Unknown if
	// there is none.
	MemoryLimit scaling.Optional[int64] `json:"memory_limit,omitzero"`
}

const version = 1

// fields are those of a report, without its methods.
type fields Report

// message is the JSON form of a report: durations are texts.
type message struct {
	Beacon int `json:"beacon"` // version
	fields
	Up   duration `json:"up"`
	Put  duration `json:"put"`
	Next duration `json:"next"`
}

// duration is a duration whose JSON form is a text such as "1m30s".
type duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// MarshalJSON returns the text of a message with this report.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(message{Beacon: version, fields: fields(r), Up: duration(r.Up), Put: duration(r.Put), Next: duration(r.Next)})
}

// UnmarshalJSON parses what [Report.MarshalJSON] returns. A report that no instance can have made is an error.
func (r *Report) UnmarshalJSON(text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("beacon: %w", err)
	}
	if m.Beacon != version {
		return fmt.Errorf("beacon: the message is no report of version %d", version)
	}
	report := Report(m.fields)
	report.Up, report.Put, report.Next = time.Duration(m.Up), time.Duration(m.Put), time.Duration(m.Next)
	if err := report.check(); err != nil {
		return fmt.Errorf("beacon: %w", err)
	}
	*r = report
	return nil
}

// The largest figures that a report may have. What is more is a mistake or a lie, and one report
// changes the number of instances of a pool.
const (
	maxCount    = 1 << 53            // of messages: sums of them do not overflow
	maxSlots    = 1 << 16            // of handlers of one instance
	maxRate     = 1e5                // of messages a second: an account of the service has 20,000
	maxHandling = 7 * 24 * time.Hour // the longest lease of the service
	maxUp       = 100 * 365 * 24 * time.Hour
)

// limit lowers figures to the largest that viewers believe: an instance with more is seen too.
func (r *Report) limit() {
	l := &r.Load
	for _, n := range []*int{&l.Loops, &l.Running, &l.Settling, &l.Slots, &l.BatchSize} {
		*n = min(*n, maxSlots)
	}
	for _, rate := range []*scaling.Optional[float64]{&l.Arrival, &l.Intake, &l.Service} {
		*rate = atMost(*rate, maxRate)
	}
	l.Handling = atMost(l.Handling, maxHandling)
	r.MemoryLimit = atMost(r.MemoryLimit, maxCount)
}

func atMost[T cmp.Ordered](figure scaling.Optional[T], most T) scaling.Optional[T] {
	if value, known := figure.Get(); known {
		return scaling.Known(min(value, most))
	}
	return figure
}

// check returns an error for a report that no instance can have made.
func (r *Report) check() error {
	if err := checkInstance(r.Instance); err != nil {
		return err
	}
	switch {
	case r.Queue.Queue == "":
		return errors.New("the report does not name its queue")
	case len(r.Run) > maxName:
		return fmt.Errorf("the run has %d bytes, at most %d are allowed", len(r.Run), maxName)
	case r.Sequence < 1:
		return fmt.Errorf("the sequence %d is less than 1", r.Sequence)
	case r.Next < 0 || r.Next > MaxInterval, r.Next == 0 && r.Phase != stopped:
		return fmt.Errorf("the next report in %v is outside 0…%v", r.Next, MaxInterval)
	case r.Put < 0 || r.Up < r.Put || r.Up > maxUp:
		return fmt.Errorf("the message was put after %v of %v", r.Put, r.Up)
	case !(r.CPU.Or(0) >= 0 && r.CPU.Or(0) <= 1):
		return fmt.Errorf("the share %v of the processor time is outside 0…1", r.CPU.Or(0))
	case r.Memory.Or(0) < 0 || r.Memory.Or(0) > maxCount, r.MemoryLimit.Or(1) < 1 || r.MemoryLimit.Or(1) > maxCount:
		return fmt.Errorf("the memory %d of %d bytes is outside 0…%d", r.Memory.Or(0), r.MemoryLimit.Or(0), int64(maxCount))
	}
	l := r.Load
	for _, n := range []int64{r.Received, r.Ended, r.Delayed, l.Depth} {
		if n < 0 || n > maxCount {
			return fmt.Errorf("the count %d is outside 0…%d", n, int64(maxCount))
		}
	}
	for _, n := range []int{l.Loops, l.Running, l.Settling, l.Slots, l.BatchSize} {
		if n < 0 || n > maxSlots {
			return fmt.Errorf("the number %d of handlers, loops or messages at once is outside 0…%d", n, maxSlots)
		}
	}
	for _, rate := range []float64{l.Arrival.Or(0), l.Intake.Or(0), l.Service.Or(0)} {
		if rate < 0 || rate > maxRate {
			return fmt.Errorf("the rate %v is outside 0…%v", rate, maxRate)
		}
	}
	if took := l.Handling.Or(0); took < 0 || took > maxHandling {
		return fmt.Errorf("the handling time is %v", took)
	}
	return nil
}

// patience is after how many times Next without another report a report is stale: two may fail in
// a row.
const patience = 3

// forgetAfter is how long a viewer remembers a run whose messages it does not see any more.
const forgetAfter = time.Hour

// maxRemembered bounds how many runs a viewer remembers.
const maxRemembered = 4096

// Viewer reads the reports in a control queue, and remembers which of them are still kept up to date. Make one with
// [NewViewer]. It is safe for concurrent use.
type Viewer struct {
	control queue.Queue

	mu      sync.Mutex
	runs    map[identity]sighting // guarded by mu
	deepest int                   // guarded by mu; the last level with reports
	looked  time.Time             // guarded by mu; when it last looked beyond that
}

// lookAgain is how often a viewer looks beyond the control queue without a reason: reports may be left of a fleet that was larger.
const lookAgain = time.Minute

// View are the reports that a [Viewer] has read.
type View struct {
	// At is when the service had answered, by the viewer's clock.
	At time.Time

	// Reports are the newest reports of the listeners that still report, in order of Instance and Queue. A last
	// report, whose Phase is "stopped", is among them for as long as its message lives.
	Reports []Report

	// Full reports that a queue showed as many messages as the service shows: there may be more instances.
	Full bool

	// Stale is how many reports were left out because no newer one followed in time, Ignored how many messages because they
	// are no reports, or of another version.
	Stale, Ignored int

	ended map[identity]time.Duration // how long before At, by the service's clock, runs made their last report
}

// identity is what distinguishes runs of listeners.
type identity struct {
	instance string
	queue    queue.Name
	run      string
}

// sighting is when the newest report of a run was first seen.
type sighting struct {
	sequence int64
	since    time.Time // when that report was first seen
	shown    time.Time // when a message of the run was last seen
	stale    bool      // it was stale when it was first seen
}

// sight is one report with the service's time at which it was made.
type sight struct {
	Report
	made time.Time
}

// NewViewer returns a viewer of a control queue. It sends nothing. It refuses a nil queue.
func NewViewer(control queue.Queue) (*Viewer, error) {
	if hook.IsNil(control) {
		return nil, errors.New("view reports: the control queue is nil: pass the queue in which instances report")
	}
	return &Viewer{control: control, runs: make(map[identity]sighting)}, nil
}

// View reads the reports: in one request for up to 25 instances and one more a minute, in 64 for up to 1,000. A report is
// stale when three times its Next have passed, by the viewer's monotonic clock, since the viewer first saw it. At the
// first look at a run only the service's time is known: the report is stale if another one in the view was made so much later.
//
// While a queue shows more than 16 messages, View deletes the stale reports among them, up to 32 each time, if it may dequeue and
// delete. An instance that is alive after all puts another.
func (v *Viewer) View(ctx context.Context) (View, error) {
	ctx = request.WithCause(ctx, request.CauseBeacon)
	queues, err := v.look(ctx)
	if err != nil {
		return View{}, fmt.Errorf("beacon: read the reports in %v: %w", v.control.Name(), err)
	}
	view := View{At: time.Now(), ended: make(map[identity]time.Duration)}
	var messages []queue.Message
	for _, one := range queues {
		view.Full = view.Full || len(one.shown) >= queue.MaxBatch
		messages = append(messages, one.shown...)
	}
	sights, ignored := newest(messages, view.At)
	view.Ignored = ignored
	live := make(map[identity]sight)
	for _, one := range v.note(sights, view.At, &view.Stale) {
		key := identity{instance: one.Instance, queue: one.Queue}
		if one.Phase == stopped { // it adds to what a next run reports
			key.run = one.Run
			view.ended[key] = max(view.At.Sub(one.made), 0)
		}
		// A run that was killed and the next one of the same instance may both be in the queue.
		if other, found := live[key]; !found || other.made.Before(one.made) {
			live[key] = one
		}
	}
	for _, one := range live {
		view.Reports = append(view.Reports, one.Report)
	}
	slices.SortFunc(view.Reports, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Queue.String(), b.Queue.String()))
	})
	v.clean(ctx, queues)
	return view, nil
}

// looked is a queue with the messages that it shows.
type looked struct {
	queue queue.Queue
	shown []queue.Message
}

// look returns the messages that each queue shows.
func (v *Viewer) look(ctx context.Context) (queues []looked, err error) {
	now := time.Now()
	v.mu.Lock()
	deepest, everywhere := v.deepest, now.Sub(v.looked) >= lookAgain
	v.mu.Unlock()
	used, crowded := 0, true
	for level := 0; level < levels && (crowded || level <= deepest || everywhere); level++ {
		first := firstOf(level)
		one, err := v.peek(ctx, first)
		if level > 0 && errors.Is(err, queue.ErrQueueMissing) {
			break
		}
		if err != nil {
			return nil, err
		}
		others, err := v.peekAll(ctx, first+1, firstOf(level+1))
		if err != nil {
			return nil, err
		}
		crowded = false
		for _, one := range append(others, one) {
			queues = append(queues, one)
			crowded = crowded || len(one.shown) > room/2
			if len(one.shown) > 0 {
				used = level
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deepest = used
	if everywhere {
		v.looked = now
	}
	return queues, nil
}

func (v *Viewer) peek(ctx context.Context, n int) (looked, error) {
	q := nth(v.control, n)
	shown, err := q.Peek(ctx, queue.MaxBatch)
	return looked{q, shown}, err
}

// peekAll peeks the queues first…end-1, eight at a time. A missing one is empty.
func (v *Viewer) peekAll(ctx context.Context, first, end int) ([]looked, error) {
	all, errs := make([]looked, end-first), make([]error, end-first)
	var work sync.WaitGroup
	for start := range min(8, len(all)) {
		work.Go(func() {
			for i := start; i < len(all); i += 8 {
				if all[i], errs[i] = v.peek(ctx, first+i); errors.Is(errs[i], queue.ErrQueueMissing) {
					errs[i] = nil
				}
			}
		})
	}
	work.Wait()
	return all, errors.Join(errs...)
}

// clean deletes the stale reports in the fullest queue, if it shows more than half a peek.
func (v *Viewer) clean(ctx context.Context, queues []looked) {
	var fullest looked
	for _, one := range queues {
		if len(one.shown) > max(len(fullest.shown), queue.MaxBatch/2) && slices.ContainsFunc(one.shown, v.dead) {
			fullest = one
		}
	}
	if fullest.queue != nil {
		sweep(ctx, fullest.queue, fullest.shown, v.dead)
	}
}

// dead reports whether a message is a stale report, or an older one of its run.
func (v *Viewer) dead(m queue.Message) bool {
	var r Report
	if json.Unmarshal([]byte(m.Text), &r) != nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known, found := v.runs[identity{r.Instance, r.Queue, r.Run}]
	return found && known.outdated(r, time.Now())
}

// newest returns the newest report of each run. None counts as made later than now, or than the newest message if the clock of
// the service is ahead: it would make all others look old.
func newest(messages []queue.Message, now time.Time) (sights map[identity]sight, ignored int) {
	for _, m := range messages {
		if m.Inserted.After(now) {
			now = m.Inserted
		}
	}
	sights = make(map[identity]sight)
	for _, m := range messages {
		var r Report
		if json.Unmarshal([]byte(m.Text), &r) != nil {
			ignored++
			continue
		}
		made := m.Inserted.Add(r.Up - r.Put)
		if made.After(now) {
			made = now
		}
		key := identity{r.Instance, r.Queue, r.Run}
		if other, found := sights[key]; !found || other.Sequence < r.Sequence {
			sights[key] = sight{Report: r, made: made}
		}
	}
	return sights, ignored
}

// note remembers what was seen, and returns what is not stale.
func (v *Viewer) note(sights map[identity]sight, now time.Time, stale *int) (live []sight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var latest time.Time
	for _, one := range sights {
		if one.made.After(latest) {
			latest = one.made
		}
	}
	for key, one := range sights {
		known, found := v.runs[key]
		switch {
		case !found:
			known = sighting{sequence: one.Sequence, since: now, stale: latest.Sub(one.made) > lifetime(one.Report)}
		case one.Sequence > known.sequence:
			known = sighting{sequence: one.Sequence, since: now}
		}
		known.shown = now
		v.runs[key] = known
		if known.outdated(one.Report, now) {
			*stale++
			continue
		}
		live = append(live, one)
	}
	for key, known := range v.runs { // not seen for long, or too many
		if now.Sub(known.shown) > forgetAfter || len(v.runs) > maxRemembered {
			delete(v.runs, key)
		}
	}
	return live
}

// outdated reports whether a report is stale. One with an earlier Sequence is a message that its instance could not delete.
func (s *sighting) outdated(r Report, now time.Time) bool {
	return s.stale || r.Sequence < s.sequence || now.Sub(s.since) > lifetime(r)
}

// lifetime returns for how long a report is believed.
func lifetime(r Report) time.Duration {
	if r.Phase == stopped { // its message goes by itself
		return MaxInterval
	}
	return patience * r.Next
}

// Fleet adds up what the instances of one pool report: those that take jobs from the same queues. It remembers the counts of
// each run between two measurements. Make one with [NewFleet]. It is not safe for concurrent use.
type Fleet struct {
	_ [0]sync.Mutex // go vet reports copies

	queues   []queue.Name
	runs     map[identity]progress
	measured time.Time // when Measure was last called; zero before the first call
}

// progress is how far a run was at a measurement.
type progress struct {
	sequence int64
	up       time.Duration
	ended    int64
	rate     float64   // messages a second, between its two newest reports
	seen     time.Time // when it last reported
}

// NewFleet returns a fleet of instances that take jobs from these queues. Reports of other queues are ignored. It refuses an
// empty list.
func NewFleet(queues ...queue.Name) (*Fleet, error) {
	if len(queues) == 0 {
		return nil, errors.New("add up reports: there is no queue: pass those that the instances take jobs from")
	}
	return &Fleet{queues: slices.Clone(queues), runs: make(map[identity]progress)}, nil
}

// Measure sets what the reports in the views say of a pool: Ready, Service, Handling, Slots, Running, InWork, Delayed,
// CPU and Memory. Each view is of one control queue, all of them of about the same time. It leaves the other fields alone.
// Where a control queue could not be read, do not call it: then these figures are unknown.
//
//   - Ready counts the instances of which a listener is running and not paused.
//   - Service is the sum of the rates of all runs, each between its two newest reports, by the clock of the instance: neither
//     a restart, which begins a new run, nor a viewer that looks more or less often than instances report, makes it
//     negative or counts a message twice. For a run that is seen for the first time it is its Service. A last report
//     counts only the messages since the last call of Measure: the rate before has covered the earlier ones. In the first
//     call it counts none.
//   - Handling is the mean of the handling times of the runs, weighted by their rates, or of all alike while no run has any.
//   - Slots is the mean over the ready instances. What listeners of one instance share counts once.
//   - InWork are the messages whose handlers run or whose settlements are in progress.
//   - CPU and Memory are means over those ready instances that report them, Memory with its limit. Listeners of one process
//     report the same memory, and CPU of their own intervals: the greatest counts.
//
// When a view is full there may be more instances than it shows: the sums are unknown then, and Slots, Handling, CPU and Memory
// are means over those that are shown. Without any report Ready, Service, Running, InWork and Delayed are zero.
func (f *Fleet) Measure(s *scaling.Sample, views ...View) {
	t := f.total(views)
	s.Slots, s.Handling = scaling.Optional[float64]{}, scaling.Optional[time.Duration]{}
	var cpu, memory []float64
	if len(t.ready) > 0 {
		sum := 0
		for _, one := range t.ready {
			sum += one.own + one.shared
			cpu, memory = append(cpu, one.cpu...), append(memory, one.memory...)
		}
		s.Slots = scaling.Known(float64(sum) / float64(len(t.ready)))
	}
	s.CPU, s.Memory = mean(cpu), mean(memory)
	if t.weight == 0 {
		t.weighted, t.weight = t.plain, t.handlers
	}
	if t.weight > 0 {
		s.Handling = scaling.Known(time.Duration(t.weighted / t.weight * float64(time.Second)))
	}
	s.Ready, s.Service, s.Running, s.InWork, s.Delayed = scaling.Optional[int]{}, scaling.Optional[float64]{}, scaling.Optional[int]{}, scaling.Optional[int64]{}, scaling.Optional[int64]{}
	if t.full {
		return
	}
	s.Ready, s.Running = scaling.Known(len(t.ready)), scaling.Known(t.running)
	s.Service = scaling.Known(t.rate)
	s.InWork, s.Delayed = scaling.Known(t.inWork), scaling.Known(t.delayed)
}

// total is what reports add up to.
type total struct {
	full             bool
	ready            map[string]*member
	running          int
	rate             float64
	inWork, delayed  int64
	weighted, weight float64 // handling times in seconds by rates
	plain, handlers  float64 // the same, all alike
}

// member is what the listeners of a ready instance report together.
type member struct {
	own, shared int       // slots
	cpu, memory []float64 // the share in use; empty if it is unknown
}

// mean returns the mean of figures, unknown if there are none.
func mean(figures []float64) scaling.Optional[float64] {
	sum := 0.0
	for _, one := range figures {
		sum += one
	}
	if len(figures) == 0 {
		return scaling.Optional[float64]{}
	}
	return scaling.Known(sum / float64(len(figures)))
}

// total adds up the reports, and remembers them for the next measurement.
func (f *Fleet) total(views []View) total {
	t := total{ready: make(map[string]*member)}
	counted := make(map[identity]bool)
	now := time.Now()
	since := time.Duration(0)
	if !f.measured.IsZero() {
		since = now.Sub(f.measured)
	}
	f.measured = now
	for _, v := range views {
		t.full = t.full || v.Full
		for _, r := range v.Reports {
			key := identity{r.Instance, r.Queue, r.Run}
			if counted[key] || !slices.Contains(f.queues, r.Queue) {
				continue
			}
			p := f.advance(key, r)
			if r.Phase == stopped {
				p.rate = f.lastRate(key, r, max(since-v.ended[key], 0), since)
			}
			p.seen = now
			counted[key], f.runs[key] = true, p
			t.add(r, p)
		}
	}
	// A run may be missing from a view and come back: it is not new then.
	maps.DeleteFunc(f.runs, func(_ identity, p progress) bool { return now.Sub(p.seen) > forgetAfter })
	return t
}

// advance returns how far a run is by its newest report.
func (f *Fleet) advance(key identity, r Report) progress {
	before, found := f.runs[key]
	if found && before.sequence == r.Sequence {
		return before
	}
	now := progress{sequence: r.Sequence, up: r.Up, ended: r.Ended}
	if service, known := r.Load.Service.Get(); known && !found {
		now.rate = service // it may have run for long
	} else if passed := r.Up - before.up; passed > 0 && r.Ended >= before.ended {
		now.rate = min(float64(r.Ended-before.ended)/passed.Seconds(), maxRate)
	} else { // a program that does not say how long it has run
		now.rate = service
	}
	return now
}

// lastRate returns the rate of a run by its last report: ran is how long it ran since the last measurement, and since how long
// ago that was. Its messages count as spread evenly over the time since the report before. The part of them that is older
// than the last measurement was counted there, at the rate of that report.
func (f *Fleet) lastRate(key identity, r Report, ran, since time.Duration) float64 {
	before := f.runs[key]
	passed, ended := r.Up-before.up, float64(r.Ended-before.ended)
	if before.sequence == r.Sequence || passed <= 0 || ended <= 0 {
		return 0
	}
	ended *= min(ran.Seconds()/passed.Seconds(), 1)
	return min(ended/max(since, defaultInterval).Seconds(), maxRate)
}

func (t *total) add(r Report, p progress) {
	t.delayed += r.Delayed
	t.running += r.Load.Running
	t.inWork += int64(r.Load.Running) + int64(r.Load.Settling)
	t.rate += p.rate
	if took, known := r.Load.Handling.Get(); known {
		t.weighted += took.Seconds() * p.rate
		t.weight += p.rate
		t.plain += took.Seconds()
		t.handlers++
	}
	if r.Phase != running || r.Paused {
		return
	}
	one := t.ready[r.Instance]
	if one == nil {
		one = new(member)
		t.ready[r.Instance] = one
	}
	if share, known := r.CPU.Get(); known {
		one.cpu = []float64{slices.Max(append(one.cpu, share))}
	}
	if limit, known := r.MemoryLimit.Get(); known && r.Memory.IsKnown() {
		one.memory = []float64{slices.Max(append(one.memory, min(float64(r.Memory.Or(0))/float64(limit), 1)))}
	}
	if r.Shared {
		one.shared = max(one.shared, r.Load.Slots)
	} else {
		one.own += r.Load.Slots
	}
}
