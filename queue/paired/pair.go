package paired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

const (
	defaultInterval = 10 * time.Second
	defaultProbe    = 30 * time.Second

	// MaxFailoverInterval is the longest failover interval.
	MaxFailoverInterval = time.Hour
)

// Options configure a [Queue]. Nil and the zero value mean the defaults. [New] refuses numbers out of range.
type Options struct {
	// Backlogs is how many backlog queues there are, 1…[MaxBacklogs]. With 1 there is no other one to try
	// when it fails. Syphons must be told of the same number: with fewer, what waits in the other queues stays
	// there. Defaults to [DefaultBacklogs], 10.
	Backlogs int

	// FailoverInterval is how long sends may fail, without one that succeeds, before they go to the backlog
	// queues, at most [MaxFailoverInterval]. It is counted from the start of the oldest request that failed to a
	// later failure: time in which nobody sends fails nothing over. A request may take no longer, but at least 1 s. Below the time-out of a producer, no send of its fails in an
	// outage. Negative means at once, with the first failure that counts. Defaults to 10 s.
	FailoverInterval time.Duration

	// ProbeInterval is the least time between two requests that find out whether the primary queue accepts
	// again. Defaults to 30 s.
	ProbeInterval time.Duration

	// OnFailover is called when sends begin to go to the backlog queues, and OnReturn when they go to the
	// primary queue again. The calls come one at a time, in order, from a goroutine that sends; a send may wait for
	// them. A panic is logged and hurts nothing. Default to none.
	OnFailover, OnReturn func(Outage)

	// Logger gets one line when sends fail over and one when they return. Defaults to [slog.Default].
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	all := *cmp.Or(o, &Options{})
	all.Backlogs = cmp.Or(all.Backlogs, DefaultBacklogs)
	all.FailoverInterval = cmp.Or(all.FailoverInterval, defaultInterval)
	all.ProbeInterval = cmp.Or(all.ProbeInterval, defaultProbe)
	return all
}

func (o *Options) validate() error {
	switch {
	case o.Backlogs < 1 || o.Backlogs > MaxBacklogs:
		return invalid("Backlogs %d is outside 1…%d", o.Backlogs, MaxBacklogs)
	case o.FailoverInterval > MaxFailoverInterval:
		return invalid("FailoverInterval %v is over %v", o.FailoverInterval, MaxFailoverInterval)
	case o.ProbeInterval < 0:
		return invalid("ProbeInterval %v is negative", o.ProbeInterval)
	}
	if err := cmp.Or(units.Wait("FailoverInterval", o.FailoverInterval), units.Wait("ProbeInterval", o.ProbeInterval)); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// pairTimeout bounds one [Queue.Pair] with all its retries.
const pairTimeout = 30 * time.Second

// Pair looks whether the backlog queues are there and creates those that are missing. When it has returned
// nil, messages can be sent. It needs the rights to read the properties of these queues and, if one is
// missing, to create it. Wrong names and credentials are its errors; then no message can be sent.
// Transient errors are retried for up to 30 s.
//
// It marks the backlog queues in their metadata with the account of the primary queue, if it has the right to.
// Queues of one account may share backlog queues; one that is marked with another account is
// [queue.ErrInvalid].
//
// Several processes may pair at once. Pair may be called again: it creates what was deleted since, and a
// failure changes nothing for a queue that was paired.
func (q *Queue) Pair(ctx context.Context) error {
	if err := driver.CheckName(q.Name().Queue); err != nil {
		return driver.Explain(err, "pair", q.Name(), "")
	}
	ctx, cancel := context.WithTimeout(ctx, pairTimeout)
	defer cancel()
	errs := make([]error, len(q.rotation.all))
	var all sync.WaitGroup
	for i, b := range q.rotation.all {
		all.Go(func() { errs[i] = q.verify(ctx, b) })
	}
	all.Wait()
	if err := unverified(errs); err != nil {
		return fmt.Errorf("pair %v: %w", q.Name(), err)
	}
	q.paired.Store(true)
	return nil
}

// unverified returns one error for those of all backlog queues: the first that waiting does not mend, or the
// first.
func unverified(errs []error) (chosen error) {
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		n++
		if chosen == nil || queue.Transient(chosen) && !queue.Transient(err) {
			chosen = err
		}
	}
	if chosen == nil {
		return nil
	}
	return fmt.Errorf("%d of %d backlog queues cannot be used, among them this one: %w", n, len(errs), chosen)
}

