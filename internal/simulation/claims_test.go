package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
)

// claimsPlan is how a world keeps bodies outside its messages. The zero value is not at all.
type claimsPlan struct {
	on         bool
	limit      int           // of what Save leaves in a message
	retention  time.Duration // of tombstones
	sweepEvery time.Duration
	away       float64    // share of the calls of a store that fail, before or after they take effect
	missing    float64    // share of the downloads that do not find the body
	deadly     float64    // share of the calls of a store that kill the process
	outage     outagePlan // when all calls of a store fail
	hangs      bool       // instead of failing they hang, until it is over
}

func (p *plan) drawClaims() {
	d := p.dice
	if !d.chance(0.2, "claims") {
		return
	}
	p.claims = claimsPlan{
		on:         true,
		limit:      pick(d, []int{1, 22, 1 << 20}, "claims", "limit"), // all bodies, saved ones, only what the producer says
		retention:  pick(d, []time.Duration{time.Minute, 20 * time.Minute, 30 * 24 * time.Hour}, "claims", "retention"),
		sweepEvery: d.within(20*time.Second, 3*time.Minute, "claims", "sweep"),
		away:       d.unit("claims", "away") * 0.2,
	}
	if d.chance(0.2, "claims", "missing") {
		p.claims.missing = d.unit("claims", "how often missing") * 0.2
	}
	if !p.faultless && d.chance(0.3, "claims", "outage") {
		p.claims.outage.from = d.within(0, p.horizon, "claims", "outage", "from")
		p.claims.outage.long = d.within(10*time.Second, 4*time.Minute, "claims", "outage", "long")
		p.claims.hangs = d.chance(0.4, "claims", "outage", "hangs")
	}
	if d.chance(0.4, "claims", "deadly") {
		p.claims.deadly = 0.02
	}
}

// openedText is a text as the ledger sees it: wherever the body is, it is the body.
type openedText struct {
	head   envelope.Head // without the claim
	claim  string        // name of the blob; "" if the body is in the text
	body   string
	format codec.Format
	err    error
}

// open opens a text. The body of a claim is what was once stored under that name.
func (w *world) open(text string) openedText {
	head, body, format, err := envelope.Open(text, codec.Auto, features...)
	o := openedText{head, "", string(body), format, err}
	if head.Claim == "" {
		return o
	}
	o.claim, o.head.Claim = claimOf(text), ""
	content, known := w.contents[o.claim]
	if o.body = content; !known {
		o.err = errors.New("a claim of a body that was never stored")
	}
	return o
}

// claimOf returns the name of the blob that a text refers to, or "".
func claimOf(text string) string {
	if record, err := poison.ParseRecord(text); err == nil {
		text = record.Text
	}
	head, _, _, err := envelope.Open(readable(text), codec.Auto, features...)
	if err != nil || head.Claim == "" {
		return ""
	}
	claim, err := claimtext.Parse(head.Claim)
	if err != nil {
		return "invalid: " + head.Claim
	}
	return claim.Ref.Name
}

// body is a body in the ledger.
type body struct {
	users    map[*message]bool // whose text had its claim at some time
	copies   []*message        // in the poison queue, with its claim
	came     bool              // a message was delivered with it
	replaced bool              // a save replaced it in a message, which goes on with another
	entombed time.Duration     // when it became a tombstone; 0 for not
	swept    bool
}

// body returns the body with that name.
func (b *ledger) body(name string) *body {
	if b.bodies[name] == nil {
		b.bodies[name] = &body{users: make(map[*message]bool)}
	}
	return b.bodies[name]
}

// refers notes that the text of a message is now this one.
func (b *ledger) refers(a *message, e entry, text string) {
	before := a.claim
	if a.claim = claimOf(text); a.claim == before {
		return
	}
	if before != "" {
		b.body(before).replaced = true
	}
	if a.claim == "" {
		return
	}
	c := b.body(a.claim)
	c.users[a] = true
	if c.entombed > 0 && !c.done() {
		b.addViolation(e, "a message refers to a body that is a tombstone, and its job is not done")
	}
}

