package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

const costMore = `It prints what a queue costs a month by a model, and asks no account: before, with each of the ways to
lower it alone, and with all of them. The model is described at
` + documents + `cost.md: a request is a
transaction, even one that finds nothing. The defaults are the example of that page, and its price is an
example too: prices differ by region and redundancy, so give yours.
`

const costEpilogue = `
Group, compression, batch, idle-max, fewer and safety say what the lever of that name is set to; the
others are the state before.
`

func costCommand() *command {
	n := defaultNumbers()
	var blobPrice *big.Rat
	asJSON := false
	f := newFlags("cost")
	wholeVar(f, &n.instances, "instances", 1, 100_000, "this `number` of processes listen to the queue")
	wholeVar(f, &n.loops, "loops", 1, 100_000, "each of them has this `number` of loops that dequeue")
	spanVar(f, &n.every, "every", time.Millisecond, "each loop polls an empty queue once in this `duration`")
	spanVar(f, &n.busy, "busy", 0, "there is work for this `duration` a day, and nothing to do otherwise")
	wholeVar(f, &n.jobs, "messages-per-day", 0, 1_000_000_000_000, "this `number` of jobs is sent, each in its own message")
	wholeVar(f, &n.bytes, "bytes", 1, 1<<30, "the body of a job has this `number` of bytes; over 48 KiB it is kept in a blob")
	wholeVar(f, &n.days, "days", 1, 31, "this `number` of days is a month")
	decimalVar(f, &n.price, "price", 0, "`dollars` for 10,000 transactions")
	decimalVar(f, &blobPrice, "blob-price", 0, "`dollars` for 10,000 requests to the blob store (default as -price)")
	decimalVar(f, &n.bus, "bus", 0, "`dollars` a month for a server that carries wake-ups; millrace serve and a bus within a\nprocess need none")
	decimalVar(f, &n.hourPrice, "hour-price", 0, "`dollars` for an hour of an instance, to include instance-hours")
	wholeVar(f, &n.group, "group", 1, envelope.MaxItems, "this `number` of jobs in a message")
	decimalVar(f, &n.compression, "compression", 1, "compression makes a body smaller by this `factor`")
	wholeVar(f, &n.batch, "batch", 1, queue.MaxBatch, "a dequeue returns this `number` of messages")
	spanVar(f, &n.idleMax, "idle-max", time.Millisecond, "a loop that finds nothing waits longer each time, up to this `duration`")
	wholeVar(f, &n.fewer, "fewer", 1, 100_000, "this `number` of instances while there is nothing to do")
	spanVar(f, &n.safety, "safety", time.Millisecond, "an instance that is woken polls once in this `duration` all the same")
	f.BoolVar(&n.embedded, "embedded", false, "the embedded server sends the wake-ups: there no poll is needed to end a loop")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return &command{name: "cost", does: "print what a queue costs, before and after", more: costMore, epilogue: costEpilogue, flags: f,
		run: func(_ context.Context, c *console, _ []string) error {
			if n.blobPrice = blobPrice; blobPrice == nil {
				n.blobPrice = n.price
			}
			if err := n.check(); err != nil {
				return usageError{err}
			}
			r := newCostReport(n, given(f, "price"))
			if asJSON {
				return printJSON(c.out, r)
			}
			return r.print(c.out)
		}}
}

// check refuses numbers that contradict each other. Each by itself is within its bounds.
func (n *costNumbers) check() error {
	if n.fewer > n.instances {
		return fmt.Errorf("-fewer %d is more than -instances %d: it says how many of them are left while there is nothing to do", n.fewer, n.instances)
	}
	return nil
}

// given reports whether the command line has this flag.
func given(f *flag.FlagSet, name string) (found bool) {
	f.Visit(func(one *flag.Flag) { found = found || one.Name == name })
	return found
}

// costNumbers describe a queue and those who work on it. All arithmetic on them is exact, except that of dequeues and readings
// while there is work.
type costNumbers struct {
	instances int64
	loops     int64         // of each instance
	every     time.Duration // between the polls of an idle loop
	busy      time.Duration // a day
	jobs      int64         // a day
	bytes     int64         // of a job's body
	days      int64         // a month

	price     *big.Rat // dollars for priceUnit transactions
	blobPrice *big.Rat // dollars for priceUnit requests to a blob store
	bus       *big.Rat // dollars a month for what carries the wake-ups
	hourPrice *big.Rat // dollars for an instance-hour; 0 leaves them out

	// Settings of the levers.
	group       int64         // jobs in a message
	compression *big.Rat      // how many times smaller it makes a body
	batch       int64         // messages a dequeue returns
	idleMax     time.Duration // between the polls of an idle loop
	fewer       int64         // instances while idle
	safety      time.Duration // between the polls of an instance that is woken
	embedded    bool          // the embedded server sends the wake-ups: no poll ends a loop
}

