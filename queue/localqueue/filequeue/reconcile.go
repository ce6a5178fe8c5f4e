package filequeue

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// reconcile combines the records: heads with bodies, messages with queues, copies in place
// of lost records.
func (c *snapshot) reconcile() {
	c.reconcileQueues()
	for _, b := range c.damaged {
		c.found.damage(c.describe(b))
	}
	c.compareDigests()
	c.reconcileMessages()
	for ordinal, n := range c.orphans {
		c.found.damage(Damage{What: fmt.Sprintf("%d messages belong to the unknown queue with ordinal %d: they were quarantined", n, ordinal)})
	}
	c.found.Queues, c.found.Messages = len(c.queues), len(c.messages)
	if c.secret == ([32]byte{}) {
		c.secret = c.secretCopy
		if c.secret == ([32]byte{}) && (len(c.queues) > 0 || c.ordinal > 0) {
			_, _ = rand.Read(c.secret[:]) // which never fails
			c.found.damage(Damage{What: "the secret of ids and receipts is lost: messages have new ids, old receipts are invalid, and commits that only a log had are lost"})
		}
	}
}

// compareDigests checks that the records are those of the newest commit.
func (c *snapshot) compareDigests() {
	have, want := c.actual.bodies, c.digest.bodies
	if c.countsOnly {
		have.sum = want.sum
	}
	if have != want {
		c.found.damage(Damage{What: fmt.Sprintf("the file should have %d messages and has %d: some are lost, or deleted ones are back, or some are in an earlier state", want.count, have.count)})
	}
	have, want = c.actual.others, c.digest.others
	if have != want && !c.countsOnly {
		c.found.damage(Damage{What: fmt.Sprintf("the file should have %d records besides the messages and has %d: some queues, settings or message states are lost or are earlier ones", want.count, have.count)})
	}
}

// reconcileQueues restores queues of which only the name is left.
func (c *snapshot) reconcileQueues() {
	if c.scanned {
		c.dropOlderQueues()
	}
	for ordinal := range c.queues {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for ordinal, name := range c.names {
		c.ordinal = max(c.ordinal, ordinal)
		if _, known := c.queues[ordinal]; known || c.tombstones[ordinal] == math.MaxUint64 {
			continue
		}
		c.queues[ordinal] = localqueue.QueueState{Ordinal: ordinal, Name: name, Enqueued: unknownGap, Receipts: unknownGap}
		c.found.damage(Damage{Queue: name, What: "its metadata and its access policy are lost"})
	}
	for ordinal := range c.tombstones {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for _, b := range c.damaged { // the lost one may have been the largest
		if b.bucket.is(metaBucket) && bytes.Equal(b.key, keyOrdinal) {
			c.ordinal += unknownGap
		}
	}
	if c.unreadable {
		c.ordinal += unknownGap
	}
}

// dropOlderQueues keeps only the newest queue of each name.
func (c *snapshot) dropOlderQueues() {
	last := map[queue.Name]uint64{}
	for ordinal, q := range c.queues {
		last[q.Name] = max(last[q.Name], ordinal)
	}
	for ordinal, name := range c.names {
		last[name] = max(last[name], ordinal)
	}
	for ordinal, q := range c.queues {
		if last[q.Name] != ordinal {
			delete(c.queues, ordinal)
			c.ordinal = max(c.ordinal, ordinal)
		}
	}
	for ordinal, name := range c.names {
		if last[name] != ordinal {
			delete(c.names, ordinal)
			c.ordinal = max(c.ordinal, ordinal)
		}
	}
}

func (c *snapshot) describe(b damagedRecord) Damage {
	d := Damage{What: fmt.Sprintf("a record of the bucket %q cannot be read (%s) and was quarantined", b.bucket, b.reason)}
	if !b.bucket.is(headBucket) && !b.bucket.is(bodyBucket) {
		return d
	}
	if key, err := readKey(b.key); err == nil {
		d.Queue, d.Sequence = c.queues[key.Queue].Name, key.Sequence
	}
	if b.bucket.is(headBucket) {
		d.What = fmt.Sprintf("its visibility and dequeue count cannot be read (%s): it is as it was when enqueued", b.reason)
	} else {
		d.What = fmt.Sprintf("it cannot be read (%s) and was quarantined", b.reason)
	}
	return d
}

func compareKeys(a, b localqueue.MessageState) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
}

// newestFirst orders by message, the newest state first.
func newestFirst(a, b localqueue.MessageState) int {
	return cmp.Or(compareKeys(a, b), cmp.Compare(b.Receipt, a.Receipt))
}

// reconcileMessages gives messages their heads, and drops deleted messages and those
// without a queue.
func (c *snapshot) reconcileMessages() {
	if c.unreadable { // otherwise they are in order
		slices.SortFunc(c.messages, newestFirst)
		slices.SortFunc(c.heads, newestFirst)
		c.messages = slices.CompactFunc(c.messages, func(a, b localqueue.MessageState) bool { return compareKeys(a, b) == 0 })
	}
	ours, h := c.messages[:0], 0
	for _, m := range c.messages {
		for h < len(c.heads) && compareKeys(c.heads[h], m) < 0 {
			h++
		}
		if h < len(c.heads) && c.heads[h].MessageKey == m.MessageKey && c.heads[h].Receipt >= m.Receipt {
			m.Due, m.Dequeues, m.Receipt = c.heads[h].Due, c.heads[h].Dequeues, c.heads[h].Receipt
		}
		if through, swept := c.tombstones[m.Queue]; swept && m.Sequence <= through {
			continue
		}
		if _, known := c.queues[m.Queue]; !known {
			c.orphans[m.Queue]++
			c.ordinal = max(c.ordinal, m.Queue)
			continue
		}
		ours = append(ours, m)
	}
	c.messages, c.heads = ours, nil
}

// unknownGap is added to a counter whose value was lost, so that no number is used twice.
const unknownGap = 1 << 40
