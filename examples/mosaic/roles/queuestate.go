package roles

import (
	"github.com/google/uuid"

	"github.com/millrace/millrace/listener"
)

// QueueNames returns the names of the four queues, in the order in which a request passes them.
func QueueNames() []string {
	return []string{imageRequests, sliceRequests, sliceResponses, imageResponses}
}

// States returns what the listeners of this process do, by the name of the queue. Queues of roles that this process does
// not play are not in it.
func (s *System) States() map[string]listener.State {
	states := make(map[string]listener.State, len(s.listeners))
	for i, l := range s.listeners {
		states[s.names[i]] = l.State()
	}
	return states
}

// ProcessorQueue is the name of the queue of the image processors.
const ProcessorQueue = sliceRequests

// RequestOf returns the id of the request that a message belongs to, whatever its queue, and false if it names none.
func RequestOf(text string) (uuid.UUID, bool) { return requestOf(text) }
