package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/azurestorage"
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

const verboseUsage = "if no login to Azure works, show the answer of each kind of login"

// explainLogin says that no token could be obtained. The causes, one for each kind of login, fill
// half a page: they are printed before the error, if they are asked for.
func (t *task) explainLogin(err error, denied *azurestorage.CredentialError) error {
	advice := azurestorage.LoginHint
	if denied.Transient() {
		advice = "the service that logs in did not answer: try again"
	}
	if !t.verbose {
		return &explainedError{"not logged in to Azure: " + advice + "; -v shows why each kind of login failed", err}
	}
	for line := range strings.Lines(denied.Error()) {
		if line = onOneLine(redact(line)); strings.Trim(line, "-") != "" {
			printf(t.console.err, "  %s\n", line)
		}
	}
	return &explainedError{"not logged in to Azure, see above: " + advice, err}
}

// explain returns an error that says what to do with this command.
func (t *task) explain(err error) error {
	if denied := (*azurestorage.CredentialError)(nil); errors.As(err, &denied) && !errors.As(err, new(*explainedError)) {
		return t.explainLogin(err, denied)
	}
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
