package emulator

import "sync/atomic"

// Operation is one of the service's operations, under the name that its storage
// logs and bills use.
type Operation string

// The operations.
const (
	ListQueues       Operation = "ListQueues"
	CreateQueue      Operation = "CreateQueue"
	DeleteQueue      Operation = "DeleteQueue"
	GetQueueMetadata Operation = "GetQueueMetadata"
	SetQueueMetadata Operation = "SetQueueMetadata"
	PutMessage       Operation = "PutMessage"
	GetMessages      Operation = "GetMessages"
	PeekMessages     Operation = "PeekMessages"
	ClearMessages    Operation = "ClearMessages"
	UpdateMessage    Operation = "UpdateMessage"
	DeleteMessage    Operation = "DeleteMessage"
	GetQueueACL      Operation = "GetQueueAcl"
	SetQueueACL      Operation = "SetQueueAcl"

	GetServiceProperties Operation = "GetQueueServiceProperties"
	SetServiceProperties Operation = "SetQueueServiceProperties"
	GetServiceStats      Operation = "GetQueueServiceStats"
	GetDelegationKey     Operation = "GetUserDelegationKey"
	Preflight            Operation = "QueuePreflightRequest"

	Unknown Operation = "Unknown" // a request that is none of the others
)

// Counts are the requests since a [Server] was made. The zero value is none.
type Counts struct {
	// Operations is how many requests came for each operation, successful or
	// not. Operations that nobody asked for are left out.
	Operations map[Operation]int64

	// Statuses is how many responses were given of each class: 2 for 2xx and
	// so on. A request that its client gave up has none, nor one whose
	// connection a fault on demand broke.
	Statuses map[int]int64

	// EmptyGets is how many GetMessages succeeded and found nothing: polls
	// that are paid and bring nothing.
	EmptyGets int64

	// Messages is how many messages GetMessages has handed out.
	Messages int64

	// Faults is how many faults of each kind were injected. A duplicate
	// counts as two requests in Operations.
	Faults map[FaultKind]int64

	// Throttled is how many requests were refused for [Options].Limits. They
	// are in Operations and Statuses too.
	Throttled int64
}

// Requests returns the number of all requests: the transactions of a bill.
func (c Counts) Requests() int64 {
	var sum int64
	for _, n := range c.Operations {
		sum += n
	}
	return sum
}

// counters are what [Counts] is taken from. They are separate atomics: a
// snapshot taken while requests run may be a few requests apart in itself.
type counters struct {
	operations map[Operation]*atomic.Int64 // the map never changes
	statuses   [6]atomic.Int64             // by class
	emptyGets  atomic.Int64
	messages   atomic.Int64
	throttled  atomic.Int64
}

func newCounters() *counters {
	c := &counters{operations: make(map[Operation]*atomic.Int64)}
	for _, op := range []Operation{ListQueues, CreateQueue, DeleteQueue, GetQueueMetadata, SetQueueMetadata,
		PutMessage, GetMessages, PeekMessages, ClearMessages, UpdateMessage, DeleteMessage,
		GetQueueACL, SetQueueACL, GetServiceProperties, SetServiceProperties, GetServiceStats, GetDelegationKey, Preflight, Unknown} {
		c.operations[op] = new(atomic.Int64)
	}
	return c
}

func (c *counters) arrived(op Operation) { c.operations[op].Add(1) }
func (c *counters) answered(status int)  { c.statuses[status/100].Add(1) }

func (c *counters) got(messages int) {
	if messages == 0 {
		c.emptyGets.Add(1)
	}
	c.messages.Add(int64(messages))
}

// Counts returns how many requests there were so far. It costs no request.
func (s *Server) Counts() Counts {
	out := Counts{
		Operations: map[Operation]int64{},
		Statuses:   map[int]int64{},
		EmptyGets:  s.counters.emptyGets.Load(),
		Messages:   s.counters.messages.Load(),
		Faults:     s.faults.counts(),
		Throttled:  s.counters.throttled.Load(),
	}
	for op, n := range s.counters.operations {
		if n := n.Load(); n > 0 {
			out.Operations[op] = n
		}
	}
	for class := range s.counters.statuses {
		if n := s.counters.statuses[class].Load(); n > 0 {
			out.Statuses[class] = n
		}
	}
	return out
}
