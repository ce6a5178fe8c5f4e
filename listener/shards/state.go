package shards

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// State describes what a [Listener] is doing.
type State struct {
	Phase  listener.Phase
	Total  listener.State // of all shards: see [Listener.State]
	Shards []ShardState   // ordered by name
}

// ShardState describes a shard. The counts are of its listener; a shard that was refused by the service
// has a new one for each try.
type ShardState struct {
	Shard   queue.Name
	Leaving bool  // it is being removed
	Refused error `json:"-"` // why the service refuses it; nil unless it rests for that reason
	listener.State
}

// Ready reports whether every shard is ready, except those that are being removed. Use it for a
// readiness probe: a new release that cannot reach one of its shards does not replace the old one. If
// one shard must not keep a worker from being ready, decide by Shards.
func (s State) Ready() bool {
	return s.Phase == listener.Running && !slices.ContainsFunc(s.Shards, func(one ShardState) bool { return !one.Leaving && !one.Ready() })
}

// Healthy reports whether Run has not returned: see [listener.State.Healthy]. Use it for a liveness
// probe.
func (s State) Healthy() bool { return s.Phase != listener.Stopped }

// State returns what the listener is doing. It sends no request.
//
// In Total the counts are sums, those of removed shards included, and so are Loops, Running, Settling, Delayed,
// the rates, which are unknown while that of a shard is, and Depth; Slots are those that all share; Handling is the mean by
// what each shard ends; DepthAt is that of the oldest depth among them. LoopsPeak is the sum of the peaks, which may
// not have been at one time. LastPoll and LastError are the newest. PollError joins those of all
// shards. PausedBy says what pauses all shards, and PausedSince since when; Listening whether events
// reach all. Visibility is the longest.
func (l *Listener[T]) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := State{Phase: l.phase, Total: l.past}
	st.Total.Phase = l.phase
	read := l.readings.Counts().Total()
	st.Total.Requests += read.Requests
	add(&st.Total.ByCause, map[string]int64{"depth": read.Requests})
	add(&st.Total.ByFailure, map[string]int64{"throttled": read.Throttled, "unreached": read.Unreached, "failed": read.Failed})
	for _, s := range l.shards {
		st.Shards = append(st.Shards, s.state())
	}
	slices.SortFunc(st.Shards, func(a, b ShardState) int {
		return cmp.Or(cmp.Compare(a.Shard.Account, b.Shard.Account), cmp.Compare(a.Shard.Queue, b.Shard.Queue))
	})
	for i, one := range st.Shards {
		addCounts(&st.Total, one.State)
		addPresent(&st.Total, one, i == 0)
	}
	addRates(&st.Total, st.Shards)
	return st
}

// state returns the state of the shard. Requires all.mu.
func (s *shard[T]) state() ShardState {
	st := ShardState{Shard: s.name, Leaving: s.removal != nil, Refused: s.refused(), State: s.listener.State()}
	st.PollError = cmp.Or(st.PollError, st.Refused)
	return st
}

// addCounts adds what only grows, so that it may be of a listener that has ended.
func addCounts(sum *listener.State, s listener.State) {
	for _, one := range []struct {
		sum *int64
		of  int64
	}{
		{&sum.Requests, s.Requests}, {&sum.Polls, s.Polls}, {&sum.EmptyPolls, s.EmptyPolls}, {&sum.Received, s.Received},
		{&sum.Renewed, s.Renewed}, {&sum.Errors, s.Errors},
		{&sum.Late, s.Late}, {&sum.Limited, s.Limited},
	} {
		*one.sum += one.of
	}
	sum.LoopsStarted += s.LoopsStarted
	add(&sum.Outcomes, s.Outcomes)
	add(&sum.ByCause, s.ByCause)
	add(&sum.ByFailure, s.ByFailure)
	sum.LastPoll = later(sum.LastPoll, s.LastPoll)
	if s.LastError != nil && !s.LastErrorAt.Before(sum.LastErrorAt) {
		sum.LastError, sum.LastErrorAt = s.LastError, s.LastErrorAt
	}
}

// add adds the counts to a new map: the map of the sum may be that of another state.
func add[K comparable](sum *map[K]int64, counts map[K]int64) {
	total := maps.Clone(*sum)
	for name, n := range counts {
		if n == 0 {
			continue
		}
		if total == nil {
			total = map[K]int64{}
		}
		total[name] += n
	}
	*sum = total
}

// addPresent adds what is so now.
func addPresent(sum *listener.State, s ShardState, first bool) {
	sum.Loops += s.Loops
	sum.LoopsPeak += s.LoopsPeak
	sum.Slots = max(sum.Slots, s.Slots) // all share them
	sum.BatchSize = max(sum.BatchSize, s.BatchSize)
	sum.Delayed += s.Delayed
	sum.Running += s.Running
	sum.Settling += s.Settling
	if !s.DepthAt.IsZero() {
		sum.Depth += s.Depth
		if sum.DepthAt.IsZero() || s.DepthAt.Before(sum.DepthAt) {
			sum.DepthAt = s.DepthAt
		}
	}
	if s.PollError != nil {
		sum.PollError = errors.Join(sum.PollError, &Error{Shard: s.Shard, Err: s.PollError})
	}
	if first {
		sum.PausedBy, sum.Listening = s.PausedBy, s.Listening
	}
	sum.PausedBy = common(sum.PausedBy, s.PausedBy)
	sum.PausedSince = later(sum.PausedSince, s.PausedSince)
	if sum.PausedBy == listener.NotPaused {
		sum.PausedSince = time.Time{}
	}
	sum.Listening = sum.Listening && s.Listening
	sum.Visibility = max(sum.Visibility, s.Visibility)
}

// common returns who pauses both.
func common(a, b listener.PausedBy) listener.PausedBy {
	switch {
	case a == b, b == listener.ByProgramAndQueue:
		return a
	case a == listener.ByProgramAndQueue:
		return b
	}
	return listener.NotPaused
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// addRates sets the rates of all shards together: sums, and the mean of the handling times by how much each shard
// ends. A sum is unknown while that of a shard is.
func addRates(sum *listener.State, shards []ShardState) {
	if len(shards) == 0 {
		return
	}
	sum.Arrival = total(shards, func(s *listener.State) listener.Optional[float64] { return s.Arrival })
	sum.Intake = total(shards, func(s *listener.State) listener.Optional[float64] { return s.Intake })
	sum.Service = total(shards, func(s *listener.State) listener.Optional[float64] { return s.Service })
	var weighted, weight, plain, known float64
	for _, one := range shards {
		if took, ok := one.Handling.Get(); ok {
			rate := one.Service.Or(0)
			weighted, weight = weighted+rate*took.Seconds(), weight+rate
			plain, known = plain+took.Seconds(), known+1
		}
	}
	if weight == 0 {
		weighted, weight = plain, known
	}
	if weight > 0 {
		sum.Handling = scaling.Known(time.Duration(weighted / weight * float64(time.Second)))
	}
}

// total returns the sum of a rate, unknown if any is.
func total(shards []ShardState, rate func(*listener.State) listener.Optional[float64]) listener.Optional[float64] {
	sum := 0.0
	for i := range shards {
		one, known := rate(&shards[i].State).Get()
		if !known {
			return listener.Optional[float64]{}
		}
		sum += one
	}
	return scaling.Known(sum)
}

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
