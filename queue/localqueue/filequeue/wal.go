package filequeue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
)

// A log keeps the newest commits until they are folded into the tree. A commit then
// costs one write in a row and one wait for the disk, whatever it changes, where the
// tree takes a page for every place that it touches, and two waits; and of a message
// that comes and goes meanwhile the tree never hears.
//
// It has a record for each commit, which begins with the commit's number and at a
// sector of its own, so that to write one touches none that is durable. Behind it stands
// an end mark with the same number, which is written with the record and which the next
// one is written over: so a log that ends can be told from one that was cut. When it is
// full it is written over from the beginning: a disk is quickest where it was written
// to before. What an older commit left there says so by its number.
//
// Checksums cover a salt that only this store knows, so that no text of a message can look
// like a record, and where the record stands, so that one that the disk put elsewhere is none.
type wal struct {
	name    string
	file    *os.File
	salt    uint32
	maxSize int64 // how large it becomes
	size    int64 // of the file: up to here the disk has room for it
	end     int64 // where the next record goes
}

const (
	sector = 512

	// logSize is how large a log becomes, in bytes, but in tests. Larger ones gain little, and all
	// that is in one needs room in the tree too: see ballastSize.
	logSize = 1 << 20

	// logStep is by how much it grows.
	logStep = 256 << 10

	recordHeader = 8 + 4 + 2*crc32.Size // number, length of the fields, checksum of these, checksum of the header

	endMark = math.MaxUint32 // stands for the length: there are no fields
)

// openLog opens a log, and makes it if it is to be made.
func openWAL(d *directory, number int, most int64, flag int) (*wal, error) {
	l := &wal{name: fmt.Sprintf("%s-%d", logName, number), maxSize: most}
	var err error
	if l.file, err = d.root.OpenFile(l.name, os.O_RDWR|flag, 0o600); err != nil {
		return nil, d.explain(err)
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	l.size = info.Size()
	return l, nil
}

// opened returns the file. Safe on nil, for which it is nil.
func (l *wal) openFile() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// errLogFull means that a log has no room for a record, and nothing was written.
var errLogFull = errors.New("the log has no room")

// append writes the record of a commit and waits for the disk. Its fields stand in b
// from recordHeader on. It is errLogFull when there is no room, in the log or on the
// disk; after another error the record may be there, see revoke. It returns b, to be
// used again.
func (l *wal) append(number uint64, b []byte) ([]byte, error) {
	l.writeHeader(b, l.end, number, uint32(len(b)-recordHeader))
	b = append(b, make([]byte, -len(b)&(sector-1))...)
	length := len(b)
	b = append(b, make([]byte, sector)...)
	l.writeHeader(b[length:], l.end+int64(length), number, endMark)
	if err := l.preallocate(l.end + int64(len(b))); err != nil {
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
	l.end += int64(length)
	return b, nil
}

// sign writes a header, of a record whose fields stand behind it or of an end mark.
func (l *wal) writeHeader(b []byte, at int64, number uint64, length uint32) {
	binary.BigEndian.PutUint64(b, number)
	binary.BigEndian.PutUint32(b[8:], length)
	var fields []byte
	if length != endMark {
		fields = b[recordHeader:][:length]
	}
	binary.BigEndian.PutUint32(b[12:], l.checksum(b[:12], fields))
	binary.BigEndian.PutUint32(b[16:], l.headerSum(b, at))
}

// reach sees to it that the disk has room up to there, by writing: then a record
// cannot fail for want of it when a part of it is written. It waits for the disk, so that
// an end mark is never behind the end of the file, whenever the machine stops. It writes
// noise, because some file systems find a place for zeros anywhere, and because zeros
// are what a disk has in place of something that it lost.
func (l *wal) preallocate(end int64) error {
	if end > l.maxSize {
		return errLogFull
	}
	if l.size >= end {
		return nil
	}
	for l.size < end {
		noise := make([]byte, logStep-l.size%logStep)
		_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // which never fails
		n, err := l.file.WriteAt(noise, l.size)
		if l.size += int64(n); err != nil {
			return errors.Join(errLogFull, err)
		}
	}
	if err := flush(l.file); err != nil {
		return errors.Join(errLogFull, err)
	}
	return nil
}

// endHere writes that the log ends, after a commit of that number, where the next record
// would begin. After an append that failed it makes sure that what is left is no record.
func (l *wal) writeEndMark(number uint64) error {
	mark := make([]byte, sector)
	l.writeHeader(mark, l.end, number, endMark)
	if _, err := l.file.WriteAt(mark, l.end); err != nil {
		return err
	}
	l.size = max(l.size, l.end+sector)
	return flush(l.file)
}

func (l *wal) checksum(head, fields []byte) uint32 {
	return crc32.Update(crc32.Update(l.salt, castagnoli, head), castagnoli, fields)
}

// headerSum is the checksum of a header and of where it stands.
func (l *wal) headerSum(header []byte, at int64) uint32 {
	where := binary.BigEndian.AppendUint64([]byte(l.name), uint64(at))
	return crc32.Update(crc32.Update(l.salt, castagnoli, where), castagnoli, header[:16])
}
