package emulator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// operations are those that faults can be told to hit.
var operations = []Operation{PutMessage, GetMessages, PeekMessages, UpdateMessage, DeleteMessage, ClearMessages,
	CreateQueue, DeleteQueue, ListQueues, GetQueueMetadata, SetQueueMetadata, GetQueueACL, SetQueueACL,
	GetServiceProperties, SetServiceProperties, GetServiceStats, GetDelegationKey}

// shortWords are the names for people of the operations that have one.
var shortWords = map[Operation]string{PutMessage: "put", GetMessages: "get", PeekMessages: "peek",
	UpdateMessage: "update", DeleteMessage: "delete", ClearMessages: "clear", CreateQueue: "create", ListQueues: "list"}

// ParseFaults reads rules written for people, separated by commas or
// semicolons:
//
//	rule      = operation ":" kind [ "@" when { "+" when } ]
//	operation = "*" | put, get, peek, update, delete, clear, create, list | PutMessage and so on
//	kind      = "503" | "500" | "timeout" | "408" | "reset" | "drop" | "duplicate" | "delay=" duration
//	when      = share "%" | "1/" every | "#" number
//
// as in "get:503@5%, *:delay=200ms@10%, delete:drop@#3+#7, put:500@1/100". A
// rule without @ always hits. Case does not matter, spaces around rules and
// between their parts neither; an empty text has no rules. 408 is another word
// for timeout. The error names the rule that is wrong and what would be right.
func ParseFaults(text string) ([]Fault, error) {
	var rules []Fault
	for piece := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		if piece = strings.TrimSpace(piece); piece == "" {
			continue
		}
		rule, err := parseFault(piece)
		if err != nil {
			return nil, fmt.Errorf("emulator: fault %q: %w", piece, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseFault(piece string) (Fault, error) {
	var f Fault
	operation, rest, found := strings.Cut(piece, ":")
	if !found {
		return f, errors.New("no colon: write operation:kind@when, such as get:503@5%")
	}
	kind, when, sometimes := strings.Cut(rest, "@")
	var err error
	if f.Operation, err = parseOperation(strings.TrimSpace(operation)); err != nil {
		return f, err
	}
	if err = f.parseKind(strings.ToLower(strings.TrimSpace(kind))); err != nil {
		return f, err
	}
	if sometimes {
		for w := range strings.SplitSeq(when, "+") {
			if err = f.parseWhen(strings.TrimSpace(w)); err != nil {
				return f, err
			}
		}
	}
	return f, f.check()
}

func parseOperation(word string) (Operation, error) {
	if word == "*" {
		return "", nil
	}
	for _, op := range operations {
		if strings.EqualFold(word, string(op)) || shortWords[op] != "" && strings.EqualFold(word, shortWords[op]) {
			return op, nil
		}
	}
	return "", badOperation(word)
}

// badOperation is the error of a word that is no operation.
func badOperation(word string) error {
	var words []string
	for _, op := range operations {
		if short := shortWords[op]; short != "" {
			words = append(words, short+" ("+string(op)+")")
		} else {
			words = append(words, string(op))
		}
	}
	return fmt.Errorf("%q is no operation: use * for all, or %s", word, strings.Join(words, ", "))
}

func (f *Fault) parseKind(word string) error {
	word, duration, found := strings.Cut(word, "=")
	if word == "408" {
		word = string(FaultTimeout)
	}
	f.Kind = FaultKind(word)
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return badKind(word)
	case f.Kind != FaultDelay && found:
		return fmt.Errorf("%s has no duration: only delay does, such as delay=200ms", word)
	case f.Kind != FaultDelay:
		return nil
	}
	d, err := time.ParseDuration(duration)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not how long to wait: write a duration, such as delay=200ms or delay=1.5s", duration)
	}
	f.Delay = d
	return nil
}

// badKind is the error of a word that is no kind.
func badKind(word string) error {
	return fmt.Errorf("%q is no kind of fault: use 503, 500, timeout (or 408), reset, drop, duplicate or delay=200ms", word)
}

// parseWhen reads one of the ways to hit some requests only.
func (f *Fault) parseWhen(word string) error {
	if share, found := strings.CutSuffix(word, "%"); found {
		return f.parseShare(share)
	}
	if every, found := strings.CutPrefix(word, "1/"); found {
		n, err := number(every)
		if err != nil {
			return fmt.Errorf("%q is not every so many requests: write 1/100 for every hundredth", word)
		}
		if f.Every != 0 {
			return fmt.Errorf("%q is the second of its kind in the rule: write two rules", word)
		}
		f.Every = n
		return nil
	}
	if at, found := strings.CutPrefix(word, "#"); found {
		n, err := number(at)
		if err != nil {
			return fmt.Errorf("%q is not the number of a request: write #3 for the third", word)
		}
		f.At = append(f.At, n)
		return nil
	}
	return fmt.Errorf("%q does not say when: write 5%% for a share by chance, 1/100 for every hundredth, #3 for the third request, or leave the @ out for always", word)
}

func (f *Fault) parseShare(share string) error {
	share = strings.TrimSpace(share)
	rate, err := strconv.ParseFloat(share+"e-2", 64)
	if err != nil || strings.Trim(share, "0123456789.") != "" || rate <= 0 || rate > 1 {
		return fmt.Errorf("%q is not a share of requests: write more than 0%% and at most 100%%, such as 5%% or 0.1%%", share+"%")
	}
	if f.Rate != 0 {
		return fmt.Errorf("%q is the second share of the rule: write two rules", share+"%")
	}
	f.Rate = rate
	return nil
}

// number reads a whole number from 1.
func number(s string) (int, error) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(s, 10, strconv.IntSize)
	if err == nil && n < 1 {
		err = strconv.ErrRange
	}
	return int(n), err
}

// String is the rule as [ParseFaults] reads it.
func (f Fault) String() string {
	var b strings.Builder
	switch short := shortWords[f.Operation]; {
	case f.Operation == "":
		b.WriteString("*")
	case short != "":
		b.WriteString(short)
	default:
		b.WriteString(string(f.Operation))
	}
	b.WriteString(":" + string(f.Kind))
	if f.Kind == FaultDelay {
		b.WriteString("=" + f.Delay.String())
	}
	sep := "@"
	when := func(s string) { b.WriteString(sep + s); sep = "+" }
	if f.Rate != 0 {
		when(percent(f.Rate))
	}
	if f.Every != 0 {
		when("1/" + strconv.Itoa(f.Every))
	}
	for _, n := range f.At {
		when("#" + strconv.Itoa(n))
	}
	return b.String()
}

// percent moves the point of the shortest decimal of a rate by two digits. To
// multiply it would round, and the text would not be read as the same rate.
func percent(rate float64) string {
	whole, part, _ := strings.Cut(strconv.FormatFloat(rate, 'f', -1, 64), ".")
	for len(part) < 2 {
		part += "0"
	}
	whole = strings.TrimLeft(whole+part[:2], "0")
	if part = part[2:]; part != "" {
		part = "." + part
	}
	if whole == "" {
		whole = "0"
	}
	return whole + part + "%"
}
