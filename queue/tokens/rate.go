package tokens

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
		return r, fmt.Errorf("tokens: Rate.Jobs is %d: it must be positive", r.Jobs)
	}
	if r.Window > 0 && r.Window < MinWindow {
		factor := int64((MinWindow + r.Window - 1) / r.Window)
		return r, fmt.Errorf("tokens: Rate.Window is %v, shorter than %v: say %d jobs in %v, which may all come at once, or use queue/limited in each process",
			r.Window, MinWindow, int64(r.Jobs)*factor, time.Duration(factor)*r.Window)
	}
	if r.Window <= 0 || r.Window > MaxWindow {
		return r, fmt.Errorf("tokens: Rate.Window is %v: it must be %v to %v", r.Window, MinWindow, MaxWindow)
	}
	if r.PerToken < 0 {
		return r, fmt.Errorf("tokens: Rate.PerToken is %d: it must be positive, or 0 for the default", r.PerToken)
	}
	r.PerToken = cmp.Or(r.PerToken, min(max(r.Jobs/100, 1), defaultPerToken))
	if most := max(r.Jobs/MinTokens, 1); r.PerToken > most {
		return r, fmt.Errorf("tokens: Rate.PerToken is %d: for %d jobs it must be at most %d, so that there are %d tokens", r.PerToken, r.Jobs, most, min(MinTokens, r.Jobs))
	}
	if n := r.Jobs / r.PerToken; n > maxTokens {
		return r, fmt.Errorf("tokens: %d jobs at %d a token are %d tokens, more than %d: raise Rate.PerToken", r.Jobs, r.PerToken, n, maxTokens)
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
// and call Init again. It sends about three requests for each token. The tokens can be taken 10 s later.
func (r Rate) Init(ctx context.Context, q queue.Manager) error {
	r, err := r.withDefaults()
	if err != nil {
		return err
	}
	return initialize(ctx, q, r.String(), r.tokens())
}

// Open returns the limit for the use of this process. It reads the properties of the queue of tokens, and fails if
// that was not set up by Init for this limit. Give it a queue that package meter wraps to count the requests.
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
		hold: r.shortestHold(), last: time.Now(),
	}, nil
}

const (
	minHold = time.Second      // within which a token is spent, at least
	maxHold = 10 * time.Second // at first; it grows if tokens are not spent in time

	askedByAnother = 20 * time.Millisecond // how long to wait while another goroutine asks for tokens

	firstEmptyWait = time.Second            // after the first answer without tokens
	maxReturnDelay = 500 * time.Millisecond // the spread around the instant when own tokens come back
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
	empties int           // answers without tokens in a row, while none comes back; guarded by mu
	hold    time.Duration // within which the next token is to be spent; guarded by mu
	draws   int           // jitters drawn; guarded by mu
	last    time.Time     // when a token was last taken, or the queue of tokens checked; guarded by mu
}

// grant is a token that was taken.
type grant struct {
	message  queue.Message
	asked    time.Time // before the request: the service has begun to count later
	deadline time.Time // until when it may be spent
	returns  time.Time // by when it is back in its queue
	left     int       // jobs that it is still worth
}

// share is what a dequeue takes of one token.
type share struct {
	of   *grant
	jobs int
}

// shortestHold returns how long a token can be spent under full demand: a twentieth of the window, because
// nobody can use it for that long.
func (r Rate) shortestHold() time.Duration { return min(max(r.Window/20, minHold), maxHold) }

// reserve takes what up to n jobs need. If there is nothing it returns how long to wait. It may send a request
// to the queue of tokens.
func (l *RateLimit) reserve(ctx context.Context, n int) (shares []share, wait time.Duration, err error) {
	l.mu.Lock()
	shares, n = l.spend(time.Now(), n)
	for n > 0 && !l.asking && !time.Now().Before(l.askAt) {
		l.asking = true
		hold := l.hold
		l.mu.Unlock()
		var got int
		got, err = l.ask(ctx, (n+l.rate.PerToken-1)/l.rate.PerToken, hold)
		l.mu.Lock()
		l.asking = false
		if err != nil {
			break
		}
		more, rest := l.spend(time.Now(), n)
		shares = append(shares, more...)
		if got == 0 || rest == n {
			break
		}
		n = rest
	}
	defer l.mu.Unlock()
	if len(shares) > 0 {
		return shares, 0, nil // an error of the queue of tokens comes again if it matters
	}
	if err != nil {
		return nil, 0, err
	}
	if l.asking {
		return nil, askedByAnother, nil
	}
	return nil, max(time.Until(l.askAt), time.Millisecond), nil
}

