package natswakeup

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/queue"
)

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
