package roles

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// NewWorkerWithVisibility is [NewWorker] with another time after which another worker goes on when one has crashed: whole
// seconds, at least 5.
func NewWorkerWithVisibility(q queue.Queue, site *channels.Site, wakeups wakeup.Source, logger *slog.Logger, visibility time.Duration) *listener.Listener[Deletion] {
	if logger == nil {
		logger = slog.Default()
	}
	w := &worker{site: site, deletions: newProducer(q, nil), page: pageSize, logger: logger}
	return w.listen(q, wakeups, visibility)
}
