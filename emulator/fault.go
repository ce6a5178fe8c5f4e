package emulator

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// FaultKind is a kind of fault, under the name that [ParseFaults] accepts.
type FaultKind string

// The kinds of faults. Connections exist on a socket; in process RoundTrip fails with the error
// that net/http's client returns there.
const (
	// FaultBusy responds 503 ServerBusy without executing the request.
	FaultBusy FaultKind = "503"

	// FaultInternal responds 500 InternalError without executing the request.
	FaultInternal FaultKind = "500"

	// FaultTimeout responds 408 with the code OperationTimedOut without executing the request.
	// The documented status of that code is 500; a 408 is what gateways send and clients are told
	// to retry.
	FaultTimeout FaultKind = "408"

	// FaultForbidden responds 403 AuthorizationFailure without executing the request, as the service
	// does behind a firewall, or when the right to the account was taken away.
	FaultForbidden FaultKind = "403"

	// FaultReset resets the connection (RST) without executing the request. The error is
	// syscall.ECONNRESET.
	FaultReset FaultKind = "reset"

	// FaultDrop executes the request and closes the connection without a response. The error is
	// io.EOF. As always after a missing response, net/http's transport repeats a GET on a reused
	// connection, which counts as another request.
	FaultDrop FaultKind = "drop"

	// FaultDelay waits before executing the request, which is not executed if the client leaves
	// meanwhile. A delay longer than the request's timeout, 30 s by default, results in 500
	// OperationTimedOut after that time, as in the service.
	FaultDelay FaultKind = "delay"

	// FaultDuplicate executes the request twice, as if a proxy had sent it again. The client gets
	// the second response, such as 404 to a delete that succeeded. Both count as requests.
	FaultDuplicate FaultKind = "duplicate"
)

// faultKinds are all kinds in display order.
var faultKinds = []FaultKind{FaultBusy, FaultInternal, FaultTimeout, FaultForbidden, FaultReset, FaultDrop, FaultDelay, FaultDuplicate}

// Faults are the faults to inject. The zero value is none.
//
// Each rule counts the requests that it applies to in order of arrival, from all clients, valid
// or not; requests that are no known operation have no faults. Whether a request has a fault
// depends on its number, and for a rate on the seed and the rule's index. So the same sequence of
// requests has the same faults, in process and on a socket.
//
// If several rules hit a request, their delays add up, and of the other kinds the first counts.
// Injected responses and resets come at once, before authorization, without a delay.
//
// [Server.SetFaults] replaces the faults of a server that runs.
type Faults struct {
	// Seed is the seed of the rates. Defaults to 0.
	Seed uint64

	// Rules say which requests have which faults. Defaults to none.
	Rules []Fault
}

// Fault is a rule: which requests have which fault. At most one of Rate, Every and At may be set;
// without any the rule has no effect.
type Fault struct {
	// Operation is the operation of the requests. Defaults to "", every operation.
	Operation Operation

	// Kind is the fault. It is required.
	Kind FaultKind

	// Rate is the share of requests with the fault, 0 to 1. Defaults to 0.
	Rate float64

	// Every n means every n-th request: 100 is the 100th, the 200th and so on. Defaults to 0: see
	// Rate and At.
	Every int64

	// At are the numbers of the requests with the fault; the first is 1. Defaults to none.
	At []int64

	// Delay is the duration of a FaultDelay, up to a day. It is required for that kind and
	// invalid for others. Defaults to 0.
	Delay time.Duration
}

// maxDelay is the longest delay of a fault. It keeps sums of delays from overflowing.
const maxDelay = 24 * time.Hour

// check validates a rule. Its errors use the syntax of [ParseFaults].
func (f Fault) check() error {
	if f.Operation != "" && (f.Operation == Unknown || !slices.Contains(operations, f.Operation)) {
		return fmt.Errorf("unknown operation %q: %s", f.Operation, operationHint())
	}
	if f.Operation != "" && !f.Operation.isBilled() {
		return fmt.Errorf("faults do not apply to %s: %s", f.Operation, operationHint())
	}
	if !slices.Contains(faultKinds, f.Kind) {
		return fmt.Errorf("unknown fault %q: %s", f.Kind, kindHint())
	}
	if f.Kind == FaultDelay && (f.Delay <= 0 || f.Delay > maxDelay) {
		return fmt.Errorf("a delay of %v is out of range: it must be more than 0 and at most %v, such as delay=200ms", f.Delay, maxDelay)
	}
	if f.Kind != FaultDelay && f.Delay != 0 {
		return fmt.Errorf("%s has no duration: remove the %v, or use the kind delay", f.Kind, f.Delay)
	}
	if !(f.Rate >= 0 && f.Rate <= 1) { // refuses NaN too
		return fmt.Errorf("a rate of %v is out of range: it must be 0 to 1, that is 0%% to 100%%", f.Rate)
	}
	if f.Every < 0 {
		return fmt.Errorf("every %d is out of range: it must be 1 or more, such as 1/100 for every hundredth", f.Every)
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
		return errors.New("more than one of Rate, Every and At: make one rule for each")
	}
	return nil
}
