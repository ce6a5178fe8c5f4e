package limits

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// The bounds of a [Rate].
const (
	MinWindow = 30 * time.Second   // visibility is in whole seconds: a shorter window would be used badly
	MaxWindow = 3 * 24 * time.Hour // a token is hidden for up to two windows, and the service hides for 7 days at most

	// MinTokens is how many tokens a rate has at least, unless it allows fewer jobs: with fewer and larger ones much of
	// each would not be used.
	MinTokens = 50

	maxTokens       = 100_000
	defaultPerToken = 3 * queue.MaxBatch // whole fetches
)

// Rate is a limit of Jobs in any Window, for all processes together. See the package comment. [Rate.Init] makes
// its tokens, once; [Rate.Open] is for every process.
type Rate struct {
	// Jobs is how many jobs may be fetched within any Window. Required. If PerToken does not divide it, the rest is
	// not used.
	Jobs int

	// Window is the time that Jobs refers to, MinWindow…MaxWindow. Required.
	Window time.Duration

	// PerToken is how many jobs a token is worth. A token is used by one process, which should be able to start that many
	// jobs within a second. More of them cost fewer requests. There must be MinTokens tokens if Jobs allows it. Defaults
	// to a hundredth of Jobs, within 1…96.
	PerToken int

	// Seed spreads the times at which processes ask for tokens. Defaults to 0, random.
	Seed uint64
}

func (r Rate) withDefaults() (Rate, error) {
	if r.Jobs <= 0 {
		return r, fmt.Errorf("limits: Rate.Jobs is %d: it must be positive", r.Jobs)
	}
	if r.Window > 0 && r.Window < MinWindow {
		factor := int64((MinWindow + r.Window - 1) / r.Window)
		return r, fmt.Errorf("limits: Rate.Window is %v, shorter than %v: say %d jobs in %v, which may all come at once, or use queue/limits in each process",
			r.Window, MinWindow, int64(r.Jobs)*factor, time.Duration(factor)*r.Window)
	}
	if r.Window <= 0 || r.Window > MaxWindow {
		return r, fmt.Errorf("limits: Rate.Window is %v: it must be %v to %v", r.Window, MinWindow, MaxWindow)
	}
	if r.PerToken < 0 {
		return r, fmt.Errorf("limits: Rate.PerToken is %d: it must be positive, or 0 for the default", r.PerToken)
	}
	r.PerToken = cmp.Or(r.PerToken, min(max(r.Jobs/100, 1), defaultPerToken))
	if most := max(r.Jobs/MinTokens, 1); r.PerToken > most {
		return r, fmt.Errorf("limits: Rate.PerToken is %d: for %d jobs it must be at most %d, so that there are %d tokens", r.PerToken, r.Jobs, most, min(MinTokens, r.Jobs))
	}
	if n := r.Jobs / r.PerToken; n > maxTokens {
		return r, fmt.Errorf("limits: %d jobs at %d a token are %d tokens, more than %d: raise Rate.PerToken", r.Jobs, r.PerToken, n, maxTokens)
	}
	for r.Seed == 0 {
		r.Seed = rand.Uint64()
	}
	return r, nil
}

func (r Rate) tokens() int { return r.Jobs / r.PerToken }

// String returns the limit, for people and for the metadata of the queue of tokens.
func (r Rate) String() string {
	return strconv.Itoa(r.Jobs) + " jobs in " + r.Window.String() + ", " + strconv.Itoa(r.PerToken) + " a token"
}

// Init creates the queue of tokens with exactly as many as the limit has. Call it once, when a program is
// deployed, or at every start: if the queue is there Init waits until it is ready, and fails if it is for
// another limit. Any number of processes may call it together. If it is interrupted nobody can use the queue: drop it
// and call Init again. It sends about three requests for each token.
// When the queue is ready, 128 tokens can be taken immediately. The others follow within 10 s, or within 30 s if responses
// were lost.
func (r Rate) Init(ctx context.Context, q queue.Manager) error {
	r, err := r.withDefaults()
	if err != nil {
		return err
	}
	return initialize(ctx, q, r.String(), r.tokens())
}

// Open returns the limit for the use of this process. It reads the properties of the queue of tokens, and fails if
// that was not set up by Init for this limit. Give it a queue that package metered wraps to count the requests.
func (r Rate) Open(ctx context.Context, q queue.Queue) (*RateLimit, error) {
	r, err := r.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := openSource(ctx, q, r.String(), r.tokens())
	if err != nil {
		return nil, err
	}
	return &RateLimit{
		source: s, rate: r, key: strconv.FormatUint(r.Seed, 16),
		last: time.Now(),
	}, nil
}

