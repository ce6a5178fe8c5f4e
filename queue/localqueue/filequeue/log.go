package filequeue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
)

// A log keeps the newest commits until they are folded into the tree. A commit then
// costs one write in a row and one wait for the disk, whatever it changes, where the
// tree takes a page for every place that it touches, and two waits; and of a message
// that comes and goes meanwhile the tree never hears.
//
// It has a record for each commit, which begins with the commit's number and at a
// sector of its own, so that to write one touches none that is durable. When it is
// full it is written over from the beginning: a disk is quickest where it was written
// to before. What an older commit left there says so by its number.
//
// The checksum of a record covers a salt that only this store knows, so that no text
// of a message can look like a record.
type log struct {
	path string
	file *os.File
	salt uint32
	most int64 // how large it becomes
	size int64 // of the file: up to here the disk has room for it
	end  int64 // where the next record goes
}

const (
	sector = 512

	// logSize is how large a log becomes, in bytes, but in tests. Larger ones gain little, and all
	// that is in one needs room in the tree too: see ballastSize.
	logSize = 1 << 20

	// logStep is by how much it grows.
	logStep = 256 << 10

	recordHeader = 8 + 4 + crc32.Size // number, length of what follows, checksum
)

// openLog opens a log, or makes it when there is none.
func openLog(path string, most int64) (l *log, made bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if made = errors.Is(err, os.ErrNotExist); made {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return &log{path: path, file: f, most: most, size: info.Size()}, made, nil
}

// errLogFull means that a log has no room for a record, and nothing was written.
var errLogFull = errors.New("the log has no room")

// append writes the record of a commit and waits for the disk. Its fields stand in b
// from recordHeader on. It is errLogFull when there is no room, in the log or on the
// disk; after another error the record may be there, see revoke. It returns b, to be
// used again.
func (l *log) append(number uint64, b []byte) ([]byte, error) {
	fields := b[recordHeader:]
	binary.BigEndian.PutUint64(b, number)
	binary.BigEndian.PutUint32(b[8:], uint32(len(fields)))
	binary.BigEndian.PutUint32(b[12:], l.checksum(b[:12], fields))
	b = append(b, make([]byte, -len(b)&(sector-1))...)
	if err := l.reach(l.end + int64(len(b))); err != nil {
		return b, err
	}
	if n, err := l.file.WriteAt(b, l.end); err != nil {
		if n == 0 {
			err = errors.Join(errLogFull, err)
		}
		return b, err
	}
	if err := flush(l.file); err != nil {
		return b, err
	}
	l.end += int64(len(b))
	return b, nil
}

// reach sees to it that the disk has room up to there, by writing: then a record
// cannot fail for want of it when a part of it is written.
func (l *log) reach(end int64) error {
	if end > l.most {
		return errLogFull
	}
	for l.size < end {
		n, err := l.file.WriteAt(make([]byte, logStep-l.size%logStep), l.size)
		if l.size += int64(n); err != nil {
			return errors.Join(errLogFull, err)
		}
	}
	return nil
}

// revoke makes sure that what an append left that failed is no record.
func (l *log) revoke() error {
	if _, err := l.file.WriteAt(make([]byte, sector), l.end); err != nil {
		return err
	}
	return flush(l.file)
}

func (l *log) checksum(head, fields []byte) uint32 {
	return crc32.Update(crc32.Update(l.salt, castagnoli, head), castagnoli, fields)
}

// logged is a commit that was found in a log.
type logged struct {
	number uint64
	fields []byte
	in     *log
	at     int64 // where its record begins
	end    int64 // and ends
	whole  bool  // else it was begun, as far as one can see
}

// read finds all records, of whatever age, and what looks like the beginning of one. They
// have reached the disk when it returns: one that was killed may have left some that had not.
func (l *log) read() (found []logged, err error) {
	if err := flush(l.file); err != nil {
		return nil, err
	}
	b := make([]byte, min(l.size, 4*logSize)) // none of ours is as large
	n, err := l.file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for b, at := b[:n], 0; at+recordHeader <= len(b); {
		r := l.recordAt(b, at)
		found = append(found, r)
		at = int(r.end)
	}
	return found, nil
}

// recordAt returns the record at the sector that begins there.
func (l *log) recordAt(b []byte, at int) logged {
	h := b[at : at+recordHeader]
	r := logged{number: binary.BigEndian.Uint64(h), in: l, at: int64(at), end: int64(at + sector)}
	length := int64(binary.BigEndian.Uint32(h[8:]))
	if length <= int64(len(b)-at-recordHeader) {
		r.fields = b[at+recordHeader:][:length]
		r.whole = r.number > 0 && binary.BigEndian.Uint32(h[12:]) == l.checksum(h[:12], r.fields)
	}
	if r.whole {
		r.end = int64(at) + (recordHeader+length+sector-1)/sector*sector
	}
	return r
}
