package roles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// CleanAge is the age up to which [Clean] keeps what belongs to no request that has ended.
const CleanAge = time.Hour

// Cleaned says what [Clean] has removed, or would remove.
type Cleaned struct {
	Requests int // that had blobs which nobody needs
	Blobs    int // of these requests, and tile libraries
	Bytes    int64
	Kept     []string // why something was kept, such as a mosaic that nobody has fetched
}

// Clean removes what is left of requests that have ended. If there are no messages, so that no role is at
// work, it also removes requests and tile libraries that are older than [CleanAge], such as those of killed
// clients. A mosaic that nobody has fetched is kept. It may run while roles work, and it may be repeated. A dry run
// removes nothing.
func Clean(ctx context.Context, open func(name string) (queue.Queue, error), store blob.Store, dry bool) (c Cleaned, err error) {
	j, err := newJobs(store)
	if err != nil {
		return c, err
	}
	// The messages first: a request that is submitted later has young blobs.
	messages, err := countMessages(ctx, open)
	if err != nil {
		return c, err
	}
	newest := make(map[uuid.UUID]time.Time)
	left := make(map[uuid.UUID][]blob.Info)
	for _, container := range []string{imageInput, sliceRequests, sliceResponses, imageOutput, jobState} {
		for b, err := range store.List(ctx, container, "") {
			if err != nil {
				return c, err
			}
			name, _, _ := strings.Cut(b.Ref.Name, "/")
			name, _, _ = strings.Cut(name, ".")
			id, err := uuid.Parse(name)
			if err != nil {
				continue // not one of ours
			}
			left[id] = append(left[id], b)
			if b.Modified.After(newest[id]) {
				newest[id] = b.Modified
			}
		}
	}
	remove := func(b blob.Info) {
		if !dry && err == nil {
			err = store.Delete(ctx, b.Ref)
		}
		if err == nil {
			c.Blobs++
			c.Bytes += b.Size
		}
	}
	for id, blobs := range left {
		e, failed := j.ended(ctx, id)
		if failed != nil {
			return c, failed
		}
		idle := messages == 0 && time.Since(newest[id]) > CleanAge
		switch {
		case e == nil && !idle:
			c.Kept = append(c.Kept, fmt.Sprintf("request %v: it is younger than %v, or messages may refer to it", id, CleanAge))
			continue
		case e != nil && e.Output != "":
			output, failed := blob.Parse(e.Output)
			if failed != nil {
				return c, failed
			}
			c.Kept = append(c.Kept, fmt.Sprintf("the mosaic of request %v, which nobody has fetched: %s", id, whereIs(store, output)))
			continue
		}
		before := c.Blobs
		for _, b := range blobs {
			if b.Ref != endRef(id) {
				remove(b)
			}
		}
		for _, b := range blobs {
			if b.Ref == endRef(id) && idle { // last, so that an interrupted removal leaves a request that has ended
				remove(b)
			}
		}
		if c.Blobs > before {
			c.Requests++
		}
	}
	for b, failed := range store.List(ctx, imageLibrary, "") {
		if failed != nil {
			return c, failed
		}
		if messages == 0 && time.Since(b.Modified) > CleanAge {
			remove(b)
		}
	}
	return c, err
}

// countMessages returns about how many messages the queues have.
func countMessages(ctx context.Context, open func(name string) (queue.Queue, error)) (n int64, err error) {
	for _, name := range QueueNames() {
		q, err := open(name)
		if err != nil {
			return 0, err
		}
		found, err := q.Properties(ctx)
		if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			return 0, err
		}
		n += found.Depth
	}
	return n, nil
}