const (
	minHold = time.Second      // within which a token is spent, at least
	maxHold = 10 * time.Second // the same, for long windows

	askedByAnother = 20 * time.Millisecond // how long to wait while another goroutine asks for tokens

	firstEmptyWait = time.Second            // after the first answer without tokens
	maxReturnDelay = 500 * time.Millisecond // the spread around the instant when own tokens come back

	paceShare = 6 // at the limit a process takes tokens at most so many times as fast as they come back
)

// RateLimit is a [Rate] as one process uses it. [Rate.Open] makes one. It is safe for concurrent use.
type RateLimit struct {
	source *source
	rate   Rate
	key    string // of the jitter

	mu      sync.Mutex
	held    []*grant      // tokens that may be spent; guarded by mu
	returns []time.Time   // when tokens that were taken come back, sorted; guarded by mu
	askAt   time.Time     // before that no token is asked for; guarded by mu
	asking  bool          // a request is under way; guarded by mu
	empties int           // answers with too few tokens, without a window between two; guarded by mu
	short   time.Time     // the last of them; guarded by mu
	draws   int           // jitters drawn; guarded by mu
	last    time.Time     // when a token was last taken, or the queue of tokens checked; guarded by mu
	fetched time.Time     // when jobs were last fetched; guarded by mu
	gap     time.Duration // from one job to the next, on average, without refusals; guarded by mu
	gaps    time.Duration // how many gaps the average is of, up to 8; guarded by mu
	refused bool          // since then a dequeue had no token; guarded by mu
}

// grant is a token that was taken.
type grant struct {
	asked    time.Time // before the request: the service has begun to count later
	deadline time.Time // until when it may be spent
	left     int       // jobs that it is still worth
	pending  int       // jobs of dequeues under way, which may put them back
}

// usable reports whether there is time for a request before the deadline.
func (g *grant) usable(now time.Time) bool {
	return g.left > 0 && g.deadline.Sub(now) >= min(g.deadline.Sub(g.asked)/4, minHold)
}

// share is what a dequeue takes of one token.
type share struct {
	of   *grant
	jobs int
}

// shortestHold returns how long a token can be spent under full demand: a twentieth of the window, because
// nobody can use it for that long.
func (r Rate) shortestHold() time.Duration { return min(max(r.Window/20, minHold), maxHold) }

// reserve takes room for up to n jobs from the tokens that are held. If they are worth fewer than
// want it sends a request for more. If there is no room it returns how long to wait.
func (l *RateLimit) reserve(ctx context.Context, n, want int) (shares []share, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if missing := min(n, want) - l.worth(now); missing > 0 && !l.asking && !now.Before(l.askAt) {
		l.asking = true
		hold := l.hold(now, want < n)
		l.mu.Unlock()
		err = l.ask(ctx, (missing+l.rate.PerToken-1)/l.rate.PerToken, hold)
		l.mu.Lock()
		l.asking = false
		now = time.Now()
	}
	l.expire(now)
	for _, g := range l.held {
		if jobs := min(g.left, n); jobs > 0 && g.usable(now) {
			g.left -= jobs
			g.pending += jobs
			n -= jobs
			shares = append(shares, share{g, jobs})
		}
	}
	switch {
	case len(shares) > 0:
		return shares, 0, nil // an error of the queue of tokens comes again if it matters
	case err != nil:
		return nil, 0, err
	}
	l.refused = true
	if l.asking {
		return nil, askedByAnother, nil
	}
	return nil, max(l.askAt.Sub(now), time.Millisecond), nil
}

// hold returns how long the next token may be spent: as long as the jobs that it is worth take to come,
// and some more. Before that time is known, few says that there are few jobs. Requires mu.
func (l *RateLimit) hold(now time.Time, few bool) time.Duration {
	if few && l.gaps == 0 && !l.refused {
		return max(l.rate.Window/4, l.rate.shortestHold())
	}
	return min(max(time.Duration(l.rate.PerToken+3)*l.usualGap(now), l.rate.shortestHold()), l.rate.Window)
}

// usualGap returns the average time between jobs, or the time without one if that is longer. Requires mu.
func (l *RateLimit) usualGap(now time.Time) time.Duration {
	if l.fetched.IsZero() || l.refused {
		return l.gap
	}
	return max(l.gap, now.Sub(l.fetched))
}

// worth returns how many jobs the tokens that are held are worth. Requires mu.
func (l *RateLimit) worth(now time.Time) (jobs int) {
	for _, g := range l.held {
		if g.usable(now) {
			jobs += g.left
		}
	}
	return jobs
}

// expire forgets tokens that are spent or can no longer be. Requires mu.
func (l *RateLimit) expire(now time.Time) {
	l.held = slices.DeleteFunc(l.held, func(g *grant) bool {
		return g.left == 0 && g.pending == 0 || !now.Before(g.deadline)
	})
	back := 0
	for back < len(l.returns) && !l.returns[back].After(now) {
		back++
	}
	l.returns = l.returns[back:]
}

