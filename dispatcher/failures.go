package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/poison"
)

// A failure costs only its source. A source is what messages have in common that fail together: the
// error of their last attempt, or their kind if they have not failed; their key; the store of their
// bodies. A source that has failed minFailures times in a row is limited: a tenth of the slots are
// for it, and what arrives beyond that is given back without an attempt until there is room. One
// success ends that, and so does a handler that has run several times longer than the failures took.
//
// If nearly everything fails, there is nothing else to do for the slots. When as many first attempts
// as there are slots, and at least minFailures, have failed, and for a minute nothing has succeeded,
// the listener slows down. It fetches in rounds, with pauses that grow. Of each batch it tries one
// message that has not failed and one that has, and gives the others back. Attempts do not count
// meanwhile. After the first success a round follows every rampStep and tries twice as many, until all
// slots are used again.
const (
	minFailures = 16
	sourceShare = 10   // a limited source gets one slot in this many
	maxSources  = 1024 // that are remembered

	minHold = time.Second
	maxHold = 10 * time.Minute
	quiet   = 2 * maxHold // a source that nothing is seen of for so long is forgotten

	slowAfter  = time.Minute
	excusedFor = 6 * time.Hour
	firstPause = time.Second
	maxPause   = 15 * time.Second
	rampStep   = 2 * time.Second

	// Several times longer than the failures took.
	patienceFactor = 4
	minPatience    = time.Second
	maxPatience    = 2 * time.Minute

	// A download is cut off when it has taken this long, at first, and no other one has succeeded
	// meanwhile. The limit adapts: a store may be slow.
	minDownload = 10 * time.Second
	maxDownload = 10 * time.Minute
)

// ErrOutage means that a message waits because its source fails: its kind, its key, the error of its
// last attempt, the store of its body, or nearly everything. It is given back without an attempt.
// See [FailingSource].
var ErrOutage = errors.New("what it belongs to keeps failing")

// FailingSource describes what messages have in common that keep failing. They get only some of the
// slots, so that others go on.
type FailingSource struct {
	// Source is "all jobs", "the stored bodies", or names a kind, a key or an error.
	Source string

	// Since is when it was limited.
	Since time.Time

	// Slots is how many handlers it may have at once.
	Slots int

	// Error is the text of its last error, at most 200 characters.
	Error string
}

// String describes the source in a sentence.
func (s FailingSource) String() string {
	return fmt.Sprintf("%s: limited to %d handlers since %s: %s", s.Source, s.Slots, s.Since.UTC().Format(time.RFC3339), s.Error)
}

// sourceName tells sources apart.
type sourceName struct {
	of   sourceType
	name string
}

type sourceType byte

const (
	noSource sourceType = iota
	ofAll
	ofKind
	ofKey
	ofError
	ofBodies
)

func (n sourceName) String() string {
	switch n.of {
	case ofKind:
		return fmt.Sprintf("kind %.60q", n.name)
	case ofKey:
		return fmt.Sprintf("key %.60q", n.name)
	case ofError:
		return "error " + n.name
	case ofBodies:
		return "the stored bodies"
	}
	return "all jobs"
}

// source counts the failures of a source since its last success. Its fields are guarded by
// failures.mu.
type source struct {
	sourceName
	failures int           // in a row
	since    time.Time     // when it was limited; zero if it is not
	seen     time.Time     // its last delivery
	cause    string        // the text of the last failure, shortened
	took     time.Duration // mean of the failures
	running  []time.Time   // when the handlers began that were let in while it is limited
	next     time.Time     // when there is room for one more than those that were given back
}

func (s *source) limited() bool { return s != nil && !s.since.IsZero() }

// outage returns why a message waits.
func (s *source) outage() error {
	return fmt.Errorf("%w: %v; the last error: %s", ErrOutage, s.sourceName, s.cause)
}

func (s *source) failed(now time.Time, took time.Duration, cause string) {
	s.failures++
	s.seen, s.cause = now, cause
	s.took += (took - s.took) / time.Duration(min(s.failures, 8))
}

// patience is how long a handler runs that does not fail like the others.
func (s *source) patience() time.Duration {
	return min(max(patienceFactor*s.took, minPatience), maxPatience)
}

