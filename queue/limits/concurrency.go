package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// Concurrency is a limit of Jobs whose handlers run at once, for all processes together. See the package comment.
// [Concurrency.Init] makes its tokens, once; [Concurrency.Open] is for every process.
type Concurrency struct {
	// Jobs is how many handlers may run at once. Required. If PerToken does not divide it, the rest is not used.
	Jobs int

	// PerToken is how many handlers a token is worth. More of them cost fewer requests, and are divided less evenly:
	// there should be at least as many tokens as processes. Defaults to a fiftieth of Jobs, within 1…32.
	PerToken int

	// Seed spreads the times at which processes ask for tokens and renew them. Defaults to 0, random.
	Seed uint64
}

func (c Concurrency) withDefaults() (Concurrency, error) {
	if c.Jobs <= 0 {
		return c, fmt.Errorf("limits: Concurrency.Jobs is %d: it must be positive", c.Jobs)
	}
	c.PerToken = cmp.Or(c.PerToken, min(max(c.Jobs/50, 1), queue.MaxBatch))
	if c.PerToken < 0 || c.PerToken > c.Jobs {
		return c, fmt.Errorf("limits: Concurrency.PerToken is %d: it must be 1 to Jobs, %d, or 0 for the default", c.PerToken, c.Jobs)
	}
	if n := c.tokens(); n > maxTokens {
		return c, fmt.Errorf("limits: %d jobs at %d a token are %d tokens, more than %d: raise Concurrency.PerToken", c.Jobs, c.PerToken, n, maxTokens)
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c, nil
}

func (c Concurrency) tokens() int { return c.Jobs / c.PerToken }

// String returns the limit, for people and for the metadata of the queue of tokens.
func (c Concurrency) String() string {
	return strconv.Itoa(c.Jobs) + " jobs at once, " + strconv.Itoa(c.PerToken) + " a token"
}

// Init creates the queue of tokens with exactly as many as the limit has. Call it once, when a program is
// deployed, or at every start: see [Rate.Init], which does the same for a rate.
func (c Concurrency) Init(ctx context.Context, q queue.Manager) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	return initialize(ctx, q, c.String(), c.tokens())
}

// Open returns the limit for the use of this process. It reads the properties of the queue of tokens, and fails if
// that was not set up by Init for this limit. Give it a queue that package metered wraps to count the requests.
func (c Concurrency) Open(ctx context.Context, q queue.Queue) (*ConcurrencyLimit, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := openSource(ctx, q, c.String(), c.tokens())
	if err != nil {
		return nil, err
	}
	return &ConcurrencyLimit{
		source: s, limit: c, key: strconv.FormatUint(c.Seed, 16),
		wake: make(chan struct{}, 1), halted: make(chan struct{}),
		jobs: make(jobs), last: time.Now(), took: time.Second, turns: turns{length: firstTurn},
		step: 1,
	}, nil
}

// ErrTokenLost is the cause with which the context of a handler ends when a token of its process could not be renewed
// in time, or the limit was halted. The message is given back without an attempt.
var ErrTokenLost = errors.New("a token of the limit was lost")

const (
	tokenLease = time.Minute // for how long a token is taken, and renewed

	// endBefore is how long before the end of a lease the handlers under it are told to end.
	endBefore = 15 * time.Second

	firstAskAgain = time.Second      // after the first answer without tokens
	maxAskAgain   = 8 * time.Second  // of a process that has none
	maxAskMore    = 30 * time.Second // of one that has a seventh of all, or more

	missingAfter = 5 * time.Minute // without a token whether there are any is looked at

	minRoomWait = 10 * time.Millisecond // until a running handler may have returned
	maxRoomWait = time.Second
)

// ConcurrencyLimit is a [Concurrency] as one process uses it. [Concurrency.Open] makes one. It works while
// its Run does. It is safe for concurrent use.
//
// Handlers are not bound to tokens: what holds is that a process never has more of them than its tokens are worth. So a
// token can be given back, or be lost, without those that have room under the others being touched.
type ConcurrencyLimit struct {
	source *source
	limit  Concurrency
	key    string // of the jitter

	wake   chan struct{} // the keeper has something to do
	halted chan struct{} // closed by Halt
	halt   sync.Once

	mu       sync.Mutex
	phase    phase        // guarded by mu
	refused  time.Time    // when a dequeue first came before Run; guarded by mu
	held     []*heldToken // guarded by mu
	counted  worth        // of held; guarded by mu
	jobs     jobs         // guarded by mu
	fetched  int          // jobs that may run, those that do included; guarded by mu
	ending   int          // jobs whose handlers were told to end, and run; guarded by mu
	reserved int          // for dequeues under way; guarded by mu
	ordinal  int          // of the last job; guarded by mu

	turns   turns         // guarded by mu
	asking  bool          // a request for tokens is under way; guarded by mu
	askAt   time.Time     // before that no token is asked for; guarded by mu
	step    int           // the most tokens beyond a fair share that are asked for at once; 0 for any number; guarded by mu
	empties int           // answers without tokens in a row; guarded by mu
	last    time.Time     // when a token was last taken, or the queue of tokens checked; guarded by mu
	draws   int           // jitters drawn; guarded by mu
	took    time.Duration // what handlers take, on average; guarded by mu

	intercepted bool // Intercept was called; guarded by mu
	unseen      int  // jobs that a listener has deleted that Intercept has not seen; guarded by mu
}

