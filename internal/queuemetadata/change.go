package queuemetadata

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/internal/pause"
	"github.com/millrace/millrace/queue"
)

const (
	// maxTries is how often a change is tried at most.
	maxTries = 5

	// settleTime is how long after a write the metadata are read again, up to half as much again. It
	// is longer than other programs take between their reading and their write, as a rule.
	settleTime = 500 * time.Millisecond
)

// Change changes the metadata of a queue. The service can only replace them as a whole, and on no
// condition. So Change reads them, writes them with the change, reads them again after a moment, and
// repeats that if the change is not in them: another program has read before this write and written
// after it. All other names are written as they were just read: what another program writes between
// that reading and the write is lost, which nobody can see.
//
// Edit changes what was read, and reports whether that must be written. It is called for each
// reading. The key spreads the waits of several callers. Change reports whether anything was
// written. A request that fails for a while, or has no response, is repeated too.
func Change(ctx context.Context, q queue.Manager, key string, edit func(metadata map[string]string) bool) (changed bool, err error) {
	for tries := 0; ; {
		found, err := q.Properties(ctx)
		if err == nil {
			metadata := maps.Clone(found.Metadata)
			if metadata == nil {
				metadata = make(map[string]string)
			}
			if !edit(metadata) {
				return changed, nil
			}
			if tries == maxTries {
				return changed, fmt.Errorf("change the metadata of the queue %v: another program has replaced them after each of %d tries: stop it, or try again", q.Name(), tries)
			}
			err = q.SetMetadata(ctx, metadata)
			changed = true
		}
		tries++
		if err != nil && (!queue.Transient(err) || tries >= maxTries) {
			return changed, err
		}
		if !pause.For(settleTime+time.Duration(jitter.Of(key, tries)*float64(settleTime)/2), ctx.Done()) {
			return changed, ctx.Err()
		}
	}
}
