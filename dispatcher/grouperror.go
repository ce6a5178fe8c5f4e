package dispatcher

import (
	"fmt"
	"strings"
)

// maxItemErrors is how many errors of items the text of a [GroupError] has.
const maxItemErrors = 3

// GroupError is the error of a group of jobs in which not every handler returned nil. It wraps the
// errors of the items.
type GroupError struct {
	Items  int         // of the group
	Errors []ItemError // of the items that were handled, in order
	Failed int         // items that failed for good at earlier deliveries
	Before string      // why the first of those failed, shortened; empty if there are none
	Left   int         // items that were not handled, because the context ended
}

// ItemError is the error of one item of a group.
type ItemError struct {
	Item int // its index, from 0
	Err  error
}

// Error describes the item and its error.
func (e ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Item, e.Err) }

// Unwrap returns Err.
func (e ItemError) Unwrap() error { return e.Err }

// Error describes the group in one line, with the first errors.
func (e *GroupError) Error() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(e.Errors), "ended with errors")
	add(e.Failed, "failed for good at earlier deliveries ("+e.Before+")")
	add(e.Left, "were not handled")
	text := fmt.Sprintf("of %d items %s", e.Items, strings.Join(parts, ", "))
	for _, one := range e.Errors[:min(len(e.Errors), maxItemErrors)] {
		text += "; " + one.Error()
	}
	if more := len(e.Errors) - maxItemErrors; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap returns the errors of the items.
func (e *GroupError) Unwrap() []error {
	errs := make([]error, len(e.Errors))
	for i, one := range e.Errors {
		errs[i] = one
	}
	return errs
}
