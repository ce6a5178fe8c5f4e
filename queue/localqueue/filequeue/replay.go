package filequeue

import (
	"cmp"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// replay applies the commits in the logs that the tree does not have. It changes only
// memory.
func (s *Store) replay() error {
	var reads []*walScan
	var records []walEntry
	for _, l := range s.logs {
		if l == nil {
			continue
		}
		r, err := l.read()
		if err != nil {
			return fmt.Errorf("read %s: %w", l.name, err)
		}
		reads = append(reads, r)
		records = append(records, slices.DeleteFunc(slices.Clone(r.entries), func(f walEntry) bool { return f.kind != completeRecord })...)
	}
	slices.SortStableFunc(records, func(a, b walEntry) int { return cmp.Compare(a.number, b.number) })
	s.number, s.time, s.pending = s.snapshot.checkpoint.number, s.snapshot.checkpoint.time, newPending()
	if len(records) > 0 && s.number == 0 && s.snapshot.found.Damaged > 0 {
		s.number = records[0].number - 1 // it is unknown what the tree has, and replaying a commit twice is harmless
	}
	s.recent.Store(newRecentTexts(s.number))
	for _, r := range records {
		if err := s.replayRecord(r); err != nil {
			return err
		}
	}
	s.resumeAfter(records)
	if s.snapshot.checkpoint.logs != noLogs || s.number > s.snapshot.checkpoint.number {
		s.checkTails(reads)
	}
	return s.db.View(func(tx *bolt.Tx) error {
		s.snapshot.applyLog(&s.pending, tx.Bucket(bodyBucket))
		return nil
	})
}

// resumeAfter continues after the newest record. If the tree already has that, it uses the
// other log: see switchLogs.
func (s *Store) resumeAfter(records []walEntry) {
	if len(records) == 0 {
		return
	}
	newest := records[len(records)-1]
	s.active = slices.Index(s.logs[:], newest.log)
	newest.log.end = newest.end
	if newest.number <= s.snapshot.checkpoint.number {
		s.active = 1 - s.active
		if l := s.logs[s.active]; l != nil {
			l.end = l.start()
		}
	}
}

// checkTails checks that the logs end as they should: the active one after its newest
// record, the other one with older records.
func (s *Store) checkTails(reads []*walScan) {
	for _, r := range reads {
		at := r.log.start()
		if r.log == s.logs[s.active] {
			at = r.log.end
		}
		switch r.tail(s.number, at) {
		case tailTorn:
			s.snapshot.found.Torn = true
		case tailDamaged:
			s.snapshot.found.damage(Damage{What: fmt.Sprintf("the log %s is truncated or damaged after commit %d: %s", r.log.name, s.number, mayBeLost)})
		}
	}
}

// replayRecord replays a commit, unless the tree has it.
func (s *Store) replayRecord(r walEntry) error {
	if r.number <= s.number {
		return nil
	}
	changes, err := readChanges(r.fields)
	if err != nil { // although its checksum matches
		return fmt.Errorf("commit %d in %s: %w", r.number, r.log.name, err)
	}
	if r.number != s.number+1 {
		s.snapshot.found.damage(Damage{What: fmt.Sprintf("commits %d to %d are missing from the log: their changes are lost", s.number+1, r.number-1)})
	}
	s.number = r.number
	s.noteTime(changes)
	s.pending.apply(changes)
	s.recent.Load().add(r.number, changes)
	return nil
}

// applyLog brings the snapshot from the tree's state to the log's. It keeps in pending only
// what can be written to the tree.
func (s *snapshot) applyLog(p *pending, bodies *bolt.Bucket) {
	kept, seen := newPending(), make(map[storage.MessageKey]bool, len(p.messages))
	all := s.messages[:0]
	for _, m := range s.messages {
		o, known := p.messages[m.MessageKey]
		if !known {
			all = append(all, m)
			continue
		}
		seen[m.MessageKey] = true
		switch o.kind {
		case recordUpdated:
			m.Due, m.Dequeues, m.Receipt = o.Due, o.Dequeues, o.Receipt
			all = append(all, m)
		case recordRemoved:
			s.found.Bytes -= textSize(bodies, m.MessageKey)
		default:
			s.found.Bytes += int64(len(o.text)) - textSize(bodies, m.MessageKey)
			o.kind = recordRewritten // the tree has it already
			all = append(all, o.MessageState)
		}
		kept.put(o)
	}
	for k, o := range p.messages {
		if seen[k] || o.kind == recordUpdated || o.kind == recordRemoved || !s.hasQueue(k) {
			continue
		}
		o.kind = recordAdded
		s.found.Bytes += int64(len(o.text))
		all = append(all, o.MessageState)
		kept.put(o)
	}
	if len(kept.messages) > kept.touched {
		slices.SortFunc(all, compareKeys)
	}
	*p, s.messages, s.found.Messages = kept, all, len(all)
}

// hasQueue reports whether a message of the log has a queue. Only damage separates them.
func (s *snapshot) hasQueue(k storage.MessageKey) bool {
	if s.tombstoned(k) {
		return false
	}
	if _, known := s.queues[k.Queue]; known {
		return true
	}
	s.found.damage(Damage{Sequence: k.Sequence, What: fmt.Sprintf("a message in the log belongs to the unknown queue with ordinal %d: it is lost", k.Queue)})
	return false
}

// textSize returns the size of a text in the tree, which is sound.
func textSize(bodies *bolt.Bucket, k storage.MessageKey) int64 {
	return int64(len(bodies.Get(appendKey(nil, k))) - bodySize)
}
