package poison

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// Defaults of [Policy].
const (
	DefaultMaxAttempts = 5
	DefaultMaxLost     = 5
)

// Suffix is appended to the name of a queue for the name of its poison queue.
const Suffix = "-poison"

// Policy decides when a message is poison and where it is moved. The zero value is the default
// policy.
type Policy struct {
	// MaxAttempts is how many recorded failures make a message poison. For a message without an
	// envelope every delivery counts, also one whose worker died. Defaults to 5. Negative is an
	// error.
	MaxAttempts int

	// MaxLost is how many handlers in a row may be recorded to start without a result, because
	// the worker died or lost its lease, before the message is poison: the message itself may
	// kill the worker. The first start after each settlement is not recorded, so a job that kills its
	// worker runs MaxLost + 1 times. Deliveries that never reached a handler do not count, nor
	// do, in the same process, up to 20 handlers that returned without their lease. It applies
	// to messages with an envelope; if the text has no room for the record every delivery
	// counts, even those to workers that could not read it. Producers of Millrace leave room.
	// Defaults to 5. Negative is an error.
	MaxLost int

	// Queue is where poison is moved. It is created when missing. Defaults to the sibling of
	// the queue with [Suffix]. A queue that is itself a poison queue, or whose name is too long
	// for the suffix, has no default: see Keep.
	Queue queue.Queue

	// Bare copies only the body, as consumers of other frameworks expect it: no [Record], and no
	// envelope either. The body is as it is, or in Base64 if XML cannot carry it. A message that
	// has no envelope is copied unchanged, and so is one whose body is stored elsewhere. Why it is
	// poison, where it came from, and the kind of its job are lost. Defaults to false.
	Bare bool

	// Keep leaves a poison message in its queue, never handled, and hidden again each time it
	// becomes visible: for a minute at first, then for twice as long each time, up to a day, and
	// for at most half of its remaining life. Defaults to false, except where Queue has no
	// default.
	Keep bool
}

// WithDefaults returns p with the defaults for the queue q, or an error for an invalid policy.
func (p Policy) WithDefaults(q queue.Queue) (Policy, error) {
	if p.MaxAttempts < 0 || p.MaxLost < 0 {
		return p, fmt.Errorf("poison thresholds of %d attempts and %d lost starts must be at least 1", p.MaxAttempts, p.MaxLost)
	}
	p.MaxLost = cmp.Or(p.MaxLost, DefaultMaxLost)
	p.MaxAttempts = cmp.Or(p.MaxAttempts, DefaultMaxAttempts)
	if p.Keep {
		if p.Queue != nil {
			return p, errors.New("poison policy sets both Queue and Keep: set only one")
		}
		return p, nil
	}
	if p.Queue == nil {
		name := q.Name().Queue
		hasSibling := !strings.HasSuffix(name, Suffix) && queue.CheckName(name+Suffix) == nil
		if !hasSibling {
			p.Keep = true
			return p, nil
		}
		p.Queue = q.Sibling(Suffix)
	}
	if err := queue.CheckName(p.Queue.Name().Queue); err != nil {
		return p, fmt.Errorf("poison queue: %w", err)
	}
	if p.Queue.Name() == q.Name() {
		return p, fmt.Errorf("poison queue %v is the queue itself: its messages would be moved to itself for ever", q.Name())
	}
	return p, nil
}

// maxError is how many bytes of an error text are kept if the whole does not fit.
const maxError = 512

// Copy writes the record to the policy's queue; when it returns nil the copy is durable. The
// caller then deletes the original, never before. Transient failures are retried until ctx
// ends; a retry after an unknown outcome may leave two copies. The cause of its requests is
// metered.CausePoison. A policy with Keep is an error.
func (p Policy) Copy(ctx context.Context, r Record) error {
	if p.Queue == nil {
		return errors.New("copy to a poison queue: the policy has none")
	}
	if request.CauseOf(ctx) != request.CausePoison { // a dispatcher has set it already
		ctx = request.WithCause(ctx, request.CausePoison)
	}
	for _, text := range p.texts(r) {
		err := retry.Do(ctx, string(r.ID), queue.Transient, func(ctx context.Context) error { return p.put(ctx, text) })
		if errors.Is(err, queue.ErrTooLarge) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, err)
		}
		return nil
	}
	// The original fitted into a message of the same service, so its bare text does too. Only
	// another service with a lower limit gets here.
	return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, queue.ErrTooLarge)
}

