package dispatcher

import (
	"fmt"
)

// Outcome is how a delivery ended. The zero value is none of the outcomes.
type Outcome int

// The outcomes.
const (
	Deleted   Outcome = iota + 1 // the handler succeeded and the message was deleted
	Retried                      // the handler failed and the message was given back with a delay
	Discarded                    // deleted unhandled: the handler asked for it
	Poisoned                     // the message was copied to the poison queue and deleted
	Kept                         // the message is poison and stays hidden in its queue
	Snoozed                      // the message was given back with a delay, without recording an attempt
	GivenBack                    // the message was not fully handled and is visible again
	Lost                         // the lease was lost or too short to start: another worker has the message or will
	Unsettled                    // the settlement failed: the message will be delivered again
	Duplicate                    // deleted unhandled: its job was handled before

	outcomes // the number of outcomes
)

var outcomeNames = [outcomes]string{"none", "deleted", "retried", "discarded", "poisoned", "kept", "snoozed", "given back", "lost", "unsettled", "duplicate"}

// String returns the name of the outcome.
func (o Outcome) String() string {
	if o < 0 || o >= outcomes {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return outcomeNames[o]
}

// MarshalText returns the name of the outcome, for JSON and logs. An unknown outcome is an
// error.
func (o Outcome) MarshalText() ([]byte, error) {
	if o < 0 || o >= outcomes {
		return nil, fmt.Errorf("dispatcher: unknown outcome %v", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText parses what [Outcome.MarshalText] returns.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("dispatcher: unknown outcome %q", text)
}
