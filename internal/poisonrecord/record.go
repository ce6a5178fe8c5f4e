// Package poisonrecord is the half of package poison that only the framework uses: it writes the
// records of poison queues, reads them, and chooses among them.
package poisonrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// version identifies a text as a [Record] and defines its fields.
const version = 1

// Reason is that of package poison.
type Reason string

// Record has the fields of poison.Record, so that each converts to the other.
type Record struct {
	Reason       Reason   `json:"reason"`
	Error        string   `json:"error,omitempty"`
	Fingerprint  string   `json:"fingerprint,omitempty"`
	Stack        string   `json:"stack,omitempty"`
	Account      string   `json:"account"`
	Queue        string   `json:"queue"`
	ID           queue.ID `json:"id"`
	Job          string   `json:"job,omitempty"`
	Host         string   `json:"host,omitempty"`
	DequeueCount int64    `json:"dequeueCount"`
	Attempts     int      `json:"attempts"`
	Lost         int64    `json:"lost,omitempty"`

	Inserted  time.Time  `json:"inserted"`
	Expires   *time.Time `json:"expires,omitempty"`
	FirstSeen time.Time  `json:"firstSeen,omitzero"`
	LastSeen  time.Time  `json:"lastSeen,omitzero"`
	Poisoned  time.Time  `json:"poisoned"`

	Text string `json:"text"`
}

// neverExpires is the year of the expiry that the service returns for a message which never
// expires.
const neverExpires = 9999

// New returns the record of the message m of the queue from. The error may be nil. What only
// the worker knows is left to it: Stack, Lost, and a LastSeen earlier than now.
func New(from queue.Name, m queue.Message, attempts int, reason Reason, cause error) Record {
	now := time.Now().UTC()
	r := Record{
		Reason:  reason,
		Account: from.Account, Queue: from.Queue, ID: m.ID, Host: host(),
		DequeueCount: m.DequeueCount, Attempts: attempts,
		Inserted: m.Inserted, LastSeen: now, Poisoned: now, Text: m.Text,
	}
	if cause != nil {
		r.Error = cause.Error()
	}
	r.Expires = expiry(m)
	r.derive()
	return r
}

// expiry returns when a message expires, or nil if it never does or that is not known.
func expiry(m queue.Message) *time.Time {
	if m.Expires.IsZero() || m.Expires.Year() >= neverExpires {
		return nil
	}
	return &m.Expires
}

// host returns the name of this machine.
var host = sync.OnceValue(func() string {
	name, _ := os.Hostname() // a record without it is still of use
	return name
})

// derive fills in what follows from the rest, if it is missing.
func (r *Record) derive() {
	if r.Fingerprint == "" {
		r.Fingerprint = naming.Fingerprint(r.Error)
	}
	head, _, _, err := open(r.Text, codec.Envelope)
	if r.Job == "" && err == nil {
		r.Job = head.ID
	}
	switch {
	case !r.FirstSeen.IsZero():
	case err == nil && !head.Enqueued.IsZero():
		r.FirstSeen = head.Enqueued
	default:
		r.FirstSeen = r.Inserted
	}
	if r.LastSeen.IsZero() {
		r.LastSeen = r.Poisoned
	}
}

// versioned says that a text is a record.
type versioned struct {
	Version int `json:"millracePoison"`
}

// Parse is poison.ParseRecord.
func Parse(text string) (Record, error) {
	if r, ok := parseMoved(text); ok {
		return r, nil
	}
	var r struct {
		versioned
		Record
	}
	err := json.Unmarshal([]byte(text), &r)
	if r.Version > version {
		return Record{}, fmt.Errorf("read a poison record: %w: version %d, the newest it knows is %d", codec.ErrNewer, r.Version, version)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read a poison record: %w", err)
	}
	if r.Version < 1 {
		return Record{}, fmt.Errorf("read a poison record: the text is not a record (no %q field)", "millracePoison")
	}
	r.derive()
	return r.Record, nil
}

