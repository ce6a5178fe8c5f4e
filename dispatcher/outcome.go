package dispatcher

import (
	"fmt"
)

// Outcome is how a delivery ended. The zero value is none of them.
type Outcome int

// The outcomes.
const (
	Deleted   Outcome = iota + 1 // the handler succeeded and the message was deleted
	Retried                      // the handler failed and the message was given back with a delay
	Discarded                    // the handler had no use for the message, which was deleted
	Poisoned                     // the message was copied to the poison queue and deleted
	Kept                         // the message is poison, and stays hidden where it is
	Snoozed                      // the message was given back for later, and no attempt was recorded
	GivenBack                    // the message was not handled to an end and is visible again
	Lost                         // the lease was lost, or too short to start: somebody else has the message, or will
	Unsettled                    // the service would not take the settlement: the message will be delivered again

	outcomes // how many there are
)

var outcomeNames = [outcomes]string{"none", "deleted", "retried", "discarded", "poisoned", "kept", "snoozed", "given back", "lost", "unsettled"}

// String names the outcome.
func (o Outcome) String() string {
	if o < 0 || o >= outcomes {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return outcomeNames[o]
}

// MarshalText names the outcome, for JSON and logs. An unknown one is an error.
func (o Outcome) MarshalText() ([]byte, error) {
	if o < 0 || o >= outcomes {
		return nil, fmt.Errorf("dispatcher: there is no %v", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads what [Outcome.MarshalText] writes.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("dispatcher: %q is no outcome", text)
}
