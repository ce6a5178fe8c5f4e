package emulator

// grant is what a shared access signature must have for an operation (Create an
// account SAS, "Account SAS permissions by operation", and Create a service SAS,
// "Permissions for a queue").
type grant struct {
	resource string // the resource type of an account SAS
	account  string // letters of an account SAS, of which one is enough; "" allows none
	queue    string // the letter of a SAS of one queue; "" allows none
}

// needs returns what a signature must have for the operation. Who may do what
// with access policies, and who gets keys, is for keys and tokens alone to say.
func (op Operation) needs() grant {
	switch op {
	case ListQueues:
		return grant{"s", "l", ""}
	case GetServiceProperties, GetServiceStats:
		return grant{"s", "r", ""}
	case SetServiceProperties:
		return grant{"s", "w", ""}
	case CreateQueue:
		return grant{"c", "cw", ""}
	case DeleteQueue:
		return grant{"c", "d", ""}
	case GetQueueMetadata:
		return grant{"c", "r", "r"}
	case SetQueueMetadata:
		return grant{"c", "w", ""}
	case GetQueueACL, SetQueueACL:
		return grant{"c", "", ""}
	case PutMessage:
		return grant{"o", "a", "a"}
	case GetMessages, DeleteMessage:
		return grant{"o", "p", "p"}
	case PeekMessages:
		return grant{"o", "r", "r"}
	case UpdateMessage:
		return grant{"o", "u", "u"}
	case ClearMessages:
		return grant{"o", "d", ""}
	}
	return grant{"s", "", ""}
}

// reads reports whether the operation changes nothing, so that the secondary
// location has it too.
func (op Operation) reads() bool {
	switch op {
	case ListQueues, GetQueueMetadata, GetQueueACL, PeekMessages, GetServiceProperties, GetServiceStats:
		return true
	}
	return false
}

// hasBody reports whether requests of the operation have a body.
func (op Operation) hasBody() bool {
	switch op {
	case PutMessage, UpdateMessage, SetQueueACL, SetServiceProperties, GetDelegationKey:
		return true
	}
	return false
}