// xmlEscaper escapes the characters that JSON leaves as they are and XML does not allow. JSON
// itself escapes all others that XML does not allow, and replaces invalid UTF-8 by U+FFFD.
var xmlEscaper = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`)

// Encode returns the record as JSON that the queue can carry, whatever the error contains.
// Angle brackets and & stay unescaped: the XML around escapes them anyway, and six bytes for
// each would count towards the 64 KiB.
func (r Record) Encode() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	written := struct {
		versioned
		Record
	}{versioned{version}, r}
	if err := e.Encode(written); err != nil {
		return "", err
	}
	// They occur only in strings, where the escape means the same.
	return xmlEscaper.Replace(strings.TrimSuffix(b.String(), "\n")), nil
}

// open opens a text to look into it or to put it right, which needs no understanding of its body.
func open(text string, f codec.Format) (envelope.Head, []byte, codec.Format, error) {
	return envelope.Open(text, f, envelope.Kinds, envelope.Claims, envelope.Groups)
}

// Body is poison.Record.Body of a record with this text.
func Body(text string) ([]byte, error) {
	head, body, _, err := open(text, codec.Auto)
	if err == nil && head.Claim != "" {
		err = fmt.Errorf("the body of the message is not in its text, it is stored elsewhere: %.300q", head.Claim)
	}
	if err != nil {
		return []byte(text), err
	}
	return body, nil
}

// Anew returns the text of a message as if it had never been delivered. What has no envelope, or a
// broken one, stays as it is: a worker says what is wrong with it. An envelope of a newer release
// is an error that wraps codec.ErrNewer.
func Anew(text string) (string, error) {
	head, body, _, err := open(text, codec.Envelope)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return "", fmt.Errorf("redrive it with a newer release: %w", err)
	case err != nil:
		return text, nil //nolint:nilerr // a worker is to say what is wrong with it
	}
	unmark(&head)
	return envelope.Seal(head, body, codec.Envelope)
}

// unmark removes from the head what was recorded of deliveries. What is done of a group stays.
func unmark(head *envelope.Head) {
	head.Attempts, head.Settled, head.Starts, head.Fingerprint, head.Poison, head.Moved = 0, 0, 0, "", "", ""
	head.Failed, head.Failure, head.Started = "", "", ""
}

// movedTexts returns texts that have the least of the record in the head of their envelope, for
// which every producer leaves room: the reason, the attempts, when it expires, and its queue. The
// second one lacks when the job was sent. A text without an envelope has none.
func (r Record) movedTexts() (texts []string) {
	head, body, _, err := open(r.Text, codec.Envelope)
	if err != nil {
		return nil
	}
	var expires int64
	if r.Expires != nil {
		expires = r.Expires.Unix()
	}
	unmark(&head)
	head.Moved = fmt.Sprintf("%s %d %d %s", r.Reason, r.Attempts, expires, r.Queue)
	for _, enqueued := range [...]time.Time{head.Enqueued, {}} {
		head.Enqueued = enqueued
		if text, err := envelope.Seal(head, body, codec.Envelope); err == nil {
			texts = append(texts, text)
		}
	}
	return texts
}

// parseMoved parses what movedTexts returns.
func parseMoved(text string) (r Record, ok bool) {
	head, body, _, err := open(text, codec.Envelope)
	if err != nil {
		return r, false
	}
	var expires int64
	if _, err := fmt.Sscanf(head.Moved, "%s %d %d %s", &r.Reason, &r.Attempts, &expires, &r.Queue); err != nil {
		return r, false
	}
	if expires > 0 {
		at := time.Unix(expires, 0).UTC()
		r.Expires = &at
	}
	head.Moved = ""
	r.Text, err = envelope.Seal(head, body, codec.Envelope)
	r.derive()
	return r, err == nil
}

// bareText returns what consumers that know no envelope read: the body, or Base64 of one that XML
// cannot carry. A text without an envelope stays as it is; so does one whose body is elsewhere or a
// group, or that this program cannot read.
func bareText(text string) string {
	head, body, _, err := open(text, codec.Envelope)
	if err != nil || head.Claim != "" || head.Items > 0 {
		return text
	}
	format := codec.Plain
	if driver.CheckText(string(body)) != nil {
		format = codec.Base64
	}
	bare, err := envelope.Seal(envelope.Head{}, body, format)
	if err != nil {
		return text
	}
	return bare
}
