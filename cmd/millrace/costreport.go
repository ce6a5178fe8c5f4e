package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// costReport is the output of cost in JSON. Counts and dollars are of a month unless their name says
// otherwise.
type costReport struct {
	Numbers costSettings `json:"numbers"`
	Price   costPrice    `json:"price"`

	// One idle loop, at the interval of its polls before.
	IdleSecondsADay json.Number `json:"idleSecondsADay"`
	PollsOfALoopDay json.Number `json:"pollsOfALoopADay"`

	Message   costMessage    `json:"message"`
	Rows      []costRow      `json:"rows"`
	Intervals []costInterval `json:"intervals"` // of one idle loop
	Bus       costBus        `json:"bus"`

	numbers *costNumbers
}

type costSettings struct {
	Instances      int64       `json:"instances"`
	Loops          int64       `json:"loops"`
	EverySeconds   json.Number `json:"everySeconds"`
	BusySeconds    json.Number `json:"busySecondsADay"`
	Messages       int64       `json:"messagesADay"`
	Bytes          int64       `json:"bytes"`
	Days           int64       `json:"days"`
	Group          int64       `json:"group"`
	Compression    json.Number `json:"compression"`
	Batch          int64       `json:"batch"`
	IdleMaxSeconds json.Number `json:"idleMaxSeconds"`
	Fewer          int64       `json:"fewer"`
	SafetySeconds  json.Number `json:"safetySeconds"`
}

type costPrice struct {
	TenThousand     json.Number `json:"tenThousandTransactions"`
	TenThousandBlob json.Number `json:"tenThousandBlobRequests"`
	Bus             json.Number `json:"bus"`
	InstanceHour    json.Number `json:"instanceHour"`
	Example         bool        `json:"example"` // -price was not given
}

// costMessage is how many transactions a message takes.
type costMessage struct {
	Receive        json.Number `json:"receive"` // its share of a dequeue, and the delete
	ReceiveBatched json.Number `json:"receiveBatched"`
	LifeWoken      json.Number `json:"lifeWoken"` // of one that comes alone, under push
	Life           json.Number `json:"life"`      // and the put
	LifeBatched    json.Number `json:"lifeBatched"`
}

type costRow struct {
	Levers          string      `json:"levers"` // before, or what is different from it; the same for all numbers
	Name            string      `json:"name"`
	IdlePolls       json.Number `json:"idlePolls"`
	MessageRequests json.Number `json:"messageRequests"`
	Transactions    json.Number `json:"transactions"`
	BlobRequests    json.Number `json:"blobRequests"`
	InstanceHours   json.Number `json:"instanceHours"`
	Dollars         json.Number `json:"dollars"`

	bill bill
}

// costInterval is the bill of one idle loop that polls at an interval.
type costInterval struct {
	Seconds json.Number `json:"seconds"` // 0 if it is woken and does not poll
	Polls   json.Number `json:"polls"`
	Dollars json.Number `json:"dollars"`

	name           string
	polls, dollars *big.Rat
}

// costBus is the traffic of wake-ups.
type costBus struct {
	Connections      int64       `json:"connections"` // of instances; a producer has one more
	Published        json.Number `json:"published"`
	PublishedGrouped json.Number `json:"publishedGrouped"`
}

func newCostReport(n *costNumbers, priceGiven bool) *costReport {
	r := &costReport{
		numbers: n,
		Numbers: costSettings{
			Instances: n.instances, Loops: n.loops, EverySeconds: seconds(n.every), BusySeconds: seconds(n.busy), Messages: n.jobs,
			Bytes: n.bytes, Days: n.days, Group: n.group, Compression: exact(n.compression), Batch: n.batch,
			IdleMaxSeconds: seconds(n.idleMax), Fewer: n.fewer, SafetySeconds: seconds(n.safety),
		},
		Price:           costPrice{exact(n.price), exact(n.blobPrice), exact(n.bus), exact(n.hourPrice), !priceGiven},
		IdleSecondsADay: seconds(n.idle()),
		PollsOfALoopDay: exact(n.pollsOfALoop(n.every)),
		Message:         costMessage{exact(n.receive(leverNone)), exact(n.receive(leverBatch)), exact(n.alone()), exact(n.life(leverNone)), exact(n.life(leverBatch))},
		Intervals:       n.intervals(),
		Bus: costBus{
			Connections: n.instances,
			Published:   exact(product(n.sent(leverNone), whole(n.days))), PublishedGrouped: exact(product(n.sent(leverGroup), whole(n.days))),
		},
	}
	for _, one := range n.rows() {
		b := n.bill(one.levers)
		r.Rows = append(r.Rows, costRow{one.key, one.name, exact(b.idlePolls), exact(b.messageRequests), exact(b.transactions()), exact(b.blobRequests), exact(b.instanceHours), exact(b.dollars), b})
	}
	return r
}

type namedLevers struct {
	key, name string
	levers    levers
}

func (n *costNumbers) rows() []namedLevers {
	group := fmt.Sprintf("groups of %d", n.group)
	if n.compression.Cmp(whole(1)) > 0 {
		group += ", compressed"
	}
	fewer := "1 instance when idle"
	if n.fewer > 1 {
		fewer = fmt.Sprintf("%d instances when idle", n.fewer)
	}
	return []namedLevers{
		{"before", "before", leverNone},
		{"group", group, leverGroup},
		{"batch", fmt.Sprintf("batches of %d", n.batch), leverBatch},
		{"backOff", "back-off to " + span(n.idleMax), leverBackOff},
		{"oneLoop", "1 loop when idle", leverOneLoop},
		{"fewerInstances", fewer, leverFewer},
		{"fleet", fmt.Sprintf("polls shared by %d", n.instances), leverFleet},
		{"push", "push, a poll every " + span(n.safety), leverPush},
		{"pushNoPolls", "push, no polls", leverPush | leverNoSafety},
		{"allWithoutPush", "all without push", leversOfPoll},
		{"all", "all, a poll every " + span(n.safety), leversOfPush},
		{"allNoPolls", "all, no polls", leversOfPush | leverNoSafety},
	}
}

