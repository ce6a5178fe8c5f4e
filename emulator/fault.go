package emulator

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// FaultKind is what goes wrong with a request, under the name that
// [ParseFaults] takes.
type FaultKind string

// The kinds of faults. What is said of a connection is on a socket; in process
// the round trip fails with the error that a client of net/http gets there.
const (
	// FaultBusy answers 503 ServerBusy, and nothing is done.
	FaultBusy FaultKind = "503"

	// FaultInternal answers 500 InternalError, and nothing is done.
	FaultInternal FaultKind = "500"

	// FaultTimeout answers 408 with the code OperationTimedOut, and nothing is
	// done. The documents give that code the status 500; a 408 is what clients
	// are told to repeat, and what gateways send.
	FaultTimeout FaultKind = "408"

	// FaultReset resets the connection (RST) before anything is done. The error
	// is syscall.ECONNRESET.
	FaultReset FaultKind = "reset"

	// FaultDrop does what is asked for and then closes the connection without
	// an answer. The error is io.EOF. As ever after an answer that is missing,
	// the transport of net/http itself repeats a GET on a connection that it
	// had used before; that counts as the request of its own that it is.
	FaultDrop FaultKind = "drop"

	// FaultDelay waits before it does what is asked for. A client that leaves in
	// the meantime has changed nothing. A delay longer than the timeout of the
	// request, 30 s unless it says otherwise, is 500 OperationTimedOut after
	// that time, as of the service.
	FaultDelay FaultKind = "delay"

	// FaultDuplicate does what is asked for twice, as when something in between
	// had no answer and sent the request again. The client gets the second
	// answer: 404 to a delete that has worked. Both count as requests.
	FaultDuplicate FaultKind = "duplicate"
)

// kinds are all kinds in the order in which they are listed.
var faultKinds = []FaultKind{FaultBusy, FaultInternal, FaultTimeout, FaultReset, FaultDrop, FaultDelay, FaultDuplicate}

// Faults are what goes wrong on purpose. The zero value is nothing.
//
// Each rule counts the requests that it is for, in the order in which they
// arrive, whoever sends them and on whichever way, and whether or not they turn
// out to be in order; requests that are none of the operations have no faults.
// Whether a request is hit depends on its number, and for a rate on the seed and
// on the place of the rule. So the same sequence of requests has the same faults,
// in process and on a socket.
//
// When several rules hit one request, their delays add up, and of the others
// the first counts. Injected answers and resets come at once, before the request
// is authorized, and have no delay.
type Faults struct {
	// Seed is where the dice of the rates begin. Defaults to 0.
	Seed uint64

	// Rules say what happens to which requests. Defaults to none.
	Rules []Fault
}

// Fault is a rule: what happens to which requests, and when. At most one of
// Rate, Every and At is set; with none of them it never happens.
type Fault struct {
	// Operation is which requests. Defaults to "": those of every operation.
	Operation Operation

	// Kind is what happens. It is required.
	Kind FaultKind

	// Rate is the share of requests to which it happens, 0 to 1. Defaults to 0.
	Rate float64

	// Every is to how manieth it happens: 100 is the 100th, the 200th and so
	// on. Defaults to 0: see Rate and At.
	Every int64

	// At are the numbers of those to which it happens; the first is 1. Defaults
	// to none.
	At []int64

	// Delay is how long a FaultDelay takes, up to a day. It is required there, and
	// nothing else has one. Defaults to 0.
	Delay time.Duration
}

// longestDelay is the longest that a fault may take. It keeps sums of delays far
// from overflow.
const maxDelay = 24 * time.Hour

// check says what is wrong with a rule, in the words of its text.
func (f Fault) check() error {
	if f.Operation != "" && (f.Operation == Unknown || !slices.Contains(operations, f.Operation)) {
		return fmt.Errorf("there is no operation %q: %s", f.Operation, operationHint())
	}
	if !slices.Contains(faultKinds, f.Kind) {
		return fmt.Errorf("there is no fault %q: %s", f.Kind, kindHint())
	}
	if f.Kind == FaultDelay && (f.Delay <= 0 || f.Delay > maxDelay) {
		return fmt.Errorf("a delay of %v: it takes more than 0 and up to %v, such as delay=200ms", f.Delay, maxDelay)
	}
	if f.Kind != FaultDelay && f.Delay != 0 {
		return fmt.Errorf("%s takes no time: leave out the %v, or make it a delay", f.Kind, f.Delay)
	}
	if !(f.Rate >= 0 && f.Rate <= 1) { // so that NaN is none
		return fmt.Errorf("a rate of %v: it is 0 to 1, that is 0%% to 100%%", f.Rate)
	}
	if f.Every < 0 {
		return fmt.Errorf("every %d: it is 1 or more, such as 1/100 for each hundredth", f.Every)
	}
	for _, n := range f.At {
		if n < 1 {
			return fmt.Errorf("request #%d: the first is #1", n)
		}
	}
	given := 0
	for _, is := range []bool{f.Rate != 0, f.Every != 0, len(f.At) > 0} {
		if is {
			given++
		}
	}
	if given > 1 {
		return errors.New("more than one of Rate, Every and At: make it a rule each")
	}
	return nil
}
