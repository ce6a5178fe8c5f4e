package emulator

// Operation is an operation of the service, under the name in its storage logs and bills.
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

	// These are Millrace's own. They are not billed, and have no faults.
	OpenWakeups  Operation = "OpenWakeups"
	ReadyWakeups Operation = "ReadyWakeups"
	GetFaults    Operation = "GetFaults"
	SetFaults    Operation = "SetFaults"
	ClearFaults  Operation = "ClearFaults"

	Unknown Operation = "Unknown" // any other request
)

// operations are all operations in display order.
var operations = []Operation{PutMessage, GetMessages, PeekMessages, UpdateMessage, DeleteMessage, ClearMessages,
	ListQueues, CreateQueue, DeleteQueue, GetQueueMetadata, SetQueueMetadata, GetQueueACL, SetQueueACL,
	GetServiceProperties, SetServiceProperties, GetServiceStats, GetDelegationKey, Preflight, OpenWakeups, ReadyWakeups, GetFaults, SetFaults, ClearFaults, Unknown}

// isRead reports whether the operation changes nothing, so that the secondary location supports
// it.
func (op Operation) isRead() bool {
	switch op {
	case ListQueues, GetQueueMetadata, GetQueueACL, PeekMessages, GetServiceProperties, GetServiceStats:
		return true
	}
	return false
}

// isBilled reports whether a request of the operation is a transaction: the service has neither wake-ups
// nor faults on demand.
func (op Operation) isBilled() bool {
	return op != OpenWakeups && op != ReadyWakeups && !op.isControl()
}

// isControl reports whether the operation controls the server itself. Neither faults nor limits stop
// it, because it must be possible to end them.
func (op Operation) isControl() bool {
	return op == GetFaults || op == SetFaults || op == ClearFaults
}

func (op Operation) hasBody() bool {
	switch op {
	case PutMessage, UpdateMessage, SetQueueACL, SetServiceProperties, GetDelegationKey:
		return true
	}
	return false
}
