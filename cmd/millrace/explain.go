package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// explainedError is an error in the terms of this command.
type explainedError struct {
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

// explain says what failed, and what to do about it with this command.
func (t *task) explain(err error) error {
	known := (*queue.Error)(nil)
	if errors.As(err, new(*explainedError)) || !errors.As(err, &known) {
		return err
	}
	switch {
	case errors.Is(known.Kind, queue.ErrQueueMissing) && strings.HasSuffix(known.Queue.Queue, poison.Suffix):
		return &explainedError{fmt.Sprintf("queue %v does not exist; a worker creates it for its first poison message", known.Queue), err}
	case errors.Is(known.Kind, queue.ErrQueueMissing):
		return &explainedError{fmt.Sprintf("queue %v does not exist; create it with millrace create %s, or list the queues with millrace queues", known.Queue, known.Queue.Queue), err}
	case errors.Is(known.Kind, queue.ErrQueueBeingDeleted):
		return &explainedError{fmt.Sprintf("queue %v is being deleted; its name is free again after half a minute or more", known.Queue), err}
	case errors.Is(known.Kind, queue.ErrUnavailable) && known.Status == 0 && t.source == "":
		again := *known
		again.Hint = "start the server on this machine with millrace serve, or give the location of the queues in -account or " + accountVariable + ""
		return &explainedError{withoutOp(&again), err}
	}
	return &explainedError{withoutOp(known), err}
}

// withoutOp returns the text of an error without the operation, which is usually the command's
// name.
func withoutOp(e *queue.Error) string { return strings.TrimPrefix(e.Error(), e.Op+" on ") }