// phase is how far Run is.
type phase uint8

const (
	idle     phase = iota // Run was not called
	working               // tokens are taken
	stopping              // no handler may start; tokens are kept while some run
	stopped               // Run has returned
)

// heldToken is a token that was taken.
type heldToken struct {
	message  queue.Message // with the newest receipt
	taken    time.Time
	until    time.Time // nobody else can have it before
	renewAt  time.Time
	renewing bool // a request is under way
	lost     bool // it cannot be renewed any more
}

// good reports whether handlers may run under the token.
func (t *heldToken) good(now time.Time) bool { return now.Before(t.until.Add(-endBefore)) }

// worth is how many handlers the tokens that can be used are worth.
type worth struct {
	running  int       // that run
	starting int       // that start and run: not under tokens that are lost or are about to be given back
	until    time.Time // before that it does not change by itself
}

// worth returns what the tokens are worth. It is counted when a token has ended or they have changed, not
// for each job: there may be many tokens. Requires mu.
func (l *ConcurrencyLimit) worth(now time.Time) worth {
	if now.Before(l.counted.until) {
		return l.counted
	}
	// Forget tokens that have ended.
	l.held = slices.DeleteFunc(l.held, func(t *heldToken) bool { return !t.renewing && !now.Before(t.until) })
	w := worth{until: now.Add(tokenLease)}
	for _, t := range l.held {
		end := t.until
		if t.good(now) {
			end = t.until.Add(-endBefore)
			w.running += l.limit.PerToken
			if !t.lost {
				w.starting += l.limit.PerToken
			}
		}
		if end.Before(w.until) && now.Before(end) {
			w.until = end
		}
	}
	w.starting = max(w.starting-l.turns.leaving*l.limit.PerToken, 0)
	l.counted = w
	return w
}

// changed makes what the tokens are worth be counted again. Requires mu.
func (l *ConcurrencyLimit) changed() { l.counted = worth{} }

// used returns how many handlers run or may start. Requires mu.
func (l *ConcurrencyLimit) used() int { return l.fetched + l.ending + l.reserved }

// room returns how many more jobs may be fetched. Requires mu.
func (l *ConcurrencyLimit) room(now time.Time) int { return max(l.worth(now).starting-l.used(), 0) }

// update tells handlers to end that the tokens are no longer worth: the newest first, because they lose
// least. Requires mu.
func (l *ConcurrencyLimit) update(now time.Time) {
	over := l.fetched - l.worth(now).running
	if over <= 0 {
		return
	}
	may := make([]*job, 0, l.fetched) // end
	for j := range l.jobs.all() {
		if !j.told {
			may = append(may, j)
		}
	}
	slices.SortFunc(may, func(a, b *job) int {
		if a, b := min(len(a.calls), 1), min(len(b.calls), 1); a != b {
			return a - b // those that have not started first
		}
		return b.ordinal - a.ordinal
	})
	for _, j := range may[:over] {
		l.tell(j)
	}
}

// tell tells the handlers of a job to end. Requires mu.
func (l *ConcurrencyLimit) tell(j *job) {
	if len(j.calls) == 0 {
		l.remove(j)
		return
	}
	j.told = true
	l.fetched--
	l.ending++
	for _, c := range j.calls {
		c.context.end(ErrTokenLost)
	}
}

// add records a message that was fetched. Requires mu.
func (l *ConcurrencyLimit) add(name queue.Name, id queue.ID, delivery int64, receipt queue.Receipt, until time.Time) *job {
	l.ordinal++
	j := &job{queue: name, id: id, delivery: delivery, ordinal: l.ordinal, receipt: receipt, until: until}
	j.next = l.jobs[j.id]
	l.jobs[j.id] = j
	l.fetched++
	l.turns.peak = max(l.turns.peak, l.fetched+l.ending)
	return j
}

// remove forgets a job. Requires mu.
func (l *ConcurrencyLimit) remove(j *job) {
	j.removed = true
	switch first := l.jobs[j.id]; {
	case first != j:
		for first.next != j {
			first = first.next
		}
		first.next = j.next
	case j.next == nil:
		delete(l.jobs, j.id)
	default:
		l.jobs[j.id] = j.next
	}
	if j.told {
		l.ending--
	} else {
		l.fetched--
	}
	if l.turns.leaving > 0 || l.phase == stopping {
		waiting.Signal(l.wake, struct{}{}) // a token may be free now
	}
}