func (p Policy) put(ctx context.Context, text string) error {
	_, err := p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	if !errors.Is(err, queue.ErrQueueMissing) {
		return err
	}
	if err := p.Queue.Create(ctx, nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
		return fmt.Errorf("it does not exist and could not be created; create %s, or allow this worker to: %w", p.Queue.Name().Queue, err)
	}
	_, err = p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	return err
}

// texts returns the texts to try in order: the whole record, without the stack, with the beginning
// of the error, without it, with nothing but what cannot be derived, as parameters of the envelope,
// and the bare message text. The body is never shortened.
func (p Policy) texts(r Record) []string {
	if p.Bare {
		return []string{bareText(r.Text)}
	}
	var texts []string
	add := func() {
		if text, err := r.encode(); err == nil && (len(texts) == 0 || len(text) < len(texts[len(texts)-1])) {
			texts = append(texts, text)
		}
	}
	add()
	r.Stack = ""
	add()
	if len(r.Error) > maxError {
		r.Error = strings.ToValidUTF8(r.Error[:maxError], "") + " …"
		add()
	}
	r.Error = ""
	add()
	r.Job, r.Host, r.Fingerprint, r.FirstSeen, r.LastSeen, r.Lost = "", "", "", time.Time{}, time.Time{}, 0
	add()
	return append(append(texts, r.movedTexts()...), r.Text)
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
		if text, err := codec.Seal(head, body, codec.Envelope); err == nil {
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
	r = Record{Version: version}
	var expires int64
	if _, err := fmt.Sscanf(head.Moved, "%s %d %d %s", &r.Reason, &r.Attempts, &expires, &r.Queue); err != nil {
		return r, false
	}
	if expires > 0 {
		at := time.Unix(expires, 0).UTC()
		r.Expires = &at
	}
	head.Moved = ""
	r.Text, err = codec.Seal(head, body, codec.Envelope)
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
	if queue.CheckText(string(body)) != nil {
		format = codec.Base64
	}
	bare, err := codec.Seal(codec.Head{}, body, format)
	if err != nil {
		return text
	}
	return bare
}

// Reason is why a message is poison, in one word for metrics and filters.
type Reason string

// The reasons.
const (
	ReasonAttempts    Reason = "attempts"    // the handler failed too often
	ReasonLost        Reason = "lost"        // too many handlers in a row started without a result
	ReasonUndecodable Reason = "undecodable" // the text cannot be decoded
	ReasonRejected    Reason = "rejected"    // the handler asked for it
	ReasonExpiring    Reason = "expiring"    // it expires before another attempt could be made

	// ReasonOutlived means that handlers of the message kept returning after they had lost its
	// lease, so that none of their results could count. The job is likely sound, and the
	// visibility too short for how long it takes or for how slow the service is. A worker says
	// so of what it saw itself; otherwise such a message is poison as [ReasonLost].
	ReasonOutlived Reason = "outlived"

	// ReasonBlobGone means that the message carries only a reference to its body, and the body
	// is not where the reference says. To redrive the message helps once the body is restored.
	ReasonBlobGone Reason = "blobgone"
)

// version identifies a text as a [Record] and defines its fields.
const version = 1

// Record is what a poison queue holds for one message: what the message was, why it is poison,
// and what a person needs to understand that. The zero value is not a valid record.
type Record struct {
	Version      int      `json:"millracePoison"`
	Reason       Reason   `json:"reason"`
	Error        string   `json:"error,omitempty"`       // the last error, possibly shortened
	Fingerprint  string   `json:"fingerprint,omitempty"` // the error without its numbers and ids: equal for failures of one kind
	Stack        string   `json:"stack,omitempty"`       // of a handler that panicked: functions and lines, innermost first
	Account      string   `json:"account"`
	Queue        string   `json:"queue"`          // where it came from, and where a redrive returns it
	ID           queue.ID `json:"id"`             // its id in that queue
	Job          string   `json:"job,omitempty"`  // the job id from the envelope; empty when none
	Host         string   `json:"host,omitempty"` // the machine of the worker that gave it up
	DequeueCount int64    `json:"dequeueCount"`
	Attempts     int      `json:"attempts"`       // failures recorded; without an envelope, deliveries
	Lost         int64    `json:"lost,omitempty"` // deliveries of which nothing was recorded

	Inserted  time.Time  `json:"inserted"`           // by the service's clock
	Expires   *time.Time `json:"expires,omitempty"`  // by the service's clock; nil when never
	FirstSeen time.Time  `json:"firstSeen,omitzero"` // when the job was sent: by its producer's clock, else Inserted
	LastSeen  time.Time  `json:"lastSeen,omitzero"`  // its last delivery, by the worker's clock
	Poisoned  time.Time  `json:"poisoned"`           // by the worker's clock

	Text string `json:"text"` // the message text, exactly
}

// neverExpires is the year of the expiry that the service returns for a message which never
// expires.
const neverExpires = 9999

// NewRecord returns the record of the message m of the queue from. The error may be nil. What only
// the worker knows is left to it: Stack, Lost, and a LastSeen earlier than now.
func NewRecord(from queue.Name, m queue.Message, attempts int, reason Reason, cause error) Record {
	now := time.Now().UTC()
	r := Record{
		Version: version, Reason: reason,
		Account: from.Account, Queue: from.Queue, ID: m.ID, Host: host(),
		DequeueCount: m.DequeueCount, Attempts: attempts,
		Inserted: m.Inserted, LastSeen: now, Poisoned: now, Text: m.Text,
	}
	if cause != nil {
		r.Error = cause.Error()
	}
	if !m.Expires.IsZero() && m.Expires.Year() < neverExpires {
		expires := m.Expires
		r.Expires = &expires
	}
	r.derive()
	return r
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

// Body returns the body of the message that the record holds, decoded from an envelope or Base64
// if it is in one. A text that cannot be read is returned as it is, with the error; so is one
// whose body is stored elsewhere, where a listener with claims finds it after a redrive.
func (r Record) Body() ([]byte, error) {
	head, body, _, err := open(r.Text, codec.Auto)
	if err == nil && head.Claim != "" {
		err = fmt.Errorf("the body of the message is not in its text, it is stored elsewhere: %.300q", head.Claim)
	}
	if err != nil {
		return []byte(r.Text), err
	}
	return body, nil
}

// ParseRecord parses the text of a message in a poison queue. What records of earlier releases
// lack and follows from the rest is filled in. A message that had no room for a whole record has a
// Reason, a Queue, Attempts, Expires, and a Text. A text that is not a record, such as one moved
// bare, is an error. A record of a newer release is an error that wraps codec.ErrNewer, and only
// its Version is returned.
func ParseRecord(text string) (Record, error) {
	if r, ok := parseMoved(text); ok {
		return r, nil
	}
	var r Record
	err := json.Unmarshal([]byte(text), &r)
	if r.Version > version {
		return Record{Version: r.Version}, fmt.Errorf("read a poison record: %w: version %d, the newest it knows is %d", codec.ErrNewer, r.Version, version)
	}
	if err != nil {
		return r, fmt.Errorf("read a poison record: %w", err)
	}
	if r.Version < 1 {
		return r, fmt.Errorf("read a poison record: the text is not a record (no %q field)", "millracePoison")
	}
	r.derive()
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

// open opens a text to look into it or to put it right, which needs no understanding of its body.
func open(text string, f codec.Format) (codec.Head, []byte, codec.Format, error) {
	return codec.Open(text, f, codec.Kinds, codec.Claims, codec.Groups)
}

// maxStack bounds a stack in bytes: what panicked is near its beginning.
const maxStack = 8 << 10

// ours is how the frames begin that call handlers.
const ours = "github.com/millrace/millrace/dispatcher."

// Addresses, arguments and numbers of goroutines, which say nothing later.
var (
	arguments  = regexp.MustCompile(`\((?:0x[0-9a-f]+\??|\.\.\.|\{|\}|_|, )*\)$`)
	offset     = regexp.MustCompile(` \+0x[0-9a-f]+$`)
	goroutines = regexp.MustCompile(` in goroutine [0-9]+$`)
)

// Stack returns the stack of a panic, as debug.Stack returns it, for [Record]: functions and
// lines, innermost first, from the call that panicked to the handler. It has no addresses,
// arguments or numbers of goroutines, so that one fault has one stack. A long one is cut at 8 KiB.
func Stack(trace []byte) string {
	lines := strings.Split(strings.TrimSpace(string(trace)), "\n")
	if len(lines) > 0 && strings.HasPrefix(lines[0], "goroutine ") {
		lines = lines[1:]
	}
	for i, line := range lines { // what precedes it collects the stack
		if strings.HasPrefix(line, "panic(") {
			lines = lines[min(i+2, len(lines)):]
			break
		}
	}
	var b strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, ours) && b.Len() > 0 { // what called the handler is always the same
			break
		}
		line = goroutines.ReplaceAllString(line, "")
		line = offset.ReplaceAllString(arguments.ReplaceAllString(line, "()"), "")
		if b.Len()+len(line)+1 > maxStack {
			b.WriteString("…\n")
			break
		}
		b.WriteString(line + "\n")
	}
	return strings.ToValidUTF8(strings.TrimSuffix(b.String(), "\n"), "")
}