const (
	priceUnit = 10_000 // transactions

	// bodyLimit is the size of the largest body that stays in its message, the default of
	// claimcheck.
	bodyLimit = 48 << 10

	// blobRequests is the number of requests for a body in a blob store: it is put, opened, replaced by a
	// tombstone and swept.
	blobRequests = 4

	// While messages follow each other within trickleGap, an instance that is woken dequeues once in
	// lingerTime, from the lingerAfter-th dequeue on. With the embedded server it does not wait.
	lingerTime  = 125 * time.Millisecond
	trickleGap  = 4 * lingerTime
	lingerAfter = 3

	// pollTime is how long a dequeue is assumed to take.
	pollTime = 4 * time.Millisecond

	// idleMin is the default of listener.Options.Fetch.Idle.Min: the wait of a loop that backs off begins near it.
	idleMin = 100 * time.Millisecond

	// readingInterval is how often an instance that has work reads the properties of its queue at
	// most, for its pause flag. Waits are up to a tenth longer, so that instances are not in step.
	readingInterval = time.Minute
	meanJitter      = 1.05
)

// levers are a set of ways to lower a bill.
type levers uint

const (
	leverGroup    levers = 1 << iota // several jobs in a message, compressed
	leverBatch                       // several messages a dequeue
	leverBackOff                     // longer waits between polls
	leverOneLoop                     // one loop of each instance when idle
	leverFewer                       // fewer instances when idle
	leverFleet                       // instances share the polls of one
	leverPush                        // wake-ups in place of polls
	leverNoSafety                    // with leverPush: no safety poll either

	leverNone    levers = 0
	leversOfPoll        = leverGroup | leverBatch | leverBackOff | leverOneLoop | leverFewer | leverFleet
	leversOfPush        = leversOfPoll | leverPush
)

func (l levers) has(one levers) bool { return l&one != 0 }

// bill is the cost of a month. Averages need not be whole numbers.
type bill struct {
	idlePolls       *big.Rat
	messageRequests *big.Rat // puts, deletes, and while there is work all dequeues and readings of the flag
	blobRequests    *big.Rat
	instanceHours   *big.Rat
	dollars         *big.Rat
}

func (b bill) transactions() *big.Rat { return sum(b.idlePolls, b.messageRequests) }

// bill returns the bill of a month with these levers.
func (n *costNumbers) bill(l levers) bill {
	b := bill{
		idlePolls:       product(n.idlePolls(l), whole(n.days)),
		messageRequests: product(sum(product(whole(2), n.sent(l)), n.dequeues(l), n.readings(l)), whole(n.days)),
		blobRequests:    product(n.sent(l), n.blobsOf(l), whole(n.days)),
		instanceHours:   n.instanceHours(l),
	}
	b.dollars = sum(n.worth(b.transactions()), quotient(product(b.blobRequests, n.blobPrice), whole(priceUnit)), product(b.instanceHours, n.hourPrice))
	if l.has(leverPush) {
		b.dollars.Add(b.dollars, n.bus)
	}
	return b
}

func (n *costNumbers) worth(transactions *big.Rat) *big.Rat {
	return quotient(product(transactions, n.price), whole(priceUnit))
}

// idle returns how long there is nothing to do, a day.
func (n *costNumbers) idle() time.Duration { return 24*time.Hour - n.busy }

// instancesIdle returns how many instances there are while there is nothing to do.
func (n *costNumbers) instancesIdle(l levers) int64 {
	if l.has(leverFewer) {
		return n.fewer
	}
	return n.instances
}

// instanceHours returns how many hours instances run, a month.
func (n *costNumbers) instanceHours(l levers) *big.Rat {
	hours := func(instances int64, d time.Duration) *big.Rat {
		return product(whole(instances), big.NewRat(int64(d), int64(time.Hour)), whole(n.days))
	}
	return sum(hours(n.instances, n.busy), hours(n.instancesIdle(l), n.idle()))
}

// pollsOfALoop returns how often one idle loop polls at this interval, a day.
func (n *costNumbers) pollsOfALoop(interval time.Duration) *big.Rat {
	return big.NewRat(int64(n.idle()), int64(interval))
}

