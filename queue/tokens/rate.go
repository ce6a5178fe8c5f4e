package tokens

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

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
	if r.PerToken == 0 {
		r.PerToken = min(max(r.Jobs/100, 1), defaultPerToken)
	}
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
	return newRateLimit(s, r), nil
}
