package emulator

// permission is what a shared access signature must have for an operation (Create an account SAS,
// "Account SAS permissions by operation", and Create a service SAS, "Permissions for a queue").
type permission struct {
	resource string // resource type of an account SAS
	account  string // letters of an account SAS, any of which suffices; "" allows none
	queue    string // letters of a service SAS, any of which suffices; "" allows none
}

// permission returns what a signature must have for the operation. Access policies and delegation
// keys require an account key or a token.
func (op Operation) permission() permission {
	switch op {
	case ListQueues:
		return permission{"s", "l", ""}
	case GetServiceProperties, GetServiceStats, GetFaults:
		return permission{"s", "r", ""}
	case SetServiceProperties, SetFaults, ClearFaults:
		return permission{"s", "w", ""}
	case CreateQueue:
		return permission{"c", "cw", ""}
	case DeleteQueue:
		return permission{"c", "d", ""}
	case GetQueueMetadata:
		return permission{"c", "r", "r"}
	case SetQueueMetadata:
		return permission{"c", "w", ""}
	case GetQueueACL, SetQueueACL:
		return permission{"c", "", ""}
	case PutMessage:
		return permission{"o", "a", "a"}
	case GetMessages, DeleteMessage, OpenWakeups, ReadyWakeups: // a stream takes wake-ups from workers
		return permission{"o", "p", "p"}
	case PeekMessages:
		return permission{"o", "r", "r"}
	case UpdateMessage:
		return permission{"o", "u", "u"}
	case ClearMessages:
		return permission{"o", "d", ""}
	}
	return permission{"s", "", ""}
}
