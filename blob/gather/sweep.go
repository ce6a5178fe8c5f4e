package gather

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/millrace/millrace/blob"
)

// ErrNotEnded means that no end of the gather is recorded, so that its parts are still needed.
var ErrNotEnded = errors.New("the gather has not ended")

// Sweep deletes the parts of a gather that has ended, and keeps its end. It can be repeated, and should be when a message
// comes after the end, because its part may be stored again: [Gather.Complete] and [Gather.Once] send every such message this
// way. It fails with [ErrNotEnded] if no end is recorded. A part that cannot be deleted does not keep the others: the
// first error is returned in the end. It takes a call of the store for each part, one after the other, and two more.
func (g *Gather) Sweep(ctx context.Context, id string) error {
	if err := check(id, 0, 0); err != nil {
		return failed(id, "sweep", err)
	}
	ended, err := blob.Exists(ctx, g.store, g.EndRef(id))
	if err == nil && !ended {
		err = fmt.Errorf("%w: its parts are kept until Once has recorded its end", ErrNotEnded)
	}
	if err == nil {
		err = g.sweep(ctx, id)
	}
	return failed(id, "sweep", err)
}

// Forget deletes the parts of a gather and then its end, as if it had never been. It can be repeated. It is for a gather of which
// no message can come any more: a message that does begins the gather anew, and it never completes. A gather that has not
// ended is forgotten too.
func (g *Gather) Forget(ctx context.Context, id string) error {
	if err := check(id, 0, 0); err != nil {
		return failed(id, "forget", err)
	}
	g.watches.forget(id)
	err := g.sweep(ctx, id)
	if err == nil {
		// The end last: an interrupted Forget leaves a gather that has ended.
		err = g.store.Delete(ctx, g.EndRef(id))
	}
	return failed(id, "forget", err)
}

// sweep deletes the parts that are stored, whatever their numbers.
func (g *Gather) sweep(ctx context.Context, id string) error {
	var first error
	for ref, err := range g.refs(ctx, id) {
		if err == nil {
			if _, ok := g.number(id, ref); !ok {
				continue
			}
			err = g.store.Delete(ctx, ref)
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil && first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

// turns let one caller at a time through for each id. Unlike for a mutex, waiting ends with the context.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn ends; guarded by mu
}

// take waits for the turn, which lasts until release is called.
func (t *turns) take(ctx context.Context, id string) (release func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other, taken := t.held[id]
		if !taken {
			t.held[id] = mine
		}
		t.mu.Unlock()
		if !taken {
			return func() {
				t.mu.Lock()
				delete(t.held, id)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// nothing stands for no part.
const nothing = -1

// watch is what this process remembers of a gather. Every part must be followed by a look at the store that begins after it
// was stored. Those who wait while another look is under way share the one that follows, because that begins
// after all of them came.
type watch struct {
	parts   int
	looking chan struct{} // has a value while a look is under way

	mu      sync.Mutex
	missing int   // a part that was missing when this process last looked, or nothing; guarded by mu
	begun   int64 // looks; guarded by mu
	ended   int64 // the number of the last look that ended without an error; guarded by mu
	done    bool  // its result: no part is missing; guarded by mu
}

// look returns whether no part is missing, as found by one that began after the call. The
// function takes the part that was missing and returns one that is missing now.
func (w *watch) look(ctx context.Context, find func(missing int) (int, error)) (bool, error) {
	w.mu.Lock()
	earlier := w.begun
	w.mu.Unlock()
	select {
	case w.looking <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-w.looking }()

	w.mu.Lock()
	if w.ended > earlier {
		defer w.mu.Unlock()
		return w.done, nil
	}
	w.begun++
	mine, missing := w.begun, w.missing
	w.mu.Unlock()

	missing, err := find(missing)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing, w.ended, w.done = missing, mine, missing == nothing
	return w.done, nil
}

// watches are the watches of a process, by gather. It is safe for concurrent use.
type watches struct {
	limit int

	mu   sync.Mutex
	byID map[string]*watch // guarded by mu
}

// get returns the watch of a gather. If there are too many it forgets any other one.
func (ws *watches) get(id string, parts int) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil && w.parts == parts {
		return w
	}
	delete(ws.byID, id)
	for other := range ws.byID {
		if len(ws.byID) < ws.limit {
			break
		}
		delete(ws.byID, other)
	}
	w := &watch{parts: parts, missing: nothing, looking: make(chan struct{}, 1)}
	ws.byID[id] = w
	return w
}

func (ws *watches) forget(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byID, id)
}

// choose returns one of the parts that are not stored, or nothing if all are. It is random, so that on average half of those
// that are missing are stored before it, whatever their order; and it is the same in every run.
func choose(id string, stored []bool) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	seed := h.Sum64()
	chosen, highest := nothing, uint64(0)
	for n, there := range stored {
		if there {
			continue
		}
		if v := mix(seed + uint64(n)); chosen == nothing || v > highest {
			chosen, highest = n, v
		}
	}
	return chosen
}

// mix spreads the bits of a number over the whole of it, as SplitMix64 does.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
