package natswakeup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

// version is that of the payload. Others are ignored.
const version = 1

// maxPayload bounds what is read; ours have about 100 bytes.
const maxPayload = 512

// maxHops bounds how often an event is handed on. NATS chooses at random, the sender of More included:
// if one other process is ready, so many choices miss it once in a million times.
const maxHops = 20

// maxSkew is how far the clock of a publisher may be ahead.
const maxSkew = time.Hour

// payload is the body of a message. The queue is in the subject.
type payload struct {
	Version int       `json:"v"`
	Bytes   int64     `json:"bytes,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	From    string    `json:"from,omitempty"` // the transport that asked for another process
	Hops    int       `json:"hops,omitempty"` // how often it was handed on
}

func (p payload) encode() ([]byte, error) {
	p.Version = version
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return data, nil
}

// decode refuses what no publisher of ours sends.
func decode(data []byte) (payload, error) {
	var p payload
	if len(data) > maxPayload {
		return p, fmt.Errorf("%d bytes", len(data))
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, err
	}
	switch {
	case p.Version != version:
		return p, fmt.Errorf("version %d", p.Version)
	case p.Bytes < 0 || p.Hops < 0 || p.Hops > maxHops:
		return p, errors.New("a number is out of range")
	case time.Until(p.Due) > queue.MaxVisibility+maxSkew:
		return p, errors.New("due later than any message can be")
	}
	return p, nil
}

// group is the queue group in which NATS chooses one process.
const group = "millrace"

// maxSubject bounds subjects; servers accept 4,096 bytes for a whole line of the protocol.
const maxSubject = 1024

// subject returns the subject of a queue. Different queues have different ones.
func subject(prefix string, q queue.Name) string {
	return prefix + "." + token(q.Account) + "." + token(q.Queue)
}

// token escapes a name for a subject. Different names have different tokens, and none is empty.
func token(name string) string {
	if name == "" {
		return "="
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	return b.String()
}

// checkPrefix refuses what cannot begin a subject.
func checkPrefix(prefix string) error {
	for part := range strings.SplitSeq(prefix, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }) {
			return fmt.Errorf("natswakeup: Prefix %.60q cannot begin a subject: use words of letters, digits, hyphens and underscores, separated by dots", prefix)
		}
	}
	if len(prefix) > maxSubject/2 {
		return fmt.Errorf("natswakeup: Prefix has %d bytes, at most %d are possible", len(prefix), maxSubject/2)
	}
	return nil
}
