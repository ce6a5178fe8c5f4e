package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
)

// form is the form of a message's text.
type form string

const (
	enveloped form = "enveloped"
	foreign   form = "foreign" // JSON without an envelope
	base64ed  form = "base64"  // the same in Base64
	junk      form = "junk"    // no job at all
	broken    form = "broken"  // an envelope with an invalid head
	newer     form = "newer"   // an envelope of a later version
)

// behaviour is what the handler does with a job.
type behaviour string

const (
	succeeds behaviour = "succeeds"
	fails    behaviour = "fails"     // some times, then succeeds
	never    behaviour = "never"     // always fails
	poisons  behaviour = "poisons"   // says that it is poison
	discards behaviour = "discards"  // says that it is obsolete
	retries  behaviour = "retries"   // asks for another attempt some times
	snoozes  behaviour = "snoozes"   // is too early some times
	panics   behaviour = "panics"    // some times
	exits    behaviour = "exits"     // ends its goroutine some times
	typedNil behaviour = "typed nil" // returns a nil pointer as an error some times
	grouped  behaviour = "grouped"   // is a group, whose items do what they do
)

// jobPlan is one job and the behaviour of its handler.
type jobPlan struct {
	n          int
	at         time.Duration // when it is sent
	delay, ttl time.Duration // 0 for none
	form       form
	largest    bool // its text has the maximum size
	claimed    bool // its body is stored elsewhere
	key, kind  string
	behaviour  behaviour
	times      int           // of the behaviour, before it succeeds
	atOnce     bool          // a retry or snooze is without a delay
	unsayable  bool          // its errors have characters that are not allowed in XML
	undecoded  bool          // the codec panics
	shortest   time.Duration // of its runs
	longest    time.Duration
	saves      int           // how often a run saves its progress
	exhausts   int           // runs that find their dependency exhausted, by a worker with an adaptive limit
	heedless   bool          // does not look at its context
	stubborn   bool          // succeeds although its context has ended
	cleaning   time.Duration // how long it runs after its context has ended
	items      []jobPlan     // of a group; nil for one job
}

func (p *plan) job(n int) jobPlan {
	d, about := p.dice, "job "+str(n)
	j := jobPlan{
		n:         n,
		at:        d.within(0, p.horizon*3/4, about, "at"),
		form:      pick(d, []form{enveloped, enveloped, enveloped, enveloped, enveloped, enveloped, enveloped, foreign, foreign, base64ed, junk, broken, newer}, about, "form"),
		behaviour: pick(d, []behaviour{succeeds, succeeds, succeeds, succeeds, succeeds, fails, fails, never, never, poisons, discards, retries, snoozes, panics, exits, typedNil}, about, "manner"),
		times:     d.number(1, 6, about, "times"),
		atOnce:    d.chance(0.4, about, "at once"),
		unsayable: d.chance(0.1, about, "unsayable"),
		shortest:  time.Microsecond,
	}
	if p.ordinary && d.chance(0.5, about, "healthy") {
		j.form, j.behaviour = enveloped, succeeds
	}
	if p.sick && d.chance(0.7, about, "sick") {
		j.form, j.behaviour = enveloped, fails
	}
	if d.chance(0.4, about, "burst") { // many at once, so that batches are full
		j.at = p.horizon*time.Duration(d.number(0, 2, about, "which burst"))/4 + d.within(0, time.Second, about, "in burst")
	}
	if p.outage.long > 0 && d.chance(0.8, about, "in the outage") {
		j.at, j.behaviour = p.outage.from+d.within(0, min(p.outage.long, 10*time.Second), about, "in the outage", "at"), succeeds
	}
	if !p.faultless && d.chance(0.2, about, "late") { // for those who survive the storm
		j.at = p.horizon + d.within(0, 10*time.Second, about, "late", "at")
	}
	switch d.number(0, 9, about, "pace") {
	case 0, 1, 2, 3: // all but instant
		j.longest = time.Millisecond
	case 4, 5, 6:
		j.longest = 5 * time.Second
	case 7, 8:
		j.shortest, j.longest = time.Second, 40*time.Second
	default: // longer than its lease
		j.shortest, j.longest = 20*time.Second, 3*time.Minute
	}
	if j.longest > time.Second && d.chance(0.4, about, "saving") {
		j.saves = d.number(1, 4, about, "saves")
	}
	j.heedless = d.chance(0.15, about, "heedless")
	j.stubborn = d.chance(0.15, about, "stubborn")
	if d.chance(0.2, about, "cleans up") {
		j.cleaning = d.steep(100*time.Millisecond, 20*time.Second, about, "cleaning")
	}
	if j.form == enveloped && d.chance(0.03, about, "undecoded") {
		j.undecoded = true
	}
	j.largest = j.form != junk && j.form != broken && j.form != newer && d.chance(0.007, about, "largest")
	j.claimed = p.claims.on && j.form == enveloped && !j.largest && d.chance(0.6, about, "claimed")
	p.age(&j)
	return j
}

// age draws a job's delay and TTL.
func (p *plan) age(j *jobPlan) {
	d, about, mortal := p.dice, "job "+str(j.n), 0.1
	if d.chance(0.15, about, "delayed") {
		j.delay = d.within(time.Second, 2*time.Minute, about, "delay")
	}
	if p.poisonAway() { // failures must be recorded before the message expires
		mortal = 0.3
	}
	if d.chance(mortal, about, "mortal") {
		j.ttl = j.delay + d.within(2*time.Second, 10*time.Minute, about, "ttl")
	}
}

// failure returns the error of a run that fails.
func (j jobPlan) failure(run int) error {
	if j.unsayable {
		return fmt.Errorf("run %d: \uffff %w", run, errBroken)
	}
	return fmt.Errorf("run %d: %w", run, errBroken)
}

// text returns the text of the job's message. It differs for every try, so that a bare copy in the
// poison queue identifies its message.
func (j jobPlan) text(at time.Time, try int) string {
	text := j.padded(at, try, 0)
	if most := j.most(); j.largest {
		padding := most - len(text) - len(`,"Pad":""`)
		if j.form == base64ed {
			padding = most/4*3 - len(j.body(try, 1)) + 1
		}
		text = j.padded(at, try, padding)
	}
	return text
}

// most returns the maximum size of the text in bytes: a producer leaves room to record attempts.
func (j jobPlan) most() int {
	if j.form == enveloped {
		return queue.MaxText - envelope.Room
	}
	return queue.MaxText
}

func (j jobPlan) body(try, padding int) string {
	if padding == 0 {
		return fmt.Sprintf(`{"N":%d,"Try":%d}`, j.n, try)
	}
	return fmt.Sprintf(`{"N":%d,"Try":%d,"Pad":"%s"}`, j.n, try, strings.Repeat("x", padding))
}

func (j jobPlan) padded(at time.Time, try, padding int) string {
	body := j.body(try, padding)
	if j.items != nil {
		body = string(envelope.Group(slices.Repeat([][]byte{[]byte(body)}, len(j.items))).Encode())
	}
	sealed, err := envelope.Seal(envelope.Head{ID: "job-" + str(j.n), Key: j.key, Kind: j.kind, Items: len(j.items), Enqueued: at}, []byte(body), codec.Envelope)
	if err != nil {
		panic(err)
	}
	switch j.form {
	case foreign:
		return body
	case base64ed:
		coded, _ := envelope.Seal(envelope.Head{}, []byte(body), codec.Base64)
		return coded
	case junk:
		return "no job but " + body
	case broken:
		return "millrace/1?n=many\n" + body
	case newer:
		return inNewer(sealed)
	}
	return sealed
}