// idlePolls returns the polls that find nothing, a day.
func (n *costNumbers) idlePolls(l levers) *big.Rat {
	instances, loops, every := n.instancesIdle(l), n.loops, n.every
	switch {
	case l.has(leverPush) && l.has(leverNoSafety):
		return new(big.Rat)
	case l.has(leverPush): // every loop has ended
		return product(whole(instances), n.pollsOfALoop(n.safety))
	}
	if l.has(leverBackOff) {
		every = n.idleMax
	}
	if l.has(leverOneLoop) {
		loops = 1
	}
	polls := product(whole(instances), whole(loops), n.pollsOfALoop(every))
	if l.has(leverFleet) { // each waits as many times as long as there are instances
		polls = quotient(polls, whole(instances))
	}
	return polls
}

func (n *costNumbers) sent(l levers) *big.Rat {
	return quotient(whole(n.jobs), whole(n.groupOf(l)))
}

func (n *costNumbers) groupOf(l levers) int64 {
	if l.has(leverGroup) {
		return n.group
	}
	return 1
}

// receive returns the transactions of a message for its consumer: its share of a dequeue, and the
// delete.
func (n *costNumbers) receive(l levers) *big.Rat {
	batch := int64(1)
	if l.has(leverBatch) {
		batch = n.batch
	}
	return sum(big.NewRat(1, batch), whole(1))
}

// life returns the transactions of a message, its put included.
func (n *costNumbers) life(l levers) *big.Rat { return sum(n.receive(l), whole(1)) }

// alone returns the transactions of a message that comes alone under push, with the poll that ends
// its loop, if one is needed.
func (n *costNumbers) alone() *big.Rat {
	if n.embedded {
		return n.life(leverNone)
	}
	return sum(n.life(leverNone), whole(1))
}

// gap returns the seconds between two messages while there is work: they come evenly, or all at once if there is no time. False
// means that none come, or all at once.
func (n *costNumbers) gap(l levers) (seconds float64, known bool) {
	if n.jobs == 0 || n.busy == 0 || l.has(leverBatch) {
		return 0, false
	}
	seconds, _ = quotient(big.NewRat(int64(n.busy), int64(time.Second)), n.sent(l)).Float64()
	return seconds, true
}

// dequeues returns the dequeues while there is work, a day.
func (n *costNumbers) dequeues(l levers) *big.Rat {
	gap, even := n.gap(l)
	if !even {
		return product(n.sent(l), new(big.Rat).Sub(n.receive(l), whole(1)))
	}
	least := quotient(n.sent(l), whole(queue.MaxBatch)) // if all are full
	busy := n.busy.Seconds()
	if l.has(leverPush) {
		polls := pushRate(n.instances, gap, n.embedded) * busy
		if !l.has(leverNoSafety) {
			// Every event starts the wait of its instance again, so a poll follows a gap that is long enough.
			between := gap * float64(n.instances)
			polls += busy / gap / math.Expm1(meanJitter*n.safety.Seconds()/between)
		}
		return atLeast(least, polls)
	}
	loops := n.instances * n.loops
	if l.has(leverOneLoop) {
		loops = n.instances
	}
	idle := listener.Idle{Min: n.every, Max: n.every}
	if l.has(leverBackOff) {
		idle = listener.Idle{Min: min(idleMin, n.idleMax), Max: n.idleMax}
	}
	if l.has(leverFleet) {
		idle.Fleet = int(n.instances)
	}
	return atLeast(least, pollRate(loops, gap, idle)*busy)
}

func atLeast(least *big.Rat, f float64) *big.Rat {
	r := new(big.Rat).SetFloat64(f)
	if r == nil || r.Cmp(least) < 0 {
		return least
	}
	return r
}

// pollRate returns how many dequeues a second this number of loops send while a message comes every gap seconds. It plays
// them: no formula has both the waits that grow and the loops that take each other's messages. What a loop does depends
// on its share of the messages, so few loops stand for many.
func pollRate(loops int64, gap float64, idle listener.Idle) float64 {
	const (
		most  = 16
		polls = 20_000
	)
	played := min(loops, most)
	gap *= float64(loops) / float64(played)
	random := rand.New(rand.NewPCG(1, 1))
	type player struct {
		at    float64
		empty int // polls in a row
	}
	all := make([]player, played)
	for i := range all {
		all[i] = player{random.Float64() * idle.Max.Seconds(), 0}
	}
	begin, now, taken := 0.0, 0.0, 0.0
	for n := range polls {
		next := &all[0]
		for i := range all {
			if all[i].at < next.at {
				next = &all[i]
			}
		}
		if now = next.at; n == polls/5 {
			begin = now
		}
		next.at += pollTime.Seconds()
		came := math.Floor(now / gap)
		if got := min(came-taken, queue.MaxBatch); got > 0 {
			taken += got
			next.empty = 0
			continue
		}
		next.empty++
		wait := scaling.Curve(idle.Min, idle.Max, next.empty, random.IntN)
		if wait >= idle.Max { // the jitter of a listener, and its fleet
			wait = time.Duration(float64(idle.Max) * float64(max(idle.Fleet, 1)) * (1 + random.Float64()/10))
		}
		next.at += wait.Seconds()
	}
	return (polls - polls/5 - 1) / (now - begin) * float64(loops) / float64(played)
}