// hold returns how long a message waits for room: until others have had theirs, as if each took a
// second at least, but no longer than the source may well be limited yet. For how long the store of
// bodies is away cannot be known: its messages wait for as long again.
func (s *source) hold(now time.Time, share int, jitter float64) time.Duration {
	wait := now.Sub(s.since)
	if s.of != ofBodies {
		if s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(max(s.took, time.Second) / time.Duration(share))
		if latest := now.Add(min(2*wait, maxHold)); s.next.After(latest) {
			s.next = latest
		}
		wait = s.next.Sub(now)
	}
	return max(time.Duration(float64(min(wait, maxHold))*(1-jitter/4)), minHold)
}

// failures are the sources of a dispatcher, and its pace when everything fails.
type failures struct {
	off       bool // nothing is limited
	kinds     int  // of jobs that the dispatcher handles; at most 1 for a queue of one kind
	onFailing func(s FailingSource, ended bool)
	bare      atomic.Bool // there are messages that cannot be given back without an attempt

	mu      sync.Mutex
	slots   int                    // guarded by mu
	sources map[sourceName]*source // those that failed since they last succeeded; guarded by mu
	swept   time.Time              // when quiet sources were last forgotten; guarded by mu
	changes []func()               // to be told when mu is unlocked; guarded by mu

	all     source         // of all jobs: limited while the listener has slowed down; guarded by mu
	failing time.Time      // since when nothing has succeeded and something has failed; guarded by mu
	size    int            // handlers that a round may try of each lane; 0 if there are no rounds; guarded by mu
	round   time.Time      // when the last round began; guarded by mu
	tried   [lanes]int     // handlers that it has let in; guarded by mu
	trying  time.Time      // since when rounds try without a result; guarded by mu
	failed  bool           // one of them has failed; guarded by mu
	pauses  *retry.Waits   // after rounds that failed; guarded by mu
	until   time.Time      // when the next round may begin; guarded by mu
	changed waiting.Change // until or size; guarded by mu

	downloads  int           // of bodies, under way; guarded by mu
	download   time.Duration // how long one may take; guarded by mu
	downloaded time.Time     // when the last one succeeded; guarded by mu
	lengthened time.Time     // when download was last doubled; guarded by mu
}

// The lanes of a round: a good message is rather among those that have not failed.
const (
	freshLane = iota
	failedLane
	lanes
)

// ticket is what failures remember of a delivery that they let in.
type ticket struct {
	at     time.Time
	places [memberships]*source // limited sources of which it has a place
	round  time.Time            // that tries it; zero if none does
}

// rationed reports whether the delivery was let in as one of few.
func (t ticket) rationed() bool { return !t.round.IsZero() || t.places != [memberships]*source{} }

// newFailures returns failures for so many kinds of jobs. The seed spreads the pauses, so that
// processes in the same outage do not try at the same time.
func newFailures(o *Options, kinds int) *failures {
	return &failures{
		off: o.NoSourceLimits, kinds: kinds, onFailing: o.OnFailing, slots: o.Concurrency, sources: make(map[sourceName]*source),
		all: source{sourceName: sourceName{of: ofAll}}, pauses: retry.NewWaits("failures/"+strconv.FormatUint(o.Seed, 16), firstPause, maxPause), download: minDownload,
	}
}

func (f *failures) resize(slots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots = slots
}

// unlock unlocks mu and tells what has changed.
func (f *failures) unlock() {
	changes := f.changes
	f.changes = nil
	f.mu.Unlock()
	for _, tell := range changes {
		tell()
	}
}

// share returns how many slots a limited source gets. Requires mu.
func (f *failures) share() int { return max(f.slots/sourceShare, 1) }

// slow reports whether the listener has slowed down. Requires mu.
func (f *failures) slow() bool { return f.all.limited() }

// memberships is to how many sources a message may belong. The last is the store of its body, of which
// the result of the handler says nothing.
const memberships = 3

// sources returns what the message belongs to.
func (o *opened) sources() (names [memberships]sourceName) {
	names[0] = sourceName{ofKind, o.head.Kind}
	if o.head.Fingerprint != "" {
		names[0] = sourceName{ofError, o.head.Fingerprint}
	}
	if o.head.Key != "" {
		names[1] = sourceName{ofKey, o.head.Key}
	}
	if o.head.Claim != "" {
		names[memberships-1].of = ofBodies
	}
	return names
}

