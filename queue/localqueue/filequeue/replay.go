package filequeue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/openfile"
)

// recoverLogs replays the logs and continues where they end. A checkpoint follows if the logs
// may have the only copy of something after damage, or if an earlier release wrote them.
func (s *store) recoverLogs() error {
	// Find a reserve that an earlier process left.
	if info, err := s.reserve.dir.root.Lstat(reserveName); err == nil && info.Size() == reserveSize {
		s.reserve.file = info
	}
	for i := range s.logs {
		l, err := openWAL(s.dir, i+1, s.maxLogSize, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if s.snapshot.checkpoint.logs != noLogs {
				s.snapshot.found.damage(fmt.Sprintf("the log %s is missing: %s", walName(i+1), mayBeLost))
			}
			continue
		}
		if err != nil {
			return err
		}
		if format := s.snapshot.checkpoint.logs; format != noLogs {
			l.format = format
			l.end = l.start()
		}
		s.logs[i] = l
	}
	s.saltLogs(s.snapshot.secret)
	if err := s.replay(); err != nil {
		return err
	}
	s.secret, s.checkpointed, s.logBuffer = s.snapshot.secret, s.snapshot.checkpoint.number, make([]byte, recordHeader)
	s.digest, s.moreWork = s.snapshot.actual, len(s.snapshot.tombstones) > 0 && !s.snapshot.rebuilt
	damaged := s.snapshot.found.Damaged > 0
	earlier := s.snapshot.checkpoint.logs != noLogs && s.snapshot.checkpoint.logs != logFormat
	s.logsReady = s.snapshot.checkpoint.logs == logFormat && !damaged
	if err := s.usingReserve(s.repair); err != nil {
		return err
	}
	if damaged || earlier {
		if err := s.usingReserve(func() error { _, err := s.checkpoint(nil); return err }); err != nil {
			return err
		}
	}
	if err := s.prepareLogs(); err != nil {
		return err
	}
	s.found = s.snapshot.found
	_ = s.reserve.allocate() // if the disk is full, it is tried again before anything grows
	return nil
}

// prepareLogs leaves logs that can be appended to.
func (s *store) prepareLogs() error {
	switch {
	case !s.logsReady:
		return s.startLogs()
	case s.snapshot.found.Torn: // otherwise it would be found again
		return s.logs[s.active].writeEndMark(s.number)
	default:
		return nil
	}
}

// repair repairs the tree, unless it was rebuilt or there is nothing to do.
func (s *store) repair() error {
	if s.snapshot.rebuilt || s.snapshot.found.Damaged == 0 && len(s.snapshot.deleting) == 0 {
		return nil
	}
	have, quarantined := s.snapshot.actual, s.snapshot.found.Quarantined
	err := s.update(s.snapshot.repair)
	if err != nil {
		s.snapshot.actual, s.snapshot.found.Quarantined = have, quarantined
	}
	s.digest = s.snapshot.actual
	return err
}

// mayBeLost is the consequence of a missing part of a log.
const mayBeLost = "the last commits may be lost, including acknowledged ones: messages that they enqueued are gone, and messages that they deleted are back"

// startLogs begins two empty logs and then records in the tree that they exist. If the disk
// is too full for that, the store commits to the tree alone until it works.
func (s *store) startLogs() error {
	for i := range s.logs {
		if err := s.startLog(i); openfile.OutOfSpace(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := s.dir.sync(); err != nil {
		return err
	}
	err := s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.checkpointed, logFormat, s.time}.record())
	})
	s.logsReady = err == nil
	return s.broken
}

func (s *store) startLog(i int) error {
	if s.logs[i] == nil {
		l, err := openWAL(s.dir, i+1, s.maxLogSize, os.O_CREATE)
		if err != nil {
			return err
		}
		s.logs[i] = l
		s.saltLogs(s.secret)
	}
	return s.logs[i].begin(s.number)
}

// removeLogs removes the logs, which must still be open, if the tree has everything.
func (s *store) removeLogs(checkpointed bool) (err error) {
	if !checkpointed {
		return nil
	}
	for _, l := range s.logs {
		if l == nil {
			continue
		}
		info, failed := l.file.Stat()
		if failed == nil {
			_, failed = s.dir.removeOwn(l.name, info)
		}
		err = errors.Join(err, failed)
	}
	return err
}

func (s *store) saltLogs(secret [32]byte) {
	for _, l := range s.logs {
		if l != nil {
			l.salt = crc32.Checksum(secret[:], castagnoli)
		}
	}
}

