package dispatcher

import "github.com/millrace/millrace/queue"

// SetupError tells that parts of a program which are right by themselves cannot work
// together as meant. It goes to Options.OnError once, and nothing is lost over it.
type SetupError struct {
	Queue  queue.Name
	Detail string // what cannot work, and what to change
}

// Error says it in one line.
func (e *SetupError) Error() string { return "worker of " + e.Queue.String() + ": " + e.Detail }
