package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func peekCommand() *command {
	var (
		limit  int
		asJSON bool
		beyond bool
	)
	c := queueCommand("peek", "show messages without taking them", peekMore, func(ctx context.Context, t *task, q queue.Manager) error {
		if limit < 1 {
			return usageError{fmt.Errorf("-n %d is out of range: the service shows 1 to %d messages", limit, queue.MaxBatch)}
		}
		if limit > queue.MaxBatch && !beyond {
			return usageError{fmt.Errorf("-n %d is out of range: the service shows 1 to %d messages; -beyond reads further, at a price: see millrace help peek", limit, queue.MaxBatch)}
		}
		return t.peek(ctx, q, limit, beyond, asJSON)
	})
	c.flags.IntVar(&limit, "n", 10, "show at most this `number` of messages, 1 to 32, or more with -beyond")
	c.flags.BoolVar(&beyond, "beyond", false, beyondUsage)
	c.flags.BoolVar(&asJSON, "json", false, "print one JSON object per message, each on its own line")
	return c
}

const peekMore = `It shows the visible messages, those that a worker could get now. Messages that are delayed or
leased by a worker are hidden; millrace stat counts them too. A peek changes nothing: it neither
hides messages nor counts as a delivery.

With -beyond it reads further than the 32 messages that the service shows: it takes messages, 32 at a
time, and gives them back at once. That costs one request per message, hides each for a moment,
changes their order, and counts as a delivery of messages without an envelope. In an envelope the
delivery is accounted for, so that no job counts as lost.

A -json object has "body" if the job is JSON, otherwise "bodyText", or "bodyBase64" if it is not
text; if the message only refers to its body, it has "claim" instead, with "ref", "size" and
"sha256". A group has "group", with "jobs", how many, and "items", each with "state" and a body. "text" is the message as stored. In a poison queue it also has "poison", the record of why
the message is there.
`

// peek prints visible messages of a queue.
func (t *task) peek(ctx context.Context, q queue.Manager, limit int, beyond, asJSON bool) error {
	shown := 0
	out := bufio.NewWriter(t.console.out)
	for m, err := range t.visible(ctx, q, limit, beyond) {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		shown++
		seen := decode(m)
		if asJSON {
			err = printJSON(out, seen)
		} else {
			err = seen.print(out, time.Now())
		}
		if err != nil {
			return err
		}
	}
	if shown == 0 && !asJSON {
		printf(t.console.err, "No message of %v is visible now; millrace stat %s counts hidden ones too.\n", q.Name(), q.Name().Queue)
	}
	return out.Flush()
}