// replay applies the commits in the logs that the tree does not have. It changes only
// memory.
func (s *store) replay() error {
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
func (s *store) resumeAfter(records []walEntry) {
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
func (s *store) checkTails(reads []*walScan) {
	for _, r := range reads {
		at := r.log.start()
		if r.log == s.logs[s.active] {
			at = r.log.end
		}
		switch r.tail(s.number, at) {
		case tailTorn:
			s.snapshot.found.Torn = true
		case tailDamaged:
			s.snapshot.found.damage(fmt.Sprintf("the log %s is truncated or damaged after commit %d: %s", r.log.name, s.number, mayBeLost))
		}
	}
}

// replayRecord replays a commit, unless the tree has it.
func (s *store) replayRecord(r walEntry) error {
	if r.number <= s.number {
		return nil
	}
	changes, err := readChanges(r.fields)
	if err != nil { // although its checksum matches
		return fmt.Errorf("commit %d in %s: %w", r.number, r.log.name, err)
	}
	if r.number != s.number+1 {
		s.snapshot.found.damage(fmt.Sprintf("commits %d to %d are missing from the log: their changes are lost", s.number+1, r.number-1))
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
	kept, seen := newPending(), make(map[localengine.MessageKey]bool, len(p.messages))
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
func (s *snapshot) hasQueue(k localengine.MessageKey) bool {
	if s.tombstoned(k) {
		return false
	}
	if _, known := s.queues[k.Queue]; known {
		return true
	}
	s.found.damage(fmt.Sprintf("a message in the log belongs to the unknown queue with ordinal %d: it is lost", k.Queue))
	return false
}

// textSize returns the size of a text in the tree, which is sound.
func textSize(bodies *bolt.Bucket, k localengine.MessageKey) int64 {
	return int64(len(bodies.Get(appendKey(nil, k))) - bodySize)
}

type walScan struct {
	log     *wal
	data    []byte
	entries []walEntry // by position
}

// walEntry is a record or an end mark in a log, of any age.
type walEntry struct {
	number uint64 // of the commit
	kind   entryKind
	fields []byte // of a whole record
	log    *wal
	at     int64 // its position
	end    int64 // where the next entry may begin
}

type entryKind int

const (
	partialRecord entryKind = iota // a valid header with incomplete or damaged fields
	completeRecord
	endMarkEntry
)

// read scans a log. It waits for the disk first: a killed process may have left unwritten
// data in the cache.
func (l *wal) read() (*walScan, error) {
	if err := flush(l.file); err != nil {
		return nil, err
	}
	b := make([]byte, min(l.size, 4*logSize)) // no log is larger
	n, err := l.file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r := &walScan{log: l, data: b[:n]}
	for at := int64(0); at+sector <= int64(n); {
		f, is := r.entryAt(at)
		if is {
			r.entries = append(r.entries, f)
		}
		at = cmp.Or(f.end, at+sector)
	}
	return r, nil
}

// entryAt returns the record or the end mark at a position, if there is one.
func (r *walScan) entryAt(at int64) (walEntry, bool) {
	if at+sector > int64(len(r.data)) {
		return walEntry{}, false
	}
	if r.log.format == firstFormat {
		return r.firstFormatEntryAt(at)
	}
	h := r.data[at:]
	if binary.BigEndian.Uint32(h[16:]) != r.log.headerSum(h, at) {
		return walEntry{}, false
	}
	f := walEntry{number: binary.BigEndian.Uint64(h), log: r.log, at: at, end: at + sector}
	length := binary.BigEndian.Uint32(h[8:])
	if length == endMark {
		f.kind = endMarkEntry
		return f, true
	}
	if int64(length) > int64(len(h)-recordHeader) {
		return f, true
	}
	fields := h[recordHeader:][:length]
	if binary.BigEndian.Uint32(h[12:]) == r.log.checksum(h[:12], fields) {
		f.kind, f.fields = completeRecord, fields
		f.end = at + (recordHeader+int64(length)+sector-1)/sector*sector
	}
	return f, true
}

// tailState is what can be said about the end of a log.
type tailState int

const (
	// tailIntact: no acknowledged commit is missing, provided that the disk keeps what it
	// confirms.
	tailIntact tailState = iota

	// tailTorn: it looks like an interrupted commit, for which no caller had been
	// acknowledged. Damage can look the same.
	tailTorn

	// tailDamaged: no interrupted commit leaves it so.
	tailDamaged
)

// tail examines the position after the commit of that number. Either the end mark of that
// commit is there, or the header of the next record, because a sector is written whole or
// not at all. If neither is, the commit itself may have been interrupted between its record
// and its mark; but no commit leaves zeros there or a truncated file. At the beginning of a
// log there are older entries until the first record.
func (r *walScan) tail(number uint64, at int64) tailState {
	if r.log.format == firstFormat {
		return r.firstFormatTail(number, at)
	}
	f, is := r.entryAt(at)
	newest := uint64(0)
	for _, other := range r.entries {
		newest = max(newest, other.number)
	}
	switch {
	case newest > number+1:
		return tailDamaged
	case is && f.kind == partialRecord && f.number == number+1:
		return tailTorn
	case is && f.kind == endMarkEntry && f.number == number:
		return tailIntact
	case is && at == r.log.start() && f.number <= number:
		return tailIntact
	case at == r.log.start() || newest == number+1 || r.isBlank(at):
		return tailDamaged
	default:
		return tailTorn
	}
}

// isBlank reports whether the sector is missing or all zeros.
func (r *walScan) isBlank(at int64) bool {
	return at+sector > int64(len(r.data)) || bytes.Count(r.data[at:at+sector], []byte{0}) == sector
}
