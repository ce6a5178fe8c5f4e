package filequeue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
)

// logRead is what was found in a log.
type walScan struct {
	log     *wal
	data    []byte
	entries []walEntry // by where it stands
}

// logged is a record or an end mark of a log, of whatever age.
type walEntry struct {
	number uint64 // of the commit
	kind   entryKind
	fields []byte // of a whole record
	log    *wal
	at     int64 // where it begins
	end    int64 // and ends; where the next sector begins, unless it is whole
}

type entryKind int

const (
	partialRecord entryKind = iota // its header, and not all of the rest
	completeRecord
	endMarkEntry
)

// read finds what is in a log. It has reached the disk when it returns: one that was killed
// may have left some that had not.
func (l *wal) read() (*walScan, error) {
	if err := flush(l.file); err != nil {
		return nil, err
	}
	b := make([]byte, min(l.size, 4*logSize)) // none of ours is as large
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

// sectorAt returns the record or the mark that begins there, if one does.
func (r *walScan) entryAt(at int64) (walEntry, bool) {
	if at+sector > int64(len(r.data)) {
		return walEntry{}, false
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

// ending is what can be said of where a log ends.
type tailState int

const (
	// ended: nothing that was acknowledged is missing, on a disk that keeps what it says
	// that it has.
	tailIntact tailState = iota

	// torn: it looks as a commit leaves it that was cut short, which nobody was answered.
	// Damage can look the same.
	tailTorn

	// broken: no commit leaves it so, wherever it is cut short.
	tailDamaged
)

// ending looks at where the next record would begin, after the commit of that number:
// there the mark of that commit stands, or the header of the next record, because
// a sector is written whole or not at all. If neither does, the commit itself may have been
// cut short, between its record and its mark; but zeros, and what is behind the end of the
// file, no commit leaves there. At the beginning of a log stands what is older, until the
// first record.
func (r *walScan) tail(number uint64, at int64) tailState {
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
	case is && at == 0 && f.number <= number:
		return tailIntact
	case at == 0 || newest == number+1 || r.isBlank(at):
		return tailDamaged
	default:
		return tailTorn
	}
}

// blank tells whether there is nothing at all.
func (r *walScan) isBlank(at int64) bool {
	if at+sector > int64(len(r.data)) {
		return true
	}
	return bytes.Count(r.data[at:at+sector], []byte{0}) == sector
}