// verify looks whether a backlog queue is there and marked, creates it if it is not, and marks it.
func (q *Queue) verify(ctx context.Context, b *backlog) error {
	err := retry.Do(ctx, b.suffix, queue.Transient, func(ctx context.Context) error {
		for created := false; ; created = true {
			q.rotation.request()
			p, err := b.queue.Properties(request.WithCause(ctx, request.CauseMetadata))
			if err == nil {
				return q.mark(ctx, b, p.Metadata)
			}
			if created || !errors.Is(err, queue.ErrQueueMissing) {
				return err
			}
			q.rotation.request()
			err = b.queue.Create(request.WithCause(ctx, request.CauseCreate), map[string]string{markName: q.Name().Account})
			if !errors.Is(err, queue.ErrQueueExists) {
				return err
			} // somebody else pairs, and it has other metadata
		}
	})
	q.rotation.verified(b, err)
	return err
}

// markName is the name in the metadata of a backlog queue of the account to whose queues it belongs. A
// queue of another account would leave its messages to a syphon that cannot bring them home.
const markName = "primaryaccount"

// mark marks a backlog queue with these metadata, and refuses one of another account. The mark is a
// precaution, because every record names the account: without the right to set it there is none.
func (q *Queue) mark(ctx context.Context, b *backlog, metadata map[string]string) error {
	account := q.Name().Account
	for name, value := range metadata {
		switch {
		case !strings.EqualFold(name, markName):
		case value == account:
			return nil
		default:
			return driver.Explain(&queue.Error{
				Kind: queue.ErrInvalid, Detail: fmt.Sprintf("it holds the backlog of queues in the account %s, not in %s", value, account),
				Hint: "give the secondary queue a name that no other account uses",
			}, "pair", b.queue.Name(), "")
		}
	}
	m, can := b.queue.(queue.Manager)
	if !can {
		return nil
	}
	marked := map[string]string{markName: account}
	maps.Copy(marked, metadata)
	q.rotation.request()
	if err := m.SetMetadata(request.WithCause(ctx, request.CauseMetadata), marked); !errors.Is(err, queue.ErrUnauthorized) {
		return err
	}
	return nil
}

// DefaultBacklogs is how many backlog queues there are unless the options say otherwise.
const DefaultBacklogs = 10

// MaxBacklogs is the largest number of backlog queues.
const MaxBacklogs = 100

// backlogSuffix returns the suffix of the backlog queue with this index, such as "-backlog-07".
func backlogSuffix(i int) string { return fmt.Sprintf("-backlog-%02d", i) }

// backlogQueues returns the first n backlog queues of the secondary queue. It sends no request.
func backlogQueues(secondary queue.Queue, n int) []queue.Queue {
	all := make([]queue.Queue, n)
	for i := range all {
		all[i] = secondary.Sibling(backlogSuffix(i))
	}
	return all
}

// record is what a message in a backlog queue says of itself, before the text with which it was sent:
//
//	backlog/2 west/orders 3600⏎text
//
// The text is whole, its head included. The record names no life: the message has it in the backlog
// queue too, so that the service drops it there when it expires. It says no instant either: both what
// is left of the delay and what is left of the life follow from the times that the secondary account
// returns, so that no other clock matters. With an account of Azure, the record is no larger than what
// producers leave free for attempts: what they send always fits.
//
// Version 1 does not name the account.
type record struct {
	primary queue.Name    // its account is empty in version 1
	delay   time.Duration // since the backlog queue accepted it; whole seconds
}

const (
	recordPrefix  = "backlog/"
	recordVersion = "2"
	oldVersion    = "1"
)

// errNewerRecord means that a newer program put the message into the backlog queue, and one such must
// bring it home.
var errNewerRecord = errors.New("a newer program is needed to read it")

func (r record) seal(text string) string {
	return recordPrefix + recordVersion + " " + r.primary.Account + "/" + r.primary.Queue + " " + strconv.FormatInt(driver.Seconds(r.delay), 10) + "\n" + text
}

// openRecord returns the record and the text of a message in a backlog queue.
func openRecord(sealed string) (record, string, error) {
	line, text, found := strings.Cut(sealed, "\n")
	version, isRecord := strings.CutPrefix(line, recordPrefix)
	version, fields, _ := strings.Cut(version, " ")
	name, seconds, _ := strings.Cut(fields, " ")
	account := ""
	switch {
	case !isRecord || !found:
		return record{}, "", fmt.Errorf("the text has no record of a backlog queue, it begins with %.60q", line)
	case version == recordVersion:
		account, name, _ = strings.Cut(name, "/")
	case version != oldVersion:
		return record{}, "", fmt.Errorf("the record has version %.20q: %w", version, errNewerRecord)
	}
	if err := driver.CheckName(name); err != nil {
		return record{}, "", fmt.Errorf("the record %.90q names no queue: %w", line, err)
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 || n > int64(queue.MaxVisibility/time.Second) {
		return record{}, "", fmt.Errorf("the record %.90q has no delay in seconds, 0…%d", line, int64(queue.MaxVisibility/time.Second))
	}
	return record{queue.Name{Account: account, Queue: name}, time.Duration(n) * time.Second}, text, nil
}

// serviceTime returns the time by the clock of the service that returned the message, so long after it
// was dequeued with this visibility.
func serviceTime(m queue.Message, visibility, after time.Duration) time.Time {
	return m.Until.Add(after - wholeSeconds(visibility))
}

// options returns what is left of the delay and of the life, with which m, as the backlog queue returned
// it, goes home at this time of the backlog queue's service. The life is longer than the delay, and at
// least a second: a message that expires right now lives that much longer, instead of being lost.
func (r record) options(m queue.Message, now time.Time) *queue.EnqueueOptions {
	o := &queue.EnqueueOptions{Delay: wholeSeconds(min(max(m.Inserted.Add(r.delay).Sub(now), 0), r.delay)), TTL: queue.Forever}
	if m.Expires.UTC().Year() < 9999 {
		o.TTL = max(m.Expires.Sub(now), driver.MinTTL)
		if driver.Seconds(o.Delay) >= driver.Seconds(o.TTL) {
			o.TTL = o.Delay + time.Second
		}
	}
	return o
}

func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(driver.Seconds(d)) * time.Second
}

