package filequeue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
)

// logRead is what was found in a log.
type logRead struct {
	of    *log
	bytes []byte
	found []logged // by where it stands
}

// logged is a record or an end mark of a log, of whatever age.
type logged struct {
	number uint64 // of the commit
	kind   loggedKind
	fields []byte // of a whole record
	in     *log
	at     int64 // where it begins
	end    int64 // and ends; where the next sector begins, unless it is whole
}

type loggedKind int

const (
	partOfRecord loggedKind = iota // its header, and not all of the rest
	wholeRecord
	markOfEnd
)

// read finds what is in a log. It has reached the disk when it returns: one that was killed
// may have left some that had not.
func (l *log) read() (*logRead, error) {
	if err := flush(l.file); err != nil {
		return nil, err
	}
	b := make([]byte, min(l.size, 4*logSize)) // none of ours is as large
	n, err := l.file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r := &logRead{of: l, bytes: b[:n]}
	for at := int64(0); at+sector <= int64(n); {
		f, is := r.sectorAt(at)
		if is {
			r.found = append(r.found, f)
		}
		at = cmp.Or(f.end, at+sector)
	}
	return r, nil
}

// sectorAt returns the record or the mark that begins there, if one does.
func (r *logRead) sectorAt(at int64) (logged, bool) {
	if at+sector > int64(len(r.bytes)) {
		return logged{}, false
	}
	h := r.bytes[at:]
	if binary.BigEndian.Uint32(h[16:]) != r.of.headerSum(h, at) {
		return logged{}, false
	}
	f := logged{number: binary.BigEndian.Uint64(h), in: r.of, at: at, end: at + sector}
	length := binary.BigEndian.Uint32(h[8:])
	if length == endMark {
		f.kind = markOfEnd
		return f, true
	}
	if int64(length) > int64(len(h)-recordHeader) {
		return f, true
	}
	fields := h[recordHeader:][:length]
	if binary.BigEndian.Uint32(h[12:]) == r.of.checksum(h[:12], fields) {
		f.kind, f.fields = wholeRecord, fields
		f.end = at + (recordHeader+int64(length)+sector-1)/sector*sector
	}
	return f, true
}

// ending is what can be said of where a log ends.
type ending int

const (
	// ended: nothing that was acknowledged is missing, on a disk that keeps what it says
	// that it has.
	ended ending = iota

	// torn: it looks as a commit leaves it that was cut short, which nobody was answered.
	// Damage can look the same.
	torn

	// broken: no commit leaves it so, wherever it is cut short.
	broken
)

// ending looks at where the next record would begin, after the commit of that number:
// there the mark of that commit stands, or the header of the next record, because
// a sector is written whole or not at all. If neither does, the commit itself may have been
// cut short, between its record and its mark; but zeros, and what is behind the end of the
// file, no commit leaves there. At the beginning of a log stands what is older, until the
// first record.
func (r *logRead) ending(number uint64, at int64) ending {
	f, is := r.sectorAt(at)
	newest := uint64(0)
	for _, other := range r.found {
		newest = max(newest, other.number)
	}
	switch {
	case newest > number+1:
		return broken
	case is && f.kind == partOfRecord && f.number == number+1:
		return torn
	case is && f.kind == markOfEnd && f.number == number:
		return ended
	case is && at == 0 && f.number <= number:
		return ended
	case at == 0 || newest == number+1 || r.blank(at):
		return broken
	default:
		return torn
	}
}

// blank tells whether there is nothing at all.
func (r *logRead) blank(at int64) bool {
	if at+sector > int64(len(r.bytes)) {
		return true
	}
	return bytes.Count(r.bytes[at:at+sector], []byte{0}) == sector
}
