package poison

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

// Reason says why a message is poison, in one word for metrics and filters.
type Reason string

// The reasons.
const (
	ReasonAttempts    Reason = "attempts"    // the handler failed too often
	ReasonLost        Reason = "lost"        // its handlers started and came to nothing too often: a worker died or lost its lease
	ReasonUndecodable Reason = "undecodable" // the text is no job of this type
	ReasonRejected    Reason = "rejected"    // the handler said so
	ReasonExpiring    Reason = "expiring"    // its life ends before another attempt could be made
)

// version marks a text as a [Record] and says which fields to expect.
const version = 1

// Record is what a poison queue holds about one message. The zero value is no
// record.
type Record struct {
	Version      int        `json:"millracePoison"`
	Reason       Reason     `json:"reason"`
	Error        string     `json:"error,omitempty"` // the last error, perhaps shortened
	Account      string     `json:"account"`
	Queue        string     `json:"queue"` // where it came from and where redrive brings it back to
	ID           queue.ID   `json:"id"`    // its id there
	DequeueCount int64      `json:"dequeueCount"`
	Attempts     int        `json:"attempts"`
	Inserted     time.Time  `json:"inserted"`          // by the service's clock
	Expires      *time.Time `json:"expires,omitempty"` // by the service's clock; nil when never
	Poisoned     time.Time  `json:"poisoned"`          // by the worker's clock
	Text         string     `json:"text"`              // the message text, exactly
}

// neverExpires is the year of the date that the service gives a message which
// never expires.
const neverExpires = 9999

// NewRecord describes the message m of the queue named from. The error may be
// nil.
func NewRecord(from queue.Name, m queue.Message, attempts int, reason Reason, cause error) Record {
	r := Record{
		Version: version, Reason: reason,
		Account: from.Account, Queue: from.Queue, ID: m.ID,
		DequeueCount: m.DequeueCount, Attempts: attempts,
		Inserted: m.Inserted, Poisoned: time.Now().UTC(), Text: m.Text,
	}
	if cause != nil {
		r.Error = text(cause)
	}
	if !m.Expires.IsZero() && m.Expires.Year() < neverExpires {
		expires := m.Expires
		r.Expires = &expires
	}
	return r
}

// text is what an error says. It is a handler's: its method may panic, and the message must
// be moved all the same.
func text(err error) (said string) {
	defer func() {
		if p := recover(); p != nil {
			said = fmt.Sprintf("an error of type %T, whose text cannot be had: %v", err, p)
		}
	}()
	return err.Error()
}

// ParseRecord reads the text of a message in a poison queue. A text that is no
// record, such as one moved bare, is an error.
func ParseRecord(text string) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read a poison record: %w", err)
	}
	if r.Version < 1 {
		return r, fmt.Errorf("read a poison record: the text is not one (no %q field)", "millracePoison")
	}
	return r, nil
}

// xmlLacks are the characters that JSON has as they are and XML does not have at all, as
// JSON can also write them. All others that XML lacks JSON escapes by itself, and what is no
// UTF-8 becomes U+FFFD.
var xmlLacks = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`)

// encode returns the record as JSON that the queue can carry, whatever the handler's error
// has in it. Angle brackets and & stay as they are: the XML around escapes them anyway, and
// six bytes for each would count towards the 64 KiB.
func (r Record) encode() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return "", err
	}
	// They can stand in strings alone, where the escape means the same.
	return xmlLacks.Replace(strings.TrimSuffix(b.String(), "\n")), nil
}
