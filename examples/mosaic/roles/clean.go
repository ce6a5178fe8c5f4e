package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// CleanAge is the age up to which [Clean] keeps what belongs to no request that has ended: a request
// may just be submitted.
const CleanAge = time.Hour

// CleanOptions configure [Clean]. Nil and the zero value mean the defaults.
type CleanOptions struct {
	// DryRun removes nothing. Defaults to false.
	DryRun bool
}

// Cleaned says what [Clean] has removed, or would remove.
type Cleaned struct {
	Ended     int   // requests that had ended, with blobs that were left
	Orphans   int   // requests that had not ended, and that no message refers to
	Libraries int   // tile libraries
	Blobs     int   // of all these
	Bytes     int64 // of these blobs
	Kept      []Kept
}

// Kept is a request that [Clean] has kept.
type Kept struct {
	Request uuid.UUID
	Why     string
	Where   string // its mosaic, if nobody has fetched that; otherwise ""
}

// leftover is what the store has of a request.
type leftover struct {
	blobs  []blob.Info
	newest time.Time
	ended  bool
}

// Clean removes what is left of requests that have ended, and of those that are older than [CleanAge] and that no
// message refers to, as those of killed clients. A mosaic that nobody has fetched is kept. It may run
// while roles work, and on each failure it may be repeated.
func Clean(ctx context.Context, open func(name string) (queue.Queue, error), store blob.Store, o *CleanOptions) (Cleaned, error) {
	c := cleaner{jobs: newJobs(store), store: store, dry: o != nil && o.DryRun}
	// The messages first: a request that is submitted later has young blobs.
	if err := c.readMessages(ctx, open); err != nil {
		return c.done, err
	}
	left, err := c.leftovers(ctx)
	if err != nil {
		return c.done, err
	}
	inUse := false
	for _, id := range slices.SortedFunc(maps.Keys(left), compareIDs) {
		used, err := c.request(ctx, id, left[id])
		if err != nil {
			return c.done, err
		}
		inUse = inUse || used
	}
	if !inUse && c.hidden == 0 {
		err = c.libraries(ctx)
	}
	return c.done, err
}

func compareIDs(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) }

// cleaner is one run of Clean.
type cleaner struct {
	jobs   jobs
	store  blob.Store
	dry    bool
	refers map[uuid.UUID]bool // requests of the messages that can be seen
	hidden int64              // about how many messages cannot be seen
	done   Cleaned
}

// readMessages reads which requests have messages. The queues are read in the order in which a request
// moves through them, so that none is missed.
func (c *cleaner) readMessages(ctx context.Context, open func(name string) (queue.Queue, error)) error {
	c.refers = make(map[uuid.UUID]bool)
	for _, name := range []string{imageRequests, sliceRequests, sliceResponses, imageResponses} {
		q, err := open(name)
		if err != nil {
			return err
		}
		found, err := q.Properties(ctx)
		if errors.Is(err, queue.ErrQueueMissing) {
			continue
		}
		if err != nil {
			return err
		}
		if found.Depth == 0 {
			continue
		}
		visible, err := q.Peek(ctx, queue.MaxBatch)
		if err != nil {
			return err
		}
		for _, m := range visible {
			if id, ok := requestOf(m.Text); ok {
				c.refers[id] = true
			}
		}
		c.hidden += max(found.Depth-int64(len(visible)), 0)
	}
	return nil
}

// leftovers lists the blobs of all requests.
func (c *cleaner) leftovers(ctx context.Context) (map[uuid.UUID]*leftover, error) {
	left := make(map[uuid.UUID]*leftover)
	for _, container := range []string{imageInput, sliceRequests, sliceResponses, imageOutput, jobState} {
		for b, err := range c.store.List(ctx, container, "") {
			if err != nil {
				return nil, err
			}
			id, ok := ownerOf(b.Ref)
			if !ok {
				continue // not one of ours
			}
			l := left[id]
			if l == nil {
				l = &leftover{}
				left[id] = l
			}
			l.ended = l.ended || b.Ref == endRef(id)
			if b.Modified.After(l.newest) {
				l.newest = b.Modified
			}
			l.blobs = append(l.blobs, b)
		}
	}
	return left, nil
}

