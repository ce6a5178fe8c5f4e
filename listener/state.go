package listener

import "time"

// State is what a listener is doing: the source's QueryState (L-02) grown up. The
// counts are of this listener since its start.
type State struct {
	Depth   int64     // the depth last read: approximate, invisible messages included; see DepthAt
	DepthAt time.Time // when it was read; zero when it never was

	Loops        int // dequeue loops that run now
	LoopsPeak    int // most loops at once
	LoopsStarted int // all loops ever started

	Running  int // handlers that run now
	Settling int // settlements under way

	Polls      int64 // dequeues that were answered
	EmptyPolls int64 // those of them that found nothing
	Received   int64 // messages dequeued
	Renewed    int64 // leases renewed
	Errors     int64 // errors of any kind

	Succeeded int64 // handled and deleted
	Retried   int64 // failed and given back with a delay
	Discarded int64 // deleted unhandled, because the handler said so
	Poisoned  int64 // moved to the poison queue
	Kept      int64 // poison that stays hidden in its queue
	Snoozed   int64 // given back for later, no attempt recorded
	GivenBack int64 // given back unhandled, when stopping
	Lost      int64 // deliveries whose lease was lost
	Unsettled int64 // deliveries that the service would not let us settle
	Late      int64 // settlements that failed because the visibility had ended (V-05)

	Visibility time.Duration // what the next dequeue will ask for
}