// spend takes up to n jobs from the tokens that are held, and returns how many more are wanted. Requires mu.
func (l *RateLimit) spend(now time.Time, n int) (shares []share, rest int) {
	l.expire(now)
	for _, g := range l.held {
		if jobs := min(g.left, n); jobs > 0 && g.deadline.Sub(now) >= g.deadline.Sub(g.asked)/4 { // time for the request
			g.left -= jobs
			n -= jobs
			shares = append(shares, share{g, jobs})
		}
	}
	return shares, n
}

// expire forgets tokens that can no longer be spent, and sees how well the time for that was chosen. Requires mu.
func (l *RateLimit) expire(now time.Time) {
	l.held = slices.DeleteFunc(l.held, func(g *grant) bool {
		switch {
		case g.left == 0 && now.Sub(g.asked) < g.deadline.Sub(g.asked)/4:
			l.hold = max(l.hold/2, l.rate.shortestHold())
			return true
		case g.left == 0:
			return true
		case !now.Before(g.deadline):
			l.hold = min(l.hold*2, l.rate.Window)
			return true
		}
		return false
	})
	back := 0
	for back < len(l.returns) && !l.returns[back].After(now) {
		back++
	}
	l.returns = l.returns[back:]
}

// ask asks for tokens and returns how many there were.
func (l *RateLimit) ask(ctx context.Context, n int, hold time.Duration) (got int, err error) {
	n = min(n, queue.MaxBatch)
	visibility := time.Duration(queue.Seconds(l.rate.Window+hold)) * time.Second
	asked := time.Now()
	batch, err := l.source.take(ctx, n, visibility)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	now := time.Now()
	for _, m := range batch {
		g := &grant{message: m, asked: asked, deadline: asked.Add(visibility - l.rate.Window), returns: now.Add(visibility), left: l.rate.PerToken}
		l.held = append(l.held, g)
		at, _ := slices.BinarySearchFunc(l.returns, g.returns, time.Time.Compare) // at the end, unless tokens are held for less time now
		l.returns = slices.Insert(l.returns, at, g.returns)
	}
	check := l.schedule(now, len(batch), n)
	l.mu.Unlock()
	if check {
		return 0, l.source.missing(ctx)
	}
	return len(batch), nil
}

// schedule decides when tokens are asked for next, after an answer with some of those that were asked for. A process
// whose own tokens come back asks then: they are most likely there. Others ask ever more rarely. So a fleet of any
// size asks a few times a token. It also reports whether there was none for so long that some may be missing.
// Requires mu.
func (l *RateLimit) schedule(now time.Time, got, asked int) (check bool) {
	if got > 0 {
		l.last, l.empties = now, 0
	}
	if got == asked {
		l.askAt = now
		return false
	}
	wait := waiting.Doubled(firstEmptyWait, l.empties, l.rate.Window/2)
	wait = wait/2 + time.Duration(l.jitter()*float64(wait)/2)
	if len(l.returns) > 0 && l.returns[0].Before(now.Add(l.rate.Window)) {
		wait = l.returns[0].Sub(now) + time.Duration(l.jitter()*float64(min(l.rate.Window/100, maxReturnDelay)))
	} else {
		l.empties++
	}
	l.askAt = now.Add(wait)
	if now.Sub(l.last) < 5*l.rate.Window { // others may hide each for two
		return false
	}
	l.last = now
	return true
}

func (l *RateLimit) jitter() float64 {
	l.draws++
	return waiting.Jitter(l.key, l.draws)
}

// putBack returns to the tokens what was not used.
func (l *RateLimit) putBack(shares []share, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range shares {
		mine := min(used, s.jobs)
		used -= mine
		s.of.left += s.jobs - mine
	}
}

// release gives back the tokens of which nothing was used: there are no jobs.
func (l *RateLimit) release(ctx context.Context) {
	l.mu.Lock()
	var unused []*grant
	l.held = slices.DeleteFunc(l.held, func(g *grant) bool {
		if g.left < l.rate.PerToken {
			return false
		}
		unused = append(unused, g)
		return true
	})
	l.mu.Unlock()
	for _, g := range unused {
		if l.source.giveBack(ctx, g.message) != nil {
			continue // it comes back by itself
		}
		l.mu.Lock()
		if i := slices.Index(l.returns, g.returns); i >= 0 {
			l.returns = slices.Delete(l.returns, i, i+1)
		}
		l.askAt = time.Time{}
		l.mu.Unlock()
	}
}

// holds reports whether a token can be spent.
func (l *RateLimit) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())
	return len(l.held) > 0
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
