package tokens

import (
	"context"

	"github.com/millrace/millrace/queue"
)

// giveBack makes messages visible at once for which there are no tokens any more. One that cannot be given back becomes
// visible when its lease ends.
func giveBack(ctx context.Context, q queue.Queue, batch []queue.Message) {
	ctx = queue.WithCause(ctx, queue.CauseGiveBack)
	for _, m := range batch {
		_, _ = q.Update(ctx, m.Lease, m.Text, 0)
	}
}
