package paired

import "github.com/millrace/millrace/queue"

// Lookup returns q if it is the name of the primary queue or of one of the backlog queues: q settles the
// messages of both, by their leases.
func (q *Queue) Lookup(name queue.Name) (queue.Queue, bool) {
	if name == q.Name() {
		return q, true
	}
	for _, b := range q.rotation.all {
		if b.queue.Name() == name {
			return q, true
		}
	}
	return nil, false
}
