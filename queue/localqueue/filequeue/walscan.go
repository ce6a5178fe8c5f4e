package filequeue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
)

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
	if at+sector > int64(len(r.data)) {
		return true
	}
	return bytes.Count(r.data[at:at+sector], []byte{0}) == sector
}