// State is what a [Queue] knows of itself. Its numbers are those of this process since [New].
type State struct {
	Queue  queue.Name `json:"queue"`
	Status Status     `json:"status"`

	// Since is when the status began; zero if it never changed.
	Since time.Time `json:"since,omitzero"`

	// Failures are the sends in a row that the primary queue failed, of those that count. While the queue is
	// failed over, those before it.
	Failures int64 `json:"failures"`

	// LastError is what the primary queue said last to a send or a probe, if that was an error. Errors that
	// are the message's fault are left out.
	LastError error `json:"-"`

	Failovers  int64 `json:"failovers"`   // how often sends began to go to the backlog queues
	Diverted   int64 `json:"diverted"`    // messages that backlog queues have accepted
	MaybeTwice int64 `json:"maybe_twice"` // those of them that the primary queue may have accepted as well
	Unanswered int64 `json:"unanswered"`  // sends to any of the queues without a response; there are no more duplicates than that
	Refused    int64 `json:"refused"`     // sends that failed because both were down
	Probes     int64 `json:"probes"`      // requests that found out whether the primary queue accepts again

	// SecondaryRequests are the requests to the secondary account that Pair, the sends and [Queue.Backlog] have
	// made, which are what pairing costs in this process. A meter around the secondary queue prices them.
	SecondaryRequests int64 `json:"secondary_requests"`

	Backlogs []BacklogState `json:"backlogs"`
}

// BacklogState is what a [Queue] knows of one of its backlog queues.
type BacklogState struct {
	Queue    queue.Name `json:"queue"`
	Accepted int64      `json:"accepted"` // messages
	Failed   int64      `json:"failed"`   // sends

	// RestsUntil is when the queue is in the rotation again, after a failure; zero or past if it is in it.
	RestsUntil time.Time `json:"rests_until,omitzero"`

	// LastError is why it rests; nil since it has accepted a message.
	LastError error `json:"-"`
}

// State returns a snapshot. It sends no request.
func (q *Queue) State() State {
	f := q.failover
	f.mu.Lock()
	s := f.state
	s.Failures = f.outage.Failures
	f.mu.Unlock()
	r := q.rotation
	r.mu.Lock()
	defer r.mu.Unlock()
	s.SecondaryRequests = r.requests
	for _, b := range r.all {
		s.Backlogs = append(s.Backlogs, b.state)
	}
	return s
}

// Backlog is how many messages wait in backlog queues.
type Backlog struct {
	Depth  int64          `json:"depth"` // their sum, of the queues that could be read
	Queues []BacklogDepth `json:"queues"`
}

// BacklogDepth is how many messages wait in one backlog queue.
type BacklogDepth struct {
	Queue queue.Name `json:"queue"`
	Depth int64      `json:"depth"` // approximate, and never too low
	Err   error      `json:"-"`     // why it could not be read
}

// Backlog reads the depths of the backlog queues, with a request for each. If one cannot be read that is an
// error, and the others are returned all the same.
func (q *Queue) Backlog(ctx context.Context) (Backlog, error) {
	all := Backlog{Queues: make([]BacklogDepth, len(q.rotation.all))}
	ctx = request.WithCause(ctx, request.CauseDepth)
	var readings sync.WaitGroup
	for i, b := range q.rotation.all {
		readings.Go(func() {
			q.rotation.request()
			p, err := b.queue.Properties(ctx)
			all.Queues[i] = BacklogDepth{b.queue.Name(), p.Depth, err}
		})
	}
	readings.Wait()
	var errs []error
	for _, one := range all.Queues {
		if one.Err != nil {
			errs = append(errs, one.Err)
		}
		all.Depth += one.Depth
	}
	if len(errs) > 0 {
		return all, fmt.Errorf("read the backlog of %v: %d of %d queues cannot be read: %w", q.Name(), len(errs), len(all.Queues), errs[0])
	}
	return all, nil
}
