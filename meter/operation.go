package meter

import "fmt"

// Operation is a method of a queue that sends a request.
type Operation uint8

// The operations.
const (
	Enqueue Operation = iota
	Dequeue
	Peek
	Update
	Delete
	Properties
	Create
	SetMetadata
	Clear
	Drop

	operations // how many there are
)

var operationNames = [operations]string{
	"enqueue", "dequeue", "peek", "update", "delete", "properties", "create", "setmetadata", "clear", "drop",
}

// String returns the name of the operation, such as "dequeue".
func (o Operation) String() string {
	if o >= operations {
		return fmt.Sprintf("Operation(%d)", int(o))
	}
	return operationNames[o]
}

// MarshalText returns the name of the operation, for JSON and logs. One that does not exist is an
// error.
func (o Operation) MarshalText() ([]byte, error) {
	if o >= operations {
		return nil, fmt.Errorf("meter: %v is no operation", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText parses what [Operation.MarshalText] returns.
func (o *Operation) UnmarshalText(text []byte) error {
	for i, name := range operationNames {
		if name == string(text) {
			*o = Operation(i)
			return nil
		}
	}
	return fmt.Errorf("meter: no operation has the name %q", text)
}
