package tokens_test

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/tokens"
)

// atOnce is a queue of tokens that can be taken at once: a benchmark does not wait for the set-up.
type atOnce struct{ queue.Manager }

func (q atOnce) Update(ctx context.Context, l queue.Lease, text string, _ time.Duration) (queue.Lease, error) {
	return q.Manager.Update(ctx, l, text, 0)
}

// openReady returns a limit whose tokens are there.
func openReady(e *localqueue.Engine, r tokens.Rate) (*tokens.RateLimit, error) {
	q := atOnce{e.Queue(queue.Name{Account: "acme", Queue: "tokens"})}
	err := r.Init(context.Background(), q)
	l, failed := r.Open(context.Background(), q)
	return l, errors.Join(err, failed)
}
