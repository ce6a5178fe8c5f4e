package emulator

// grant is what a shared access signature must have for an operation (Create an
// account SAS, "Account SAS permissions by operation", and Create a service SAS,
// "Permissions for a queue").
type permission struct {
	resource string // the resource type of an account SAS
	account  string // letters of an account SAS, of which one is enough; "" allows none
	queue    string // the letter of a SAS of one queue; "" allows none
}

// needs returns what a signature must have for the operation. Who may do what
// with access policies, and who gets keys, is for keys and tokens alone to say.
func (op Operation) permission() permission {
	switch op {
	case ListQueues:
		return permission{"s", "l", ""}
	case GetServiceProperties, GetServiceStats:
		return permission{"s", "r", ""}
	case SetServiceProperties:
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
	case GetMessages, DeleteMessage:
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
