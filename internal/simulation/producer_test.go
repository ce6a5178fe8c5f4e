package simulation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// produce sends every job, and repeats it until it is accepted, for up to ten minutes.
func (w *world) produce() {
	wire := must(faultqueue.New(w.server("producer"), w.plan.since(0, w.plan.sending)))
	onceWire := must(faultqueue.New(w.server("producer"), w.plan.since(0, undoubled(w.plan.sending))))
	defer wire.Wait()
	defer onceWire.Wait()
	q, once := w.spread(wire, "producer"), w.spread(onceWire, "producer of what is sent once")
	defer close(w.produced)
	if w.plan.pairing.on {
		q = w.pairProducer(wire)
		defer w.pairing.queue.Close()
	}
	sorted := slices.Clone(w.plan.jobs)
	slices.SortFunc(sorted, func(a, b jobPlan) int { return int(a.at - b.at) })
	var sends sync.WaitGroup
	for _, j := range sorted {
		time.Sleep(j.at - w.now())
		way := q
		if j.form == junk || j.undecoded || j.largest {
			way = once
		}
		send := func() {
			for try, begin := 0, w.now(); w.now() < begin+10*time.Minute && !w.send(way, j, try); try++ {
				time.Sleep(w.plan.dice.within(100*time.Millisecond, 3*time.Second, "send again", str(j.n), str(try)))
			}
		}
		if w.plan.pairing.throttled {
			sends.Go(send)
		} else {
			send()
		}
	}
	sends.Wait()
}

// send puts a job on the queue, and reports whether it was accepted.
func (w *world) send(q queue.Sender, j jobPlan, try int) bool {
	at := time.Now()
	// A repetition is recognised by its text, but the bare copies of two equal messages are not told apart.
	if w.plan.shards.on() && j.form == enveloped && !j.largest && !w.plan.policy.bare {
		at, try = at.Add(j.at-w.now()), 0
	}
	text := j.text(at, try)
	if j.claimed {
		if text = w.claimed(j, time.Now(), try); text == "" {
			return false
		}
	}
	w.mu.Lock()
	w.texts[text] = j.n
	w.mu.Unlock()
	from := w.now()
	m, err := q.Enqueue(context.Background(), text, &queue.EnqueueOptions{Delay: j.delay, TTL: j.ttl, Key: j.key})
	switch {
	case err != nil:
		return false
	case m.Queue.Account == secondary.Account:
		w.noteDiverted(j, text, m, from)
	default:
		e := entry{kind: acked, who: "producer", id: m.ID, n: j.n, text: text}
		if m.MaybeTwice {
			e.outcome = maybeTwice
		}
		w.history.note(e)
	}
	w.broker.publish(j)
	return true
}

// undoubled returns the faults without duplicates. Two equal undecodable messages would free their
// slots at the same instant, and the copies of two equal messages of the largest size, which are
// bare, could not be distinguished.
func undoubled(o faultqueue.Options) faultqueue.Options {
	o.Faults = maps.Clone(o.Faults)
	if r, ok := o.Faults[faultqueue.Enqueue]; ok {
		r.Duplicate = 0
		o.Faults[faultqueue.Enqueue] = r
	}
	return o
}

// recreate deletes the queue and creates it again as soon as the service allows it.
func (w *world) recreate() {
	time.Sleep(w.plan.drop)
	q := w.server("janitor").(queue.Manager)
	if err := q.Drop(context.Background()); err != nil {
		w.addViolation("drop the queue: %v", err)
	}
	for q.Create(context.Background(), nil) != nil {
		time.Sleep(time.Second)
	}
}