// done reports whether no message needs the body: the job of one that had it is done, and the others
// are duplicates; or a save replaced it in the delivery that stored it, and no other has it.
func (c *body) done() bool {
	for a := range c.users {
		if d := a.removed; d != nil && (d.endedWith(didSucceed) || d.endedWith(didDiscard)) {
			return true
		}
	}
	return c.replaced && !c.came
}

// bodyEvent checks what happens to a body.
func (b *ledger) bodyEvent(e entry) {
	c := b.body(e.text)
	switch e.kind {
	case entombed:
		// A duplicate may end when the tombstone that the first one made was swept. It makes another, which is swept in its turn.
		if c.swept && len(c.users) < 2 {
			b.addViolation(e, "a body becomes a tombstone after that was swept")
		}
		c.entombed, c.swept = e.at, false
		if c.done() {
			return
		}
		for a := range c.users {
			if a.present(e.at) && a.claim == e.text {
				b.addViolation(e, "message %s of job %d needs the body that becomes a tombstone", a.id, a.job.n)
			}
		}
		for _, a := range c.copies {
			b.addViolation(e, "the copy of message %s of job %d needs the body that becomes a tombstone", a.id, a.job.n)
		}
	case swept:
		if c.entombed == 0 || e.at-c.entombed < b.world.plan.claims.retention {
			b.addViolation(e, "swept, and it was made a tombstone at %v (0s for not at all); the retention is %v", c.entombed, b.world.plan.claims.retention)
		}
		c.swept = true
	}
}

// isDuplicate reports whether the message is the duplicate of one whose body has become a tombstone.
func (b *ledger) isDuplicate(d *delivery) bool {
	claim := claimOf(d.entry.text)
	return claim != "" && d.began == nil && b.body(claim).entombed > 0 && b.body(claim).done()
}

// goneIsRight reports whether a message may be poison because its body is gone.
func (b *ledger) goneIsRight(d *delivery) bool {
	claim := claimOf(d.entry.text)
	return claim != "" && d.began == nil && (d.hidden || b.body(claim).swept && b.body(claim).done())
}

// closeBodies checks the store at the end: what messages need is there, and what nobody needs is
// there only for a reason.
func (b *ledger) closeBodies() {
	needed := make(map[string]bool)
	for _, claim := range b.claimsLeft {
		needed[claim] = true
		if c, got := b.body(claim), b.world.bodiesLeft[claim]; !got && !c.done() {
			b.addViolation(entry{}, "the body %s of a message that is left is gone, and its job is not done", claim)
		}
	}
	for _, claim := range slices.Sorted(maps.Keys(b.world.bodiesLeft)) {
		if b.world.plan.faultless && !needed[claim] && !b.mayBeOrphan(claim) {
			b.addViolation(entry{}, "without faults: the body %s is left, and no message needs it", claim)
		}
	}
}

// mayBeOrphan reports whether a body may stay although nothing failed: its message expired, or was
// lost by a handler that outlived its lease, or goes on with another body after a delivery that did not
// end its job.
func (b *ledger) mayBeOrphan(claim string) bool {
	if c := b.body(claim); c.replaced && c.came {
		return true
	}
	for a := range b.body(claim).users {
		if a.acceptance.until != 0 || b.outlived(a) {
			return true
		}
	}
	return len(b.body(claim).users) == 0 // a save that was refused: its lease was lost
}

// keepBodies notes what is left in the store, after the tombstones have been swept.
func (w *world) keepBodies() {
	if !w.plan.claims.on {
		return
	}
	time.Sleep(w.plan.claims.retention + time.Second)
	claims := w.newClaims(w.bodyStore("janitor"))
	if _, err := claims.Sweep(context.Background()); err != nil {
		w.addViolation("sweep: %v", err)
	}
	for body, err := range claims.List(context.Background()) {
		switch {
		case err != nil:
			w.addViolation("list the bodies: %v", err)
		case body.Settled:
			w.addViolation("a tombstone is left: %v", body.Ref)
		default:
			w.bodiesLeft[body.Ref.Name] = true
		}
	}
}

// isEnvelope reports whether a text is an envelope of this release.
func isEnvelope(text string) bool {
	return strings.HasPrefix(text, thisMark) || strings.HasPrefix(text, featureMark)
}

var _ blob.Store = (*bodyStore)(nil)