// intervals returns the bills of one idle loop.
func (n *costNumbers) intervals() []costInterval {
	var all []costInterval
	add := func(name string, interval json.Number, polls *big.Rat) {
		polls = product(polls, whole(n.days))
		dollars := n.worth(polls)
		all = append(all, costInterval{interval, exact(polls), exact(dollars), name, polls, dollars})
	}
	for _, interval := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute} {
		add(span(interval), seconds(interval), n.pollsOfALoop(interval))
	}
	add("push", "0", new(big.Rat))
	return all
}

func (r *costReport) print(out io.Writer) error {
	n := r.numbers
	var b strings.Builder
	source := "your price"
	if r.Price.Example {
		source = "an example: give yours with -price"
	}
	fmt.Fprintf(&b, "%s × %s, each polling every %s, busy %s a day, %d days a month.\n",
		quantity(n.instances, "instance"), quantity(n.loops, "loop"), span(n.every), span(n.busy), n.days)
	fmt.Fprintf(&b, "%s a day, each of %s.\n", quantity(n.jobs, "message"), quantity(n.bytes, "byte"))
	fmt.Fprintf(&b, "$%s for 10,000 transactions (%s).\n", decimal(n.price, maxDecimals), source)
	hours := n.hourPrice.Sign() > 0
	if hours {
		fmt.Fprintf(&b, "$%s for an hour of an instance.\n", decimal(n.hourPrice, maxDecimals))
	}
	fmt.Fprintf(&b, "Idle for %s a day: in them a loop that polls every %s polls %s times, for %s a month.\n",
		span(n.idle()), span(n.every), thousands(n.pollsOfALoop(n.every)), dollars(n.worth(product(n.pollsOfALoop(n.every), whole(n.days)))))
	fmt.Fprintf(&b, "A message takes %s transactions, %s of them its get and delete; in batches of %d %s and %s.\n",
		decimal(n.life(leverNone), 5), decimal(n.receive(leverNone), 5), n.batch, decimal(n.life(leverBatch), 5), decimal(n.receive(leverBatch), 5))
	fmt.Fprintf(&b, "One that comes alone under push takes %s", decimal(n.alone(), 5))
	if !n.embedded {
		b.WriteString(", with the poll that ends its loop")
	}
	b.WriteString(".\n\n")
	lines := [][]string{{fmt.Sprintf("%s × %s loops", thousands(whole(n.instances)), thousands(whole(n.loops))), "idle polls", "for messages", "to blobs", "instance-hours", "a month"}}
	for _, one := range r.Rows {
		lines = append(lines, []string{
			one.Name, thousands(one.bill.idlePolls), thousands(one.bill.messageRequests), thousands(one.bill.blobRequests), thousands(one.bill.instanceHours),
			dollars(one.bill.dollars),
		})
	}
	if !hours {
		for i, cells := range lines {
			lines[i] = slices.Delete(cells, 4, 5)
		}
	}
	table(&b, lines)
	lines = [][]string{{"1 idle loop, polling every", "polls", "a month"}}
	for _, one := range r.Intervals {
		lines = append(lines, []string{one.name, thousands(one.polls), dollars(one.dollars)})
	}
	b.WriteString("\n")
	table(&b, lines)
	fmt.Fprintf(&b, "\nPush takes a connection for each instance and each producer, and an event for each message that is sent:\n%s a month, %s in groups. Its rows include %s a month for a server that carries them (-bus).\n\n",
		thousands(product(n.sent(leverNone), whole(n.days))), thousands(product(n.sent(leverGroup), whole(n.days))), dollars(n.bus))
	b.WriteString("Messages come evenly while there is work, and all at once in the rows with batches. The requests for them\ninclude polls that find nothing meanwhile, and a reading of the pause flag a minute for each instance.\nNot included: renewals and retries, and the empty polls of each loop when work ends.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// table prints lines, of which the first is the head. All columns but the first are numbers.
func table(out io.Writer, lines [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, cells := range lines {
		width = max(width, len([]rune(cells[0])))
	}
	for _, cells := range lines {
		_, _ = fmt.Fprintf(w, "%-*s\t%s\t\n", width, cells[0], strings.Join(cells[1:], "\t")) // out is in memory
	}
	_ = w.Flush()
}

func quantity(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return thousands(whole(n)) + " " + unit
}

// thousands returns a number rounded to a whole one, with commas.
func thousands(r *big.Rat) string {
	digits := r.FloatString(0)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// dollars returns an amount of money, rounded to a hundredth of a cent.
func dollars(r *big.Rat) string {
	whole, cents, _ := strings.Cut(r.FloatString(4), ".")
	n, _ := new(big.Rat).SetString(whole) // it cannot fail
	return "$" + thousands(n) + "." + cents
}

// decimal returns a number with so many decimals at most.
func decimal(r *big.Rat, decimals int) string {
	text := r.FloatString(decimals)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// exact returns a number for JSON, rounded to the ninth decimal if it has more.
func exact(r *big.Rat) json.Number { return json.Number(decimal(r, maxDecimals)) }

func seconds(d time.Duration) json.Number { return exact(big.NewRat(int64(d), int64(time.Second))) }