// ask asks for n tokens, to be spent within hold.
func (l *RateLimit) ask(ctx context.Context, n int, hold time.Duration) error {
	n = min(n, queue.MaxBatch)
	visibility := time.Duration(driver.Seconds(l.rate.Window+hold)) * time.Second
	asked := time.Now()
	batch, err := l.source.take(ctx, n, visibility)
	if err != nil {
		return err
	}
	l.mu.Lock()
	now := time.Now()
	returns := now.Add(visibility)
	at, _ := slices.BinarySearchFunc(l.returns, returns, time.Time.Compare) // at the end, unless tokens are held for less time now
	for range batch {
		l.held = append(l.held, &grant{asked: asked, deadline: asked.Add(visibility - l.rate.Window), left: l.rate.PerToken})
		l.returns = slices.Insert(l.returns, at, returns)
	}
	check := l.schedule(now, len(batch), n)
	l.mu.Unlock()
	if check {
		return l.source.missing(ctx)
	}
	return nil
}

// schedule decides when tokens are asked for next, after an answer with some of those that were asked for. Who gets
// too few asks again soon, because others' tokens come back, and ever more rarely if that is no use, but when own
// tokens come back: they are most likely there. So a fleet of any size asks a few times a token. For two windows after
// an answer with too few, tokens are taken slowly, so that other processes get some of those that come back together. It also reports
// whether there was none for so long that some may be missing. Requires mu.
func (l *RateLimit) schedule(now time.Time, got, asked int) (check bool) {
	if got > 0 {
		l.last = now
	}
	below := now.Sub(l.short) >= 2*l.rate.Window
	if got == asked {
		l.askAt = now
		if !below { // leave some to other processes
			l.askAt = now.Add(time.Duration(asked) * l.rate.Window / time.Duration(paceShare*l.rate.tokens()))
		}
		return false
	}
	if below {
		l.empties = 0
	}
	l.short = now
	most := l.rate.Window / 2
	if len(l.returns) > 0 {
		most = 2 * l.rate.Window
	}
	wait := waiting.Doubled(firstEmptyWait, l.empties, most)
	wait = wait/2 + time.Duration(l.jitter()*float64(wait)/2)
	l.empties++
	if len(l.returns) > 0 {
		wait = min(wait, l.nextReturn().Sub(now)+time.Duration(l.jitter()*float64(min(l.rate.Window/100, maxReturnDelay))))
	}
	l.askAt = now.Add(wait)
	if now.Sub(l.last) < 5*l.rate.Window { // others may hide each for two
		return false
	}
	l.last = now
	return true
}

// nextReturn returns when enough tokens of this process are back to fill a batch, or soon after the
// first one is. Tokens that are taken together come back together, so this costs time only once.
// Requires mu.
func (l *RateLimit) nextReturn() time.Time {
	batch := (queue.MaxBatch + l.rate.PerToken - 1) / l.rate.PerToken
	last, latest := l.returns[min(batch, len(l.returns))-1], l.returns[0].Add(l.rate.Window/2)
	if last.After(latest) {
		return latest
	}
	return last
}

func (l *RateLimit) jitter() float64 {
	l.draws++
	return waiting.Jitter(l.key, l.draws)
}

// settle ends a dequeue that has used so many of the jobs of its shares. The tokens keep the others.
func (l *RateLimit) settle(shares []share, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used > 0 {
		now := time.Now()
		if !l.fetched.IsZero() && !l.refused {
			gap := min(now.Sub(l.fetched), 2*l.rate.Window) / time.Duration(used)
			l.gaps = min(l.gaps+1, 8)
			l.gap += (gap - l.gap) / l.gaps
		}
		l.fetched, l.refused = now, false
	}
	for _, s := range shares {
		mine := min(used, s.jobs)
		used -= mine
		s.of.pending -= s.jobs
		s.of.left += s.jobs - mine
	}
}

// mustLook reports whether a dequeue should look for jobs before it asks for a token, because no
// token is held and jobs come too rarely to expect one soon.
func (l *RateLimit) mustLook() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.expire(now)
	return l.worth(now) == 0 && (l.gap > l.rate.Window*3/4 || now.Sub(l.fetched) > 6*l.gap)
}

// deadlineOf returns until when jobs may be fetched for these shares.
func deadlineOf(shares []share) time.Time {
	first := shares[0].of.deadline
	for _, s := range shares[1:] {
		if s.of.deadline.Before(first) {
			first = s.of.deadline
		}
	}
	return first
}

func jobsOf(shares []share) (n int) {
	for _, s := range shares {
		n += s.jobs
	}
	return n
}
