package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// A limit is found through wrappers and by errors.Is, is no failure of the service, and says what was held back.
func TestALimitedErrorSaysHowLong(t *testing.T) {
	limit := &queue.LimitedError{
		Op: "dequeue", Queue: queue.Name{Account: "acme", Queue: "jobs"}, After: 1500 * time.Millisecond, Limit: "10 messages a second",
	}
	err := fmt.Errorf("outer: %w", limit)
	got := (*queue.LimitedError)(nil)
	if !errors.Is(err, queue.ErrLimited) || !errors.As(err, &got) || got != limit || queue.Transient(err) {
		t.Errorf("%v: want one that is limited, and not transient", err)
	}
	const want = "dequeue on acme/jobs: limited to 10 messages a second: nothing was sent; try again in 1.5s"
	if limit.Error() != want {
		t.Errorf("got error %q, want %q", limit, want)
	}
	if text := (&queue.LimitedError{After: -time.Second}).Error(); text != "limited: nothing was sent; try again in 0s" {
		t.Errorf("got error %q", text)
	}
}
