package shards

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// Error is an error of one shard, such as one that the service refuses. The others go on.
type Error struct {
	Shard queue.Name
	Err   error
	Again time.Duration // after how long the shard is tried again; 0 if it is not
}

// Error names the shard and says when it is tried again.
func (e *Error) Error() string {
	if e.Again > 0 {
		return fmt.Sprintf("shard %v: %v; the other shards go on, this one is tried again in %v", e.Shard, e.Err, e.Again.Round(time.Millisecond))
	}
	return fmt.Sprintf("shard %v: %v", e.Shard, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
