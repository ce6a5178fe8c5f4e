package main

import (
	"context"
	"flag"
	"fmt"
	"math/big"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
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
	wholeVar(f, &n.group, "group", 1, codec.MaxItems, "this `number` of jobs in a message")
	decimalVar(f, &n.compression, "compression", 1, "compression makes a body smaller by this `factor`")
	wholeVar(f, &n.batch, "batch", 1, queue.MaxBatch, "a dequeue returns this `number` of messages")
	spanVar(f, &n.idleMax, "idle-max", time.Millisecond, "a loop that finds nothing waits longer each time, up to this `duration`")
	wholeVar(f, &n.fewer, "fewer", 1, 100_000, "this `number` of instances while there is nothing to do")
	spanVar(f, &n.safety, "safety", time.Millisecond, "an instance that is woken polls once in this `duration` all the same")
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