// fingerprint names the text of an error, and all others that differ from it only in numbers.
func fingerprint(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(naming.Fingerprint(text))) // does not fail
	return fmt.Sprintf("%08x", h.Sum32())
}

// shortened returns the beginning of a text.
func shortened(text string) string { return fmt.Sprintf("%.200s", text) }

// jitter spreads the waits of messages.
func (o *opened) jitter() float64 {
	return waiting.Jitter(string(o.queued.ID), int(o.queued.DequeueCount))
}

// admit lets a message in, or returns how long it should wait, and because of what. It notes whether the
// attempt of the message is excused.
func (f *failures) admit(o *opened) (t ticket, wait time.Duration, because error) {
	now := time.Now()
	f.mu.Lock()
	defer f.unlock()
	t.at = now
	if len(f.sources) == 0 && f.size == 0 {
		return t, 0, nil
	}
	f.update(now)
	o.excused = f.slow() && now.Sub(f.all.since) < excusedFor && o.recordable()
	lane := freshLane
	if o.head.Fingerprint != "" {
		lane = failedLane
	}
	if f.size > 0 && f.tried[lane] >= f.size {
		return t, time.Duration(float64(maxPause) * (1 - o.jitter()/2)), f.all.outage()
	}
	var places [memberships]*source
	for i, name := range o.sources() {
		s := f.sources[name]
		if !s.limited() {
			continue
		}
		s.seen = now
		switch {
		case len(s.running) < f.share():
			places[i] = s
		case name.of != ofBodies && now.Sub(s.running[0]) >= s.patience():
			f.forget(s)
		default:
			return t, s.hold(now, f.share(), o.jitter()), s.outage()
		}
	}
	for _, s := range places {
		if s != nil {
			s.running = append(s.running, now)
		}
	}
	t.places = places
	if f.size > 0 {
		t.round = f.round
		f.tried[lane]++
		if f.trying.IsZero() {
			f.trying = now
		}
	}
	return t, 0, nil
}

// record takes what a delivery says, with the text of its error. That was read before: an error may be
// of the program, and mu is held.
func (f *failures) record(o *opened, t ticket, says health, cause string) {
	now := time.Now()
	f.mu.Lock()
	defer f.unlock()
	for _, s := range t.places {
		if s != nil {
			if i := slices.Index(s.running, t.at); i >= 0 {
				s.running = slices.Delete(s.running, i, i+1)
			}
		}
	}
	tried := f.size > 0 && !t.round.IsZero()
	if tried {
		f.trying = time.Time{}
	}
	tried = tried && t.round.Equal(f.round) && !f.failed // in this round, as the first
	switch took := now.Sub(t.at); {
	case f.off:
	case says == healthy:
		names := o.sources()
		for _, name := range names[:memberships-1] {
			f.forget(f.sources[name])
		}
		f.succeeded(now)
	case says == cutOff:
		f.fail(sourceName{of: ofBodies}, now, took, shortened(cause))
	case says == unhealthy:
		f.failAll(o, now, took, cause)
		if tried {
			f.failed, f.until = true, now.Add(f.pauses.Next())
			f.changed.Announce()
		}
	case tried && f.slow(): // nothing was learned
		f.until = now
		f.changed.Announce()
	}
}

// failAll counts the failure of a handler for everything that the message belongs to. Requires mu.
func (f *failures) failAll(o *opened, now time.Time, took time.Duration, cause string) {
	names := o.sources()
	last := sourceName{ofError, fingerprint(cause)}
	cause = shortened(cause)
	for _, name := range names[:memberships-1] {
		if name.of != noSource && name != last {
			f.fail(name, now, took, cause)
		}
	}
	f.fail(last, now, took, cause)
	if f.failing.IsZero() {
		f.failing = now
	}
	if o.attempt() == 1 || f.size > 0 { // many bad messages on their way to the poison queue are not everything
		f.all.failed(now, took, cause)
	}
}