// pushRate returns how many dequeues a second this number of instances send, apart from safety
// polls, if each message wakes one of them: in turn with the embedded server, otherwise at random.
// It plays them, as pollRate does.
func pushRate(instances int64, gap float64, embedded bool) float64 {
	const (
		most     = 16
		messages = 20_000
	)
	played := min(instances, most)
	gap *= float64(instances) / float64(played)
	type player struct {
		at      float64 // of the answer to its next dequeue; 0 without a loop
		heard   float64 // its newest event
		settled float64 // its newest dequeue that took what there was
		trickle int     // such dequeues one soon after the other
		short   int     // short batches in a row
	}
	all := make([]player, played)
	poll := func(p *player, now float64) {
		if p.trickle >= lingerAfter && !embedded {
			now = max(now, p.settled+lingerTime.Seconds())
		}
		p.at = now + pollTime.Seconds()
	}
	random := rand.New(rand.NewPCG(1, 1))
	polls, waiting := 0, 0
	for n := 1; n <= messages; n++ {
		now := float64(n) * gap
		for {
			next := (*player)(nil)
			for i := range all {
				if p := &all[i]; p.at > 0 && p.at <= now && (next == nil || p.at < next.at) {
					next = p
				}
			}
			if next == nil {
				break
			}
			got, answered := min(waiting, queue.MaxBatch), next.at
			polls, waiting, next.at = polls+1, waiting-got, 0
			switch next.short++; {
			case got == queue.MaxBatch:
				next.short, next.trickle = 0, 0
			case got > 0 || next.short > 1:
				if answered-next.settled >= trickleGap.Seconds() {
					next.trickle = 0
				}
				next.trickle, next.settled = next.trickle+1, answered
			}
			if ends := got == 0 || next.short > 1 || embedded && next.short > 0; !ends || next.heard > answered-pollTime.Seconds() {
				poll(next, answered)
			} else {
				next.short = 0
			}
		}
		waiting++
		woken := &all[n%len(all)]
		if !embedded {
			woken = &all[random.IntN(len(all))]
		}
		if woken.heard = now; woken.at == 0 {
			poll(woken, now)
		}
	}
	return float64(polls) / (messages * gap) * float64(instances) / float64(played)
}

// blobsOf returns the requests to a blob store for a message.
func (n *costNumbers) blobsOf(l levers) *big.Rat {
	size := product(whole(n.groupOf(l)), whole(n.bytes))
	if l.has(leverGroup) {
		size = quotient(size, n.compression)
	}
	if size.Cmp(whole(bodyLimit)) > 0 {
		return whole(blobRequests)
	}
	return new(big.Rat)
}

// readings returns the readings of the properties while there is work, a day: one with the first message after readingInterval.
func (n *costNumbers) readings(l levers) *big.Rat {
	if n.jobs == 0 {
		return new(big.Rat)
	}
	gap, _ := n.gap(l)
	instances := float64(n.instances)
	return new(big.Rat).SetFloat64(instances * n.busy.Seconds() / (meanJitter*readingInterval.Seconds() + gap*instances))
}

// defaultNumbers returns the example of docs/cost.md: 200 loops that poll every second for 22 hours a
// day, because a quarter of an eight-hour day is work.
func defaultNumbers() *costNumbers {
	return &costNumbers{
		instances: 1, loops: 200, every: time.Second, busy: 2 * time.Hour, bytes: 1024, days: 30,
		price: big.NewRat(1, 100), blobPrice: big.NewRat(1, 100), bus: new(big.Rat), hourPrice: new(big.Rat),
		group: 32, compression: whole(1), batch: queue.MaxBatch, idleMax: 30 * time.Second, fewer: 1, safety: time.Minute,
	}
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func product(factors ...*big.Rat) *big.Rat {
	p := whole(1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	return p
}

func sum(terms ...*big.Rat) *big.Rat {
	s := new(big.Rat)
	for _, t := range terms {
		s.Add(s, t)
	}
	return s
}

func quotient(a, b *big.Rat) *big.Rat { return new(big.Rat).Quo(a, b) }