// jitter returns a number in [0, 1). Requires mu.
func (l *ConcurrencyLimit) jitter() float64 {
	l.draws++
	return waiting.Jitter(l.key, l.draws)
}

// reserve takes room for up to n jobs. If there is none it returns how long to wait. It may send a request to the
// queue of tokens: for as many as n jobs need if the queue of jobs is known to have many, otherwise for one.
func (l *ConcurrencyLimit) reserve(ctx context.Context, n int, many bool) (room int, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait, err = l.notWorking(); wait > 0 || err != nil {
		return 0, wait, err
	}
	now := time.Now()
	l.update(now)
	room = l.room(now)
	if (room == 0 || many && room < n) && l.mayAsk(now) {
		want := 1
		if many {
			want = (n - room + l.limit.PerToken - 1) / l.limit.PerToken
		}
		if l.step > 0 {
			want = min(want, max(l.step, l.turns.yielded, l.fair()-len(l.held)))
		}
		l.asking = true
		l.mu.Unlock()
		err = l.ask(ctx, want)
		l.mu.Lock()
		l.asking = false
		waiting.Signal(l.wake, struct{}{})
		now = time.Now()
		l.update(now)
		room = l.room(now)
	}
	if l.phase != working {
		return 0, maxRoomWait, nil
	}
	if room = min(room, n); room > 0 {
		l.reserved += room
		return room, 0, nil // an error of the queue of tokens comes again if it matters
	}
	if err != nil {
		return 0, 0, err
	}
	return 0, l.roomWait(now), nil
}

// mayAsk reports whether the queue of tokens may be asked for some. Requires mu.
func (l *ConcurrencyLimit) mayAsk(now time.Time) bool { return !l.asking && !now.Before(l.askAt) }

// roomWait returns when to look for room again. If handlers run, one of them may have returned. Requires mu.
func (l *ConcurrencyLimit) roomWait(now time.Time) time.Duration {
	switch {
	case l.asking:
		return askedByAnother
	case l.used() > 0 || l.turns.leaving > 0:
		return min(max(l.took/16, minRoomWait), maxRoomWait)
	}
	return max(l.askAt.Sub(now), minRoomWait)
}

func (l *ConcurrencyLimit) ask(ctx context.Context, n int) error {
	n = min(n, queue.MaxBatch)
	asked := time.Now()
	batch, err := l.source.take(ctx, n, tokenLease)
	l.mu.Lock()
	if err != nil {
		l.askAt = time.Now().Add(firstAskAgain)
		l.mu.Unlock()
		return err
	}
	now := time.Now()
	for _, m := range batch {
		t := &heldToken{message: m, taken: now, until: asked.Add(tokenLease)}
		l.renewLater(t, asked)
		if len(l.held) == 0 {
			// A turn begins with the first token.
			l.turns.since, l.turns.next = now, now.Add(l.turns.length)
		}
		l.held = append(l.held, t)
	}
	l.changed()
	check := l.schedule(now, len(batch), n)
	l.mu.Unlock()
	if check {
		return l.source.missing(ctx)
	}
	return nil
}

// fair returns how many tokens a process may take immediately: a tenth, because the number of processes is unknown.
func (l *ConcurrencyLimit) fair() int {
	if l.source.total < 10 {
		return l.source.total
	}
	return l.source.total / 10
}

// schedule decides when tokens are asked for next, after an answer with some of those that were asked for. At the
// start, and after an answer with too few, a process takes more than its fair share slowly: one, and a second later
// twice as many, so that other processes get some. A process that has many tokens asks more rarely than one that has
// few. schedule also reports whether there was none for so long that some may be missing. Requires mu.
func (l *ConcurrencyLimit) schedule(now time.Time, got, asked int) (check bool) {
	if got > 0 {
		l.last, l.empties = now, 0
	}
	held, total := len(l.held), l.source.total
	if l.turns.yielded > 0 {
		l.turns.asked(now, got, held > total/6)
	}
	if got == asked {
		l.askAt = now
		if l.step > 0 && held >= l.fair() {
			l.askAt = now.Add(firstAskAgain)
			if l.step *= 2; l.step > total {
				l.step = 0
			}
		}
		return false
	}
	l.step = 1
	wait := waiting.Doubled(firstAskAgain, l.empties, maxAskAgain)
	if held > 0 {
		wait = min(maxAskAgain+maxAskAgain*time.Duration(16*held)/time.Duration(total), maxAskMore)
	}
	l.empties++
	l.askAt = now.Add(wait/2 + time.Duration(l.jitter()*float64(wait)/2))
	if held > 0 || now.Sub(l.last) < missingAfter {
		return false
	}
	l.last = now
	return true
}