// ownerOf returns the request that a blob belongs to: its name begins with the id.
func ownerOf(ref blob.Ref) (uuid.UUID, bool) {
	name, _, _ := strings.Cut(ref.Name, "/")
	name, _, _ = strings.Cut(name, ".")
	id, err := uuid.Parse(name)
	return id, err == nil && id.String() == name
}

// request removes what may go of a request. It reports whether the request may continue.
func (c *cleaner) request(ctx context.Context, id uuid.UUID, l *leftover) (inUse bool, err error) {
	// No handler may still need the record of the end, and no client wait for it.
	idle := c.hidden == 0 && !c.refers[id] && time.Since(l.newest) > CleanAge
	if l.ended {
		e, err := c.jobs.ended(ctx, id)
		if err != nil || e == nil { // deleted meanwhile
			return false, err
		}
		if e.Output != "" {
			return false, c.keepMosaic(id, e.Output)
		}
		rest := slices.DeleteFunc(l.blobs, func(b blob.Info) bool { return !idle && b.Ref == endRef(id) })
		if len(rest) > 0 {
			c.done.Ended++
		}
		return false, c.remove(ctx, rest)
	}
	switch {
	case idle:
		c.done.Orphans++
		return false, c.remove(ctx, l.blobs)
	case c.refers[id]:
		c.keep(id, "messages refer to it")
	case c.hidden > 0:
		c.keep(id, fmt.Sprintf("messages that are being handled, about %d, may refer to it", c.hidden))
	default:
		c.keep(id, fmt.Sprintf("it is younger than %v", CleanAge))
	}
	return true, nil
}

func (c *cleaner) keep(id uuid.UUID, why string) {
	c.done.Kept = append(c.done.Kept, Kept{Request: id, Why: why})
}

// keepMosaic keeps a mosaic that nobody has fetched: it is what all the work was for.
func (c *cleaner) keepMosaic(id uuid.UUID, output string) error {
	ref, err := blob.Parse(output)
	if err != nil {
		return err
	}
	c.done.Kept = append(c.done.Kept, Kept{Request: id, Why: "nobody has fetched its mosaic", Where: whereIs(c.store, ref)})
	return nil
}

// libraries removes the tile libraries that no request uses.
func (c *cleaner) libraries(ctx context.Context) error {
	var old []blob.Info
	for b, err := range c.store.List(ctx, imageLibrary, "") {
		if err != nil {
			return err
		}
		if time.Since(b.Modified) > CleanAge {
			old = append(old, b)
		}
	}
	for _, b := range old {
		// It may have been stored again since it was listed, for a request that is being submitted.
		now, err := c.store.Stat(ctx, b.Ref)
		switch {
		case errors.Is(err, blob.ErrMissing):
			continue
		case err != nil:
			return err
		case time.Since(now.Modified) <= CleanAge:
			continue
		}
		if err := c.remove(ctx, []blob.Info{b}); err != nil {
			return err
		}
		c.done.Libraries++
	}
	return nil
}

func (c *cleaner) remove(ctx context.Context, blobs []blob.Info) error {
	// The end last, so that an interrupted removal leaves a request that has ended.
	slices.SortStableFunc(blobs, func(a, b blob.Info) int { return cmp.Compare(last(a.Ref), last(b.Ref)) })
	for _, b := range blobs {
		if !c.dry {
			if err := c.store.Delete(ctx, b.Ref); err != nil {
				return err
			}
		}
		c.done.Blobs++
		c.done.Bytes += b.Size
	}
	return nil
}

// last is 1 for a record of an end.
func last(ref blob.Ref) int {
	if id, ok := ownerOf(ref); ok && ref == endRef(id) {
		return 1
	}
	return 0
}