// visible yields visible messages: those that the service shows, or as many as there are.
func (t *task) visible(ctx context.Context, q queue.Manager, limit int, beyond bool) iter.Seq2[queue.Message, error] {
	return func(yield func(queue.Message, error) bool) {
		if beyond {
			for e, err := range poisonrecord.List(ctx, t.untilHalted(q), &poisonrecord.ListOptions{Beyond: true, Max: limit}) {
				if !yield(e.Message, err) {
					return
				}
			}
			return
		}
		messages, err := q.Peek(ctx, limit)
		if err != nil {
			yield(queue.Message{}, err)
		}
		for _, m := range messages {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// peeked is a peeked message, as printed in JSON.
type peeked struct {
	ID           queue.ID   `json:"id"`
	Inserted     time.Time  `json:"inserted"`
	Expires      *time.Time `json:"expires"` // nil when never
	DequeueCount int64      `json:"dequeueCount"`

	Format   string     `json:"format,omitempty"` // "envelope", "plain" or "base64"; "" if it could not be decoded
	Job      string     `json:"job,omitempty"`
	Kind     string     `json:"kind,omitempty"`
	Enqueued *time.Time `json:"enqueued,omitempty"` // by the producer's clock
	Attempts int        `json:"attempts"`

	Poison *peekedPoison `json:"poison,omitempty"`

	peekedBody
	Claim *peekedClaim `json:"claim,omitempty"` // the body is stored elsewhere
	Group *peekedGroup `json:"group,omitempty"` // the body is several jobs

	Error string `json:"error,omitempty"` // why it could not be decoded
	Text  string `json:"text"`
}

// peekedBody is the body of a job: one of these.
type peekedBody struct {
	Body       json.RawMessage `json:"body,omitempty"`
	BodyText   *string         `json:"bodyText,omitempty"`
	BodyBase64 *string         `json:"bodyBase64,omitempty"`
}

func newPeekedBody(body []byte) (p peekedBody) {
	switch {
	case !utf8.Valid(body):
		encoded := base64.StdEncoding.EncodeToString(body)
		p.BodyBase64 = &encoded
	case json.Valid(body):
		p.Body = body
	default:
		plain := string(body)
		p.BodyText = &plain
	}
	return p
}

// peekedPoison is the poison record of a message.
type peekedPoison struct {
	Reason       poison.Reason `json:"reason"`
	Error        string        `json:"error,omitempty"`
	Fingerprint  string        `json:"fingerprint,omitempty"`
	Stack        string        `json:"stack,omitempty"`
	Account      string        `json:"account"`
	Queue        string        `json:"queue"`
	ID           queue.ID      `json:"id"`
	Host         string        `json:"host,omitempty"`
	DequeueCount int64         `json:"dequeueCount"`
	Lost         int64         `json:"lost"`
	Expires      *time.Time    `json:"expires"` // nil when never
	FirstSeen    time.Time     `json:"firstSeen"`
	LastSeen     time.Time     `json:"lastSeen"`
	Poisoned     time.Time     `json:"poisoned"`
}

// peekedClaim locates and identifies the body of a message.
type peekedClaim struct {
	Text   string `json:"text"`             // as in the message
	Ref    string `json:"ref,omitempty"`    // these are set only if the claim is of a known form
	Size   int64  `json:"size,omitempty"`   // in bytes
	SHA256 string `json:"sha256,omitempty"` // in hex
}

// String describes the body for people.
func (p *peekedClaim) String() string {
	if p.Ref == "" {
		return "(stored elsewhere) " + p.Text
	}
	return fmt.Sprintf("(stored elsewhere) %d bytes in %s, SHA-256 %s", p.Size, p.Ref, p.SHA256)
}

// decode decodes a message and its poison record, if it has one.
func decode(m queue.Message) peeked {
	s := peeked{ID: m.ID, Inserted: m.Inserted, DequeueCount: m.DequeueCount, Text: m.Text}
	const never = 9999
	if m.Expires.Year() < never {
		s.Expires = &m.Expires
	}
	text := m.Text
	r, err := poison.ParseRecord(text)
	if err == nil {
		s.Poison = &peekedPoison{
			r.Reason, r.Error, r.Fingerprint, r.Stack, r.Account, r.Queue, r.ID, r.Host,
			r.DequeueCount, r.Lost, r.Expires, r.FirstSeen, r.LastSeen, r.Poisoned,
		}
		text = r.Text
	}
	head, body, format, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Claims, envelope.Groups)
	if err != nil {
		s.Error = err.Error()
		s.BodyText = &text
		return s
	}
	s.Format, s.Job, s.Kind, s.Attempts = string(format), head.ID, head.Kind, head.Attempts
	if s.Poison != nil {
		s.Attempts = r.Attempts
	}
	if !head.Enqueued.IsZero() {
		s.Enqueued = &head.Enqueued
	}
	switch {
	case head.Claim != "":
		s.Claim = &peekedClaim{Text: head.Claim}
		if c, err := claimtext.Parse(head.Claim); err == nil {
			s.Claim.Ref, s.Claim.Size, s.Claim.SHA256 = c.Ref.String(), c.Size, hex.EncodeToString(c.SHA256[:])
		}
	case head.Items == 0:
		s.peekedBody = newPeekedBody(body)
	}
	if head.Items > 0 {
		if s.Group, err = newPeekedGroup(&head, body); err != nil {
			s.Error, s.peekedBody = err.Error(), newPeekedBody(body)
		}
	}
	return s
}

// print prints a message for people: a line about it, and its body.
func (s *peeked) print(out io.Writer, now time.Time) error {
	about := []string{"message " + string(s.ID)}
	add := func(format string, args ...any) { about = append(about, fmt.Sprintf(format, args...)) }
	switch {
	case s.Job != "":
		add("job %s", s.Job)
	case s.Format == string(codec.Base64):
		add("in Base64 without an envelope")
	case s.Format == string(codec.Plain):
		add("without an envelope")
	}
	if s.Kind != "" {
		add("kind %s", s.Kind)
	}
	if s.Group != nil {
		add("%s", s.Group.about())
	}
	add("put %s ago", age(now.Sub(s.Inserted)))
	if s.DequeueCount > 0 {
		add("delivered %s", plural(int(s.DequeueCount), "time"))
	}
	if s.Poison != nil {
		if s.Poison.Reason == poison.ReasonAttempts {
			add("poison of %s after %s", s.Poison.Queue, plural(s.Attempts, "failed attempt"))
		} else {
			add("poison of %s (%s)", s.Poison.Queue, s.Poison.Reason)
		}
		if s.Poison.Error != "" {
			about[len(about)-1] += ": " + s.Poison.Error
		}
	} else if s.Attempts > 0 {
		add("%s", plural(s.Attempts, "failed attempt"))
	}
	if s.Error != "" {
		add("cannot be decoded: %s", s.Error)
	}
	line := strings.Join(strings.Fields(escapeControls(strings.Join(about, ", "))), " ")
	_, err := fmt.Fprintf(out, "%s\n  %s\n", line, strings.ReplaceAll(escapeControls(s.body()), "\n", "\n  "))
	return err
}

func (s *peeked) body() string {
	switch {
	case s.Claim != nil:
		return s.Claim.String()
	case s.Group != nil:
		return s.Group.String()
	}
	return s.peekedBody.String()
}

// String returns the body for people.
func (p peekedBody) String() string {
	switch {
	case p.BodyText != nil:
		return *p.BodyText
	case p.BodyBase64 != nil:
		return "(Base64) " + *p.BodyBase64
	}
	return string(p.Body)
}

// age formats a past duration in one or two units. Clocks differ: a negative one becomes 0.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0).Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// peekedGroup is the part of a message that is a group of jobs.
type peekedGroup struct {
	Jobs   int          `json:"jobs"`
	Done   int          `json:"done"`             // how many need not be handled any more
	Failed int          `json:"failed,omitempty"` // how many failed for good, while others are left
	Items  []peekedItem `json:"items,omitempty"`  // none if the body is stored elsewhere
}

// peekedItem is one job of a group.
type peekedItem struct {
	State string `json:"state"` // "left", "done" or "failed"
	peekedBody
}

// newPeekedGroup returns the group, without its items if the body is stored elsewhere.
func newPeekedGroup(head *envelope.Head, body []byte) (*peekedGroup, error) {
	p := &peekedGroup{Jobs: head.Items, Done: head.Done.Len(), Failed: head.Failed.Len()}
	if head.Claim != "" {
		return p, nil
	}
	items, err := envelope.DecodeGroup(body, head.Items)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		state := "left"
		switch {
		case head.Done.Has(i):
			state = "done"
		case head.Failed.Has(i):
			state = "failed"
		}
		p.Items = append(p.Items, peekedItem{state, newPeekedBody(item)})
	}
	return p, nil
}

// about describes the group in a few words.
func (p *peekedGroup) about() string {
	text := fmt.Sprintf("a group of %s", plural(p.Jobs, "job"))
	if p.Done > 0 {
		text += fmt.Sprintf(", %d done", p.Done)
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed for good", p.Failed)
	}
	return text
}

// String returns the items, a line for each.
func (p *peekedGroup) String() string {
	lines := make([]string, len(p.Items))
	for i, item := range p.Items {
		lines[i] = fmt.Sprintf("item %d, %s: %s", i, item.State, item)
	}
	return strings.Join(lines, "\n")
}