// fail counts a failure of a source. Requires mu.
func (f *failures) fail(name sourceName, now time.Time, took time.Duration, cause string) {
	s := f.sources[name]
	if s == nil {
		f.makeRoom()
		s = &source{sourceName: name}
		f.sources[name] = s
	}
	s.failed(now, took, cause)
	if s.failures >= minFailures && !s.limited() && (name.of != ofKind || f.kinds > 1) {
		s.since = now
		f.tell(s, false)
	}
}

// makeRoom forgets the source that has failed least in a row, if there are too many. Requires mu.
func (f *failures) makeRoom() {
	if len(f.sources) < maxSources {
		return
	}
	f.forget(slices.MinFunc(slices.Collect(maps.Values(f.sources)), func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.failures, b.failures), a.seen.Compare(b.seen))
	}))
}

// forget forgets the failures of a source, which may be nil. Requires mu.
func (f *failures) forget(s *source) {
	if s == nil {
		return
	}
	delete(f.sources, s.sourceName)
	if s.limited() {
		f.tell(s, true)
	}
}

// tell tells the hook of a change. Requires mu.
func (f *failures) tell(s *source, ended bool) {
	if f.onFailing != nil {
		described := f.describe(s)
		f.changes = append(f.changes, func() { f.onFailing(described, ended) })
	}
}

func (f *failures) describe(s *source) FailingSource {
	slots := f.share()
	if s.of == ofAll {
		slots = 1 // the size of a round
	}
	return FailingSource{Source: s.String(), Since: s.since, Slots: slots, Error: s.cause}
}

// limited returns the limited sources, the oldest first.
func (f *failures) limited() (all []FailingSource) {
	f.mu.Lock()
	defer f.unlock()
	f.update(time.Now())
	if f.slow() {
		all = append(all, f.describe(&f.all))
	}
	for _, s := range f.sources {
		if s.limited() {
			all = append(all, f.describe(s))
		}
	}
	slices.SortFunc(all, func(a, b FailingSource) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Source, b.Source))
	})
	return all
}

// update does what is due by the clock. Requires mu.
func (f *failures) update(now time.Time) {
	if !f.off && !f.slow() && f.all.failures >= max(minFailures, f.slots) && !f.failing.IsZero() && now.Sub(f.failing) >= slowAfter {
		f.all.since, f.size, f.until = f.failing.Add(slowAfter), 1, now
		f.trying, f.failed = time.Time{}, false
		f.tell(&f.all, false)
		f.changed.Announce()
	}
	if now.Sub(f.swept) < time.Minute {
		return
	}
	f.swept = now
	if f.all.failures > 0 && now.Sub(f.all.seen) > quiet {
		f.all.failures = 0
		f.succeeded(now)
	}
	for _, s := range f.sources {
		if now.Sub(s.seen) > quiet {
			f.forget(s)
		}
	}
}

// succeeded notes that something works: the listener is not slow any more, and the next round may
// begin. Requires mu.
func (f *failures) succeeded(now time.Time) {
	f.all.failures /= 2 // a success among a thousand failures was a late one
	f.failing = time.Time{}
	if !f.slow() {
		return
	}
	f.tell(&f.all, true)
	f.all.since = time.Time{}
	f.pauses.Reset()
	f.trying, f.failed, f.until = time.Time{}, false, now
	f.changed.Announce()
}

// await blocks until messages may be fetched. In a round it returns how many slots that may take,
// and the caller calls begin when it has some. It returns false when ctx ended first.
func (f *failures) await(ctx context.Context, batch int) (round int, ok bool) {
	for {
		now := time.Now()
		f.mu.Lock()
		f.update(now)
		due := f.size > 0 && !now.Before(f.until)
		if due && f.slow() && !f.trying.IsZero() && now.Sub(f.trying) >= f.all.patience() { // longer than the failures took
			f.succeeded(now)
		}
		if due && !f.slow() && !f.failed {
			if f.size *= 2; f.size >= f.slots {
				f.size = 0 // all other waiters wake at this instant anyway
			}
		}
		size, wait, changed := f.size, f.until.Sub(now), f.changed.Next()
		f.unlock()
		switch {
		case size == 0:
			return 0, true
		case due && f.bare.Load():
			return min(size, batch), true
		case due:
			return batch, true
		}
		if waiting.ForChange(wait, changed, ctx.Done()); ctx.Err() != nil {
			return 0, false
		}
	}
}

