package gather

import (
	"context"
	"hash/fnv"
	"sync"
)

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

func newWatches(limit int) *watches { return &watches{limit: limit, byID: make(map[string]*watch)} }

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
