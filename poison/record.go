package poison

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

// Reason is why a message is poison, in one word for metrics and filters.
type Reason string

// The reasons.
const (
	ReasonAttempts    Reason = "attempts"    // the handler failed too often
	ReasonLost        Reason = "lost"        // too many handlers in a row started without a result
	ReasonUndecodable Reason = "undecodable" // the text cannot be decoded
	ReasonRejected    Reason = "rejected"    // the handler asked for it
	ReasonExpiring    Reason = "expiring"    // it expires before another attempt could be made
)

// version identifies a text as a [Record] and defines its fields.
const version = 1

// Record is what a poison queue holds for one message. The zero value is not a valid record.
type Record struct {
	Version      int        `json:"millracePoison"`
	Reason       Reason     `json:"reason"`
	Error        string     `json:"error,omitempty"` // the last error, possibly shortened
	Account      string     `json:"account"`
	Queue        string     `json:"queue"` // where it came from, and where a redrive returns it
	ID           queue.ID   `json:"id"`    // its id in that queue
	DequeueCount int64      `json:"dequeueCount"`
	Attempts     int        `json:"attempts"`
	Inserted     time.Time  `json:"inserted"`          // by the service's clock
	Expires      *time.Time `json:"expires,omitempty"` // by the service's clock; nil when never
	Poisoned     time.Time  `json:"poisoned"`          // by the worker's clock
	Text         string     `json:"text"`              // the message text, exactly
}

// neverExpires is the year of the expiry that the service returns for a message which never
// expires.
const neverExpires = 9999

// NewRecord returns the record of the message m of the queue from. The error may be nil.
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

// text returns the text of a handler's error. The message must be moved even if the error's
// method panics.
func text(err error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("an error of type %T, whose text cannot be had: %v", err, p)
		}
	}()
	return err.Error()
}

// ParseRecord parses the text of a message in a poison queue. A text that is not a record, such
// as one moved bare, is an error.
func ParseRecord(text string) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read a poison record: %w", err)
	}
	if r.Version < 1 {
		return r, fmt.Errorf("read a poison record: the text is not a record (no %q field)", "millracePoison")
	}
	return r, nil
}

// xmlEscaper escapes the characters that JSON leaves as they are and XML does not allow. JSON
// itself escapes all others that XML does not allow, and replaces invalid UTF-8 by U+FFFD.
var xmlEscaper = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`)

// encode returns the record as JSON that the queue can carry, whatever the error contains.
// Angle brackets and & stay unescaped: the XML around escapes them anyway, and six bytes for
// each would count towards the 64 KiB.
func (r Record) encode() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return "", err
	}
	// They occur only in strings, where the escape means the same.
	return xmlEscaper.Replace(strings.TrimSuffix(b.String(), "\n")), nil
}