// begin begins a round.
func (f *failures) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round, f.tried = time.Now(), [lanes]int{}
	f.failed, f.until = false, f.round.Add(rampStep)
	if f.slow() {
		f.until = f.round.Add(min(f.all.patience(), maxPause))
	}
}

// foundNothing ends a round without a result: the next one may begin immediately.
func (f *failures) foundNothing() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow() && f.tried == [lanes]int{} {
		f.until = time.Now()
		f.changed.Announce()
	}
}

// paced reports whether messages are fetched in rounds.
func (f *failures) paced() bool {
	f.mu.Lock()
	defer f.unlock()
	f.update(time.Now())
	return f.size > 0
}

// watch cuts a download off when it has taken too long, no other has succeeded meanwhile, and it is in
// the way: others wait because the store is limited, or more slots are taken like this than it would
// get then. The caller calls stop when the download has returned.
func (f *failures) watch(cut func()) (stop func()) {
	begin := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.downloads++
	running := true
	end := func() {
		if running {
			running = false
			f.downloads--
		}
	}
	var timer *time.Timer
	timer = time.AfterFunc(f.download, func() {
		f.mu.Lock()
		inTheWay := f.downloads > f.share() || f.sources[sourceName{of: ofBodies}].limited()
		hangs := running && !f.off && inTheWay && !f.downloaded.After(begin)
		switch {
		case hangs:
			if begin.After(f.lengthened) { // once for all that hang together
				f.download, f.lengthened = min(2*f.download, maxDownload), time.Now()
			}
			end()
		case running:
			timer.Reset(f.download)
		}
		f.mu.Unlock()
		if hangs {
			cut()
		}
	})
	return func() {
		timer.Stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		end()
	}
}

// read notes that a download that began at that time has succeeded.
func (f *failures) read(began time.Time) {
	f.mu.Lock()
	defer f.unlock()
	f.downloaded = time.Now()
	f.download = min(max(patienceFactor*f.downloaded.Sub(began), minDownload), maxDownload)
	f.forget(f.sources[sourceName{of: ofBodies}])
}

// away returns for how long the store of the bodies has been limited, within maxHold.
func (f *failures) away() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sources[sourceName{of: ofBodies}]; s.limited() {
		return min(time.Since(s.since), maxHold)
	}
	return 0
}

// outages is the stage that leaves a message for later while its source is limited and has no room.
// A message that would expire before it comes up again is not held back: it is poison when its
// handler has failed, and not before.
type outages struct{ passive }

func (outages) admit(v *delivery) (dec decision, refused bool) {
	f := v.dispatcher.failures
	if !v.recordable() {
		f.bare.Store(true)
	}
	t, wait, because := f.admit(&v.opened)
	v.admission.ticket = t
	if wait == 0 {
		return decision{}, false
	}
	return v.heldBack(wait, because)
}

// decided notes the result, and the error by which the message is known from now on.
func (outages) decided(v *delivery, dec decision) {
	f := v.dispatcher.failures
	cause := ""
	if dec.health == unhealthy || dec.health == cutOff || dec.outcome == Retried {
		cause = fmt.Sprint(dec.err)
	}
	f.record(&v.opened, v.admission.ticket, dec.health, cause)
	if dec.outcome == Retried && !f.off {
		v.head.Fingerprint = fingerprint(cause)
	}
}

// health says whether a handler's dependencies seem to work, judging by one delivery.
type health int

const (
	unclear   health = iota // its handler did not run, which includes one that was postponed
	healthy                 // the handler works
	unhealthy               // the handler has failed
	cutOff                  // the body could not be read: the store of the claims is away
)

// healthOf returns the health that follows from a decision, once the handler has returned. A
// handler that asks for poison, discard or snooze works, and so does one that succeeded for an item
// of a group. A group in which no item could be decoded says nothing.
func healthOf(dec decision, worked bool) health {
	switch {
	case !dec.called || dec.outcome == Lost || dec.outcome == Returned || dec.reason == poison.ReasonUndecodable && !worked:
		return unclear
	case worked:
		return healthy
	case dec.outcome == Retried, dec.reason == poison.ReasonAttempts, dec.reason == poison.ReasonExpiring:
		return unhealthy
	}
	return healthy
}
