package filequeue

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// reconcile combines the records: heads with bodies, messages with queues, copies in place
// of lost records.
func (s *snapshot) reconcile() {
	s.reconcileQueues()
	for _, b := range s.damaged {
		s.found.damage(s.describe(b))
	}
	s.compareDigests()
	s.reconcileMessages()
	for ordinal, n := range s.orphans {
		s.found.damage(Damage{What: fmt.Sprintf("%d messages belong to the unknown queue with ordinal %d: they were quarantined", n, ordinal)})
	}
	s.found.Queues, s.found.Messages = len(s.queues), len(s.messages)
	if s.secret == ([32]byte{}) {
		s.secret = s.secretCopy
		if s.secret == ([32]byte{}) && (len(s.queues) > 0 || s.ordinal > 0) {
			_, _ = rand.Read(s.secret[:]) // which never fails
			s.found.damage(Damage{What: "the secret of ids and receipts is lost: messages have new ids, old receipts are invalid, and commits that only a log had are lost"})
		}
	}
}

// compareDigests checks that the records are those of the newest commit.
func (s *snapshot) compareDigests() {
	have, want := s.actual.bodies, s.digest.bodies
	if s.countsOnly {
		have.sum = want.sum
	}
	if have != want {
		s.found.damage(Damage{What: fmt.Sprintf("the file should have %d messages and has %d: some are lost, or deleted ones are back, or some are in an earlier state", want.count, have.count)})
	}
	have, want = s.actual.others, s.digest.others
	if have != want && !s.countsOnly {
		s.found.damage(Damage{What: fmt.Sprintf("the file should have %d records besides the messages and has %d: "+
			"some queues, settings or message states are lost or are earlier ones", want.count, have.count)})
	}
}

// reconcileQueues restores queues of which only the name is left.
func (s *snapshot) reconcileQueues() {
	if s.scanned {
		s.dropOlderQueues()
	}
	for ordinal := range s.queues {
		s.ordinal = max(s.ordinal, ordinal)
	}
	for ordinal, name := range s.names {
		s.ordinal = max(s.ordinal, ordinal)
		if _, known := s.queues[ordinal]; known || s.tombstones[ordinal] == math.MaxUint64 {
			continue
		}
		s.queues[ordinal] = storage.QueueState{Ordinal: ordinal, Name: name, Enqueued: unknownGap, Receipts: unknownGap}
		s.found.damage(Damage{Queue: name, What: "its metadata and its access policy are lost"})
	}
	for ordinal := range s.tombstones {
		s.ordinal = max(s.ordinal, ordinal)
	}
	for _, b := range s.damaged { // the lost one may have been the largest
		if b.bucket.is(metaBucket) && bytes.Equal(b.key, keyOrdinal) {
			s.ordinal += unknownGap
		}
	}
	if s.unreadable {
		s.ordinal += unknownGap
	}
}

// dropOlderQueues keeps only the newest queue of each name.
func (s *snapshot) dropOlderQueues() {
	last := map[queue.Name]uint64{}
	for ordinal, q := range s.queues {
		last[q.Name] = max(last[q.Name], ordinal)
	}
	for ordinal, name := range s.names {
		last[name] = max(last[name], ordinal)
	}
	for ordinal, q := range s.queues {
		if last[q.Name] != ordinal {
			delete(s.queues, ordinal)
			s.ordinal = max(s.ordinal, ordinal)
		}
	}
	for ordinal, name := range s.names {
		if last[name] != ordinal {
			delete(s.names, ordinal)
			s.ordinal = max(s.ordinal, ordinal)
		}
	}
}

func (s *snapshot) describe(b damagedRecord) Damage {
	d := Damage{What: fmt.Sprintf("a record of the bucket %q cannot be read (%s) and was quarantined", b.bucket, b.reason)}
	if !b.bucket.is(headBucket) && !b.bucket.is(bodyBucket) {
		return d
	}
	if key, err := readKey(b.key); err == nil {
		d.Queue, d.Sequence = s.queues[key.Queue].Name, key.Sequence
	}
	if b.bucket.is(headBucket) {
		d.What = fmt.Sprintf("its visibility and dequeue count cannot be read (%s): it is as it was when enqueued", b.reason)
	} else {
		d.What = fmt.Sprintf("it cannot be read (%s) and was quarantined", b.reason)
	}
	return d
}

func compareKeys(a, b storage.MessageState) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
}

func newestFirst(a, b storage.MessageState) int {
	return cmp.Or(compareKeys(a, b), cmp.Compare(b.Receipt, a.Receipt))
}

// reconcileMessages gives messages their heads, and drops deleted messages and those
// without a queue.
func (s *snapshot) reconcileMessages() {
	if s.unreadable { // otherwise they are in order
		slices.SortFunc(s.messages, newestFirst)
		slices.SortFunc(s.heads, newestFirst)
		s.messages = slices.CompactFunc(s.messages, func(a, b storage.MessageState) bool { return compareKeys(a, b) == 0 })
	}
	ours, h := s.messages[:0], 0
	for _, m := range s.messages {
		for h < len(s.heads) && compareKeys(s.heads[h], m) < 0 {
			h++
		}
		if h < len(s.heads) && s.heads[h].MessageKey == m.MessageKey && s.heads[h].Receipt >= m.Receipt {
			m.Due, m.Dequeues, m.Receipt = s.heads[h].Due, s.heads[h].Dequeues, s.heads[h].Receipt
		}
		if s.tombstoned(m.MessageKey) { // a search of all pages may find the tombstone last
			continue
		}
		if _, known := s.queues[m.Queue]; !known {
			s.orphans[m.Queue]++
			s.ordinal = max(s.ordinal, m.Queue)
			continue
		}
		ours = append(ours, m)
	}
	s.messages, s.heads = ours, nil
}

// unknownGap is added to a counter whose value was lost, so that no number is used twice.
const unknownGap = 1 << 40
