package web

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// redrive is POST /queues/{name}/redrive. A request that failed because of a message has ended for good, and its messages are
// discarded; so the jobs that failed are started again.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if !slices.Contains(roles.QueueNames(), name) {
		return errNotFound
	}
	q, err := s.options.Queue(name)
	if err != nil {
		return err
	}
	bad := q.Sibling(poison.Suffix)
	failed := s.failedBy(r.Context(), bad)
	report, err := poison.Redrive(r.Context(), bad, &poison.RedriveOptions{To: q})
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		s.logger.Warn("a redrive has ended early", "queue", name, "error", err)
		return refuse(http.StatusServiceUnavailable, "%d messages were sent back, then the queue server did not answer: try again", report.Redriven)
	}
	restarted := []string{}
	for _, j := range failed {
		if s.again(j) {
			restarted = append(restarted, j.current().ID)
		}
	}
	answer(w, r, http.StatusOK, map[string]any{"redriven": report.Redriven, "restarted": restarted}, "/")
	return nil
}

// failedBy returns the jobs that messages of a poison queue belong to. What it cannot read it leaves out: those jobs can be
// started again by hand.
func (s *Server) failedBy(ctx context.Context, bad queue.Queue) (jobs []*job) {
	requests := make(map[uuid.UUID]bool)
	for entry, err := range poison.List(ctx, bad, nil) {
		if err != nil {
			break
		}
		if id, ok := roles.RequestOf(entry.Original()); ok {
			requests[id] = true
		}
	}
	for _, j := range s.shelf.all() {
		if now := j.current(); now.State == failed && requests[now.Request] {
			jobs = append(jobs, j)
		}
	}
	return jobs
}
