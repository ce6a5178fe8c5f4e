package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// delivery is one time that the server handed a message out.
type delivery struct {
	account  *account
	who      string
	entry    entry
	head     codec.Head
	bodies   []string // that the message may have: as it was delivered or saved; several where an outcome is unknown
	began    *entry
	cut      time.Duration // when the handler's context ended while it ran; 0 for not
	reported time.Duration // when it was reported as stuck; 0 for not
	givenUp  bool          // its slot is another's
	ended    *entry
	copied   bool
	back     bool // given back: an update after the run, or without one
}

// counted tells whether attempts are counted in the text.
func (d *delivery) counted() bool { return strings.HasPrefix(d.entry.text, thisMark) }

// said tells whether the run of the delivery has ended like this.
func (d *delivery) said(result string) bool {
	return d.ended != nil && strings.HasPrefix(d.ended.said, result)
}

// has tells whether the message may have that body.
func (d *delivery) has(body string) bool { return slices.Contains(d.bodies, body) }

// holds tells whether the message may have that text.
func (d *delivery) holds(text string) bool {
	if text == d.entry.text {
		return true
	}
	head, body, _, err := codec.Open(text, codec.Auto)
	return err == nil && head.ID == d.head.ID && d.has(string(body))
}

// over is when the handler, or what there was without one, had ended.
func (d *delivery) over() time.Duration {
	if d.ended != nil {
		return d.ended.at
	}
	return d.entry.at
}

func (d *delivery) result() string {
	switch {
	case d.began == nil:
		return "never began"
	case d.ended == nil:
		return "never ended"
	}
	return "ended: " + d.ended.said
}

// save books what a handler did to its message.
func (b *books) save(d *delivery, e entry) {
	switch {
	case e.kind == saving:
		d.bodies = append(d.bodies, e.text)
	case e.said == "":
		d.bodies = []string{e.text}
	case e.said != queue.ErrOutcomeUnknown.Error(): // that try; one before may have been the same
		if i := slices.Index(d.bodies, e.text); i >= 0 {
			d.bodies = slices.Delete(d.bodies, i, i+1)
		}
	}
}

// runsSince counts the runs of deliveries after the one of that count.
func (a *account) runsSince(count int64) int {
	n := 0
	for _, d := range a.deliveries {
		if d.began != nil && d.entry.count > count {
			n++
		}
	}
	return n
}
