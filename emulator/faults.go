package emulator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	if f.Rate != 0 && f.Every != 0 || (f.Rate != 0 || f.Every != 0) && len(f.At) > 0 {
		return errors.New("more than one of Rate, Every and At: make one rule for each")
	}
	return nil
}

var shortNames = map[string]Operation{
	"put": PutMessage, "enqueue": PutMessage,
	"get": GetMessages, "dequeue": GetMessages,
	"peek":   PeekMessages,
	"update": UpdateMessage,
	"delete": DeleteMessage,
	"clear":  ClearMessages,
}

// ParseFaults parses rules from a text such as
//
//	dequeue:503@5% *:delay=200ms@10% delete:drop@#3,7 put:500@1/100
//
// Rules are separated by white space, commas or semicolons. Each is
//
//	operation:fault@when
//
// The operation is a name as in [Counts], such as PutMessage or GetQueueMetadata, in any case;
// for messages also put or enqueue, get or dequeue, peek, update, delete and clear; or * for
// every operation.
//
// The fault is 503, 500, 408, 403, reset, drop, duplicate, or delay=200ms with any duration that
// [time.ParseDuration] accepts, up to a day. The constants from [FaultBusy] on describe them.
//
// When, the part after the @, is one of
//
//	5%      that share of the requests at random, such as 0.1% or 100%
//	1/100   every hundredth request
//	#3,7    the third and the seventh request
//
// and defaults to always. Each rule counts requests from 1, see [Faults].
//
// An empty text means no rules. The error names the invalid part and a correct form.
func ParseFaults(text string) ([]Fault, error) {
	pieces, err := splitFaults(text)
	if err != nil {
		return nil, err
	}
	var rules []Fault
	for _, piece := range pieces {
		rule, err := parseFault(piece)
		if err != nil {
			return nil, fmt.Errorf("emulator: fault %s: %w", quoteShort(piece), err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// splitFaults splits a text into rules. A comma separates rules, but also numbers after #: a part
// of digits belongs to the list before it.
func splitFaults(text string) ([]string, error) {
	var pieces []string
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		open := false // whether the last piece is a list of numbers
		for part := range strings.SplitSeq(word, ",") {
			switch {
			case part == "": // a comma before white space
				open = false
			case !isDigits(part):
				pieces = append(pieces, part)
				open = strings.Contains(part, "@#")
			case open:
				pieces[len(pieces)-1] += "," + part
			default:
				return nil, fmt.Errorf("emulator: fault %s is a lone number: numbers follow a #, without spaces, such as delete:drop@#3,7", quoteShort(part))
			}
		}
	}
	return pieces, nil
}

func parseFault(piece string) (Fault, error) {
	operation, rest, ok := strings.Cut(piece, ":")
	if !ok {
		return Fault{}, errors.New("missing colon: write operation:fault@when, such as dequeue:503@5%")
	}
	kind, when, limited := strings.Cut(rest, "@")
	f, err := parseKind(kind)
	if err != nil {
		return Fault{}, err
	}
	if f.Operation, err = parseOperation(operation); err != nil {
		return Fault{}, err
	}
	if !limited {
		f.Rate = 1
	} else if err := f.parseWhen(when); err != nil {
		return Fault{}, err
	}
	return f, f.check()
}

func parseOperation(name string) (Operation, error) {
	if name == "*" {
		return "", nil
	}
	if op, ok := shortNames[strings.ToLower(name)]; ok {
		return op, nil
	}
	for _, op := range operations {
		if op != Unknown && strings.EqualFold(name, string(op)) { // check refuses some of them
			return op, nil
		}
	}
	return "", fmt.Errorf("unknown operation %s: %s", quoteShort(name), operationHint())
}

func parseKind(text string) (Fault, error) {
	name, takes, timed := strings.Cut(text, "=")
	f := Fault{Kind: FaultKind(strings.ToLower(name))}
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return f, fmt.Errorf("unknown fault %s: %s", quoteShort(text), kindHint())
	case timed != (f.Kind == FaultDelay):
		return f, fmt.Errorf("%s: only delay has a duration, and needs one, such as delay=200ms", quoteShort(text))
	case timed:
		var err error
		if f.Delay, err = time.ParseDuration(takes); err != nil {
			return f, fmt.Errorf("%s is not a duration: write it like 200ms, 1.5s or 1m30s", quoteShort(takes))
		}
	}
	return f, nil
}

func (f *Fault) parseWhen(text string) error {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		var err error
		f.Rate, err = parsePercent(percent)
		return err
	}
	if every, ok := strings.CutPrefix(text, "1/"); ok {
		n, err := parseNumber(every)
		if err != nil {
			return fmt.Errorf("%s: write 1/100 for every hundredth", quoteShort(text))
		}
		f.Every = n
		return nil
	}
	if list, ok := strings.CutPrefix(text, "#"); ok {
		for one := range strings.SplitSeq(list, ",") {
			n, err := parseNumber(one)
			if err != nil {
				return fmt.Errorf("%s: write #3,7 for the third and the seventh request", quoteShort(text))
			}
			f.At = append(f.At, n)
		}
		slices.Sort(f.At)
		f.At = slices.Compact(f.At)
		return nil
	}
	return fmt.Errorf("%s does not say when: write 5%%, 1/100 or #3,7", quoteShort(text))
}

// parsePercent parses a percentage. It shifts the text, not the number, so that 7% is exactly
// 0.07.
func parsePercent(text string) (float64, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if isDigits(whole) && (!point || isDigits(fraction)) {
		if rate, err := strconv.ParseFloat(text+"e-2", 64); err == nil && rate <= 1 {
			return rate, nil
		}
	}
	return 0, fmt.Errorf("%s is not a percentage: write 0%% to 100%%, such as 5%% or 0.1%%", quoteShort(text+"%"))
}

func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || !isDigits(text) {
		return 0, errors.New("not a number from 1")
	}
	return n, nil
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// String returns the rule in the syntax of [ParseFaults].
func (f Fault) String() string {
	operation, kind := string(f.Operation), string(f.Kind)
	operation = cmp.Or(operation, "*")
	if f.Kind == FaultDelay {
		kind += "=" + f.Delay.String()
	}
	return operation + ":" + kind + "@" + f.when()
}

func (f Fault) when() string {
	switch {
	case f.Every > 0:
		return "1/" + strconv.FormatInt(f.Every, 10)
	case len(f.At) > 0:
		numbers := make([]string, len(f.At))
		for i, n := range f.At {
			numbers[i] = strconv.FormatInt(n, 10)
		}
		return "#" + strings.Join(numbers, ",")
	}
	return formatPercent(f.Rate)
}

// formatPercent formats a rate so that parsePercent returns it exactly: its shortest digits with
// the point moved by two places.
func formatPercent(rate float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(rate, 'e', -1, 64), "e")
	shift, err := strconv.Atoi(exponent)
	if err != nil { // infinity or NaN, which check refuses
		return mantissa + "%"
	}
	digits := strings.Replace(mantissa, ".", "", 1)
	point := 1 + shift + 2 // digits before the decimal point
	switch {
	case rate == 0:
		return "0%"
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits + "%"
	case point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits)) + "%"
	}
	return digits[:point] + "." + digits[point:] + "%"
}

func operationHint() string {
	var names []string
	for _, op := range operations {
		if op != Unknown && op.isBilled() {
			names = append(names, string(op))
		}
	}
	return "write put, get, peek, update, delete or clear, * for all, or one of " + strings.Join(names, ", ")
}

func kindHint() string {
	names := make([]string, len(faultKinds))
	for i, k := range faultKinds {
		names[i] = string(k)
		if k == FaultDelay {
			names[i] += "=200ms"
		}
	}
	return "write one of " + strings.Join(names, ", ")
}

// quoteShort quotes a piece of text for an error and truncates it to one line.
func quoteShort(piece string) string {
	const enough = 60
	if len(piece) > enough {
		piece = strings.ToValidUTF8(piece[:enough], "") + "…"
	}
	return strconv.Quote(piece)
}
