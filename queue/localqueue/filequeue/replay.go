package filequeue

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// openLogs opens both logs. New ones have their names on the disk when it returns.
func (s *Store) openLogs() error {
	anyMade := false
	for i := range s.logs {
		l, made, err := openLog(fmt.Sprintf("%s-%d", filepath.Join(filepath.Dir(s.path), logName), i+1), s.mostLogged)
		if err != nil {
			return err
		}
		s.logs[i], anyMade = l, anyMade || made
	}
	s.saltLogs(s.census.secret)
	if !anyMade {
		return nil
	}
	if s.census.logs == hasLogs {
		s.census.found.damage(Damage{What: "a log is missing: what was answered last may be lost"})
	}
	return syncDirectory(filepath.Dir(s.path))
}

func (s *Store) saltLogs(secret [32]byte) {
	for _, l := range s.logs {
		l.salt = crc32.Checksum(secret[:], castagnoli)
	}
}

// replay takes from the logs what the tree has not. It changes nothing but memory.
func (s *Store) replay() error {
	var found []logged
	for _, l := range s.logs {
		in, err := l.read()
		if err != nil {
			return fmt.Errorf("read %s: %w", l.path, err)
		}
		found = append(found, in...)
	}
	slices.SortStableFunc(found, func(a, b logged) int { return cmp.Compare(a.number, b.number) })
	s.number, s.pending = s.census.folded, newPending()
	if first := slices.IndexFunc(found, isWhole); first >= 0 && s.number == 0 && s.census.found.Damaged > 0 {
		s.number = found[first].number - 1 // it is not known what the tree has: to take something twice does no harm
	}
	s.recent.Store(newRecent(s.number))
	s.writeAfter(found)
	for _, r := range found {
		if err := s.take(r); err != nil {
			return err
		}
	}
	for _, r := range found {
		if !r.whole && r.number == s.number+1 && r.in == s.logs[s.logging] && r.at == r.in.end {
			s.census.found.Torn = true
		}
	}
	return s.db.View(func(tx *bolt.Tx) error {
		s.census.merge(&s.pending, tx.Bucket(bodies))
		return nil
	})
}

func isWhole(r logged) bool { return r.whole }

// writeAfter goes on after the newest record, if the tree has not that too: then that
// log is left as it is, see forget.
func (s *Store) writeAfter(found []logged) {
	for _, r := range found {
		if r.whole {
			s.logging = slices.Index(s.logs[:], r.in)
			r.in.end = r.end
		}
	}
	if last := slices.IndexFunc(found, func(r logged) bool { return r.whole && r.number > s.census.folded }); last < 0 {
		s.logging = 1 - s.logging
		s.logs[s.logging].end = 0
	}
}

// take takes a commit, unless the tree has it.
func (s *Store) take(r logged) error {
	if !r.whole || r.number <= s.number {
		return nil
	}
	changes, err := readChanges(r.fields)
	if err != nil { // and its checksum is right
		return fmt.Errorf("commit %d in %s: %w", r.number, r.in.path, err)
	}
	if r.number != s.number+1 {
		s.census.found.damage(Damage{What: fmt.Sprintf("commits %d to %d are missing in the log: what they did is lost", s.number+1, r.number-1)})
	}
	s.number = r.number
	s.pending.apply(changes)
	s.recent.Load().add(r.number, changes)
	return nil
}

// merge brings the census from where the tree is to where the log leads. It leaves
// pending only what the tree can be told.
func (c *census) merge(p *pending, bodies *bolt.Bucket) {
	kept, seen := newPending(), make(map[localqueue.MessageKey]bool, len(p.messages))
	all := c.messages[:0]
	for _, m := range c.messages {
		o, known := p.messages[m.MessageKey]
		if !known {
			all = append(all, m)
			continue
		}
		seen[m.MessageKey] = true
		switch o.kind {
		case logMoved:
			m.Due, m.Dequeues, m.Receipt = o.Due, o.Dequeues, o.Receipt
			all = append(all, m)
		case logRemoved:
			c.found.Bytes -= textSize(bodies, m.MessageKey)
		default:
			c.found.Bytes += int64(len(o.text)) - textSize(bodies, m.MessageKey)
			o.kind = logRewritten // the tree has it, wherever the log began with it
			all = append(all, o.MessageState)
		}
		kept.put(o)
	}
	for k, o := range p.messages {
		if seen[k] || o.kind == logMoved || o.kind == logRemoved || !c.wants(k) {
			continue
		}
		o.kind = logAdded
		c.found.Bytes += int64(len(o.text))
		all = append(all, o.MessageState)
		kept.put(o)
	}
	if len(kept.messages) > kept.touched {
		slices.SortFunc(all, compareKeys)
	}
	*p, c.messages, c.found.Messages = kept, all, len(all)
}

// wants tells whether a message of the log has a queue, which it lacks only after damage.
func (c *census) wants(k localqueue.MessageKey) bool {
	if through, swept := c.sweeps[k.Queue]; swept && k.Sequence <= through {
		return false
	}
	if _, known := c.queues[k.Queue]; known {
		return true
	}
	c.found.damage(Damage{Sequence: k.Sequence, What: fmt.Sprintf("a message of the queue with the ordinal %d is in the log, and that queue is not known: it is lost", k.Queue)})
	return false
}

// textSize is the size of a text in the tree, which is sound.
func textSize(bodies *bolt.Bucket, k localqueue.MessageKey) int64 {
	return int64(len(bodies.Get(appendKey(nil, k))) - bodySize)
}
