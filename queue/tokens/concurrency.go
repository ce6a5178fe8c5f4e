package tokens

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

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
		return c, fmt.Errorf("tokens: Concurrency.Jobs is %d: it must be positive", c.Jobs)
	}
	if c.PerToken == 0 {
		c.PerToken = min(max(c.Jobs/50, 1), queue.MaxBatch)
	}
	if c.PerToken < 0 || c.PerToken > c.Jobs {
		return c, fmt.Errorf("tokens: Concurrency.PerToken is %d: it must be 1 to Jobs, %d, or 0 for the default", c.PerToken, c.Jobs)
	}
	if n := c.tokens(); n > maxTokens {
		return c, fmt.Errorf("tokens: %d jobs at %d a token are %d tokens, more than %d: raise Concurrency.PerToken", c.Jobs, c.PerToken, n, maxTokens)
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
// that was not set up by Init for this limit. Give it a queue that package meter wraps to count the requests.
func (c Concurrency) Open(ctx context.Context, q queue.Queue) (*ConcurrencyLimit, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := openSource(ctx, q, c.String(), c.tokens())
	if err != nil {
		return nil, err
	}
	return newConcurrencyLimit(s, c), nil
}
