package filequeue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"

	"github.com/millrace/millrace/internal/localengine"
)

// wal is a write-ahead log: it holds the newest commits until a checkpoint. A commit then
// costs one sequential write and one wait for the disk, whatever it changes; a commit to the tree
// writes every page it touches and waits twice. A message that is added and deleted between
// checkpoints never reaches the tree.
//
// The first sector is a header, which names the format of the log: see logformat.go. Then there
// is a record for each commit. It begins with the commit's number, at a sector of its own, so
// that writing it touches no durable one. An end mark with the same number follows in the same
// write, and the next record overwrites it. So the end of a log is distinguishable from a
// truncation. A log is reused from the first record, because overwriting is fastest. Older
// records are recognized by their numbers.
//
// Checksums cover a salt that only this store knows, so that no text of a message can look
// like a record, and the position, so that a misplaced record is invalid.
type wal struct {
	name    string
	file    *os.File
	salt    uint32
	format  uint64 // see logFormat
	maxSize int64  // its limit, in bytes
	size    int64  // of the file, all of it allocated
	end     int64  // where the next record goes
}

const (
	sector = 512

	// logSize is the limit of a log, in bytes, except in tests. Larger ones gain little, and a
	// log must fit into the tree too: see reserveSize.
	logSize = 1 << 20

	// logStep is the unit of its growth, in bytes.
	logStep = 256 << 10

	recordHeader = 8 + 4 + 2*crc32.Size // number, length of the fields, checksum of these, checksum of the header

	endMark = math.MaxUint32 // in place of the length; an end mark has no fields
)

// openWAL opens a log, and creates it if flag says so.
func openWAL(d *directory, number int, most int64, flag int) (*wal, error) {
	l := &wal{name: walName(number), format: logFormat, maxSize: most}
	var err error
	if l.file, err = d.open(l.name, os.O_RDWR|flag); err != nil {
		return nil, err
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	l.size, l.end = info.Size(), l.start()
	return l, nil
}

func walName(number int) string { return fmt.Sprintf("%s-%d", logName, number) }

// openFile returns the file, nil for a nil log.
func (l *wal) openFile() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// errLogFull means that a log has no space for a record. Nothing was written.
var errLogFull = errors.New("the log is full")

// append writes the record of a commit and waits for the disk. The fields are in b after
// recordHeader bytes. The error is errLogFull if the log or the disk is full; after any
// other, the record may be there: see writeEndMark. It returns b for reuse.
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

// writeHeader writes the header of a record, whose fields follow it, or of an end mark.
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

// preallocate extends the file by writing, so that a record cannot be cut short by a full
// disk, and waits for the disk, so that an end mark is never beyond the end of the file,
// whenever the machine stops. It writes random bytes: some file systems store zeros without
// allocating space, and zeros are what a disk returns for lost data.
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

// writeEndMark ends the log where the next record would begin, after the commit of that
// number. After a failed append it makes sure that no record is left.
func (l *wal) writeEndMark(number uint64) error {
	return l.writeSectors(l.end, l.markAt(l.end, number))
}

// begin makes an empty log of the current format, after the commit of that number.
func (l *wal) begin(number uint64) error {
	l.format = logFormat
	l.end = l.start()
	return l.writeSectors(0, append(logHeader(), l.markAt(l.end, number)...))
}

func (l *wal) markAt(at int64, number uint64) []byte {
	mark := make([]byte, sector)
	l.writeHeader(mark, at, number, endMark)
	return mark
}

// writeSectors writes whole sectors and waits for the disk.
func (l *wal) writeSectors(at int64, b []byte) error {
	if _, err := l.file.WriteAt(b, at); err != nil {
		return err
	}
	l.size = max(l.size, at+int64(len(b)))
	return flush(l.file)
}

func (l *wal) checksum(head, fields []byte) uint32 {
	return crc32.Update(crc32.Update(l.salt, castagnoli, head), castagnoli, fields)
}

// headerSum is the checksum of a header and its position.
func (l *wal) headerSum(header []byte, at int64) uint32 {
	where := binary.BigEndian.AppendUint64([]byte(l.name), uint64(at))
	return crc32.Update(crc32.Update(l.salt, castagnoli, where), castagnoli, header[:16])
}

// The formats of a log. Every release reads the logs of the release before it. The tree names
// the format, so that a damaged header loses nothing; the header names it for people, and for
// releases that do not know it.
const (
	noLogs       uint64 = iota // the tree has everything
	firstFormat                // up to commit f8d9a14: shorter record headers, no end marks
	secondFormat               // up to commit cdcf2f8: no header
	logFormat                  // the current one
)

// start returns the position of the first record.
func (l *wal) start() int64 {
	if l.format <= secondFormat {
		return 0
	}
	return sector
}

// headerText is the content of a header: the format, the release that began the log, and the
// checksum of both. It is text, so that `head -1` shows it.
const headerText = "Millrace queue log, format %d, written by %s"

func logHeader() []byte {
	text := fmt.Sprintf(headerText, logFormat, release())
	text = text[:min(len(text), sector-10)]
	header := bytes.Repeat([]byte{' '}, sector)
	copy(header, fmt.Sprintf("%s\n%08x", text, crc32.Checksum([]byte(text), castagnoli)))
	header[sector-1] = '\n'
	return header
}

// readLogHeader returns the format of a log and the release that began it, or noLogs if the
// sector is not a header.
func readLogHeader(header []byte) (format uint64, by string) {
	text, rest, _ := bytes.Cut(header, []byte{'\n'})
	if len(rest) < 8 || string(rest[:8]) != fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) {
		return noLogs, ""
	}
	if _, err := fmt.Sscanf(string(text), headerText, &format, &by); err != nil {
		return noLogs, ""
	}
	return format, by
}

// release names the release of this module in the running program.
func release() string {
	const module = "github.com/millrace/millrace"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

// firstHeader is the size of a record's header in the first format: number, length, checksum.
const firstHeader = 8 + 4 + crc32.Size

func (r *walScan) firstFormatEntryAt(at int64) (walEntry, bool) {
	h := r.data[at:]
	f := walEntry{number: binary.BigEndian.Uint64(h), log: r.log, at: at, end: at + sector}
	length := int64(binary.BigEndian.Uint32(h[8:]))
	if f.number == 0 || length > int64(len(h)-firstHeader) {
		return f, false
	}
	fields := h[firstHeader:][:length]
	if binary.BigEndian.Uint32(h[12:]) != r.log.checksum(h[:12], fields) {
		return f, false
	}
	f.kind, f.fields = completeRecord, fields
	f.end = at + (firstHeader+length+sector-1)/sector*sector
	return f, true
}

// firstFormatTail is tail for the first format, which shows an interrupted commit only by its
// number, and does not show a truncation.
func (r *walScan) firstFormatTail(number uint64, at int64) tailState {
	if at+sector <= int64(len(r.data)) && binary.BigEndian.Uint64(r.data[at:]) == number+1 {
		return tailTorn
	}
	return tailIntact
}

// A log record has a header (see recordHeader) with the number of the commit, the length of the fields
// and checksums, and then the fields: the changes of the commit, each a byte for its kind and its
// values. All kinds but the time begin with the message's key.
const (
	recordAdded     = 1 // then the whole message
	recordRewritten = 2 // then the whole message
	recordUpdated   = 3 // then visibility, dequeue count and receipt
	recordRemoved   = 4 // then nothing

	recordTime = 5 // no key; then the time of the commit
)

// loggable reports whether a log record can hold all the changes: those that every message
// makes. Others are rare and go into the tree at once.
func loggable(changes []localengine.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localengine.MessageAdded, localengine.MessageRewritten, localengine.MessagesUpdated,
			localengine.MessageRemoved, localengine.MessagesExpired, localengine.CommittedAt:
		default:
			return false
		}
	}
	return true
}

func appendChanges(b []byte, changes []localengine.Change) []byte {
	for _, c := range changes {
		switch c := c.(type) {
		case localengine.MessageAdded:
			b = appendMessage(append(b, recordAdded), c.MessageState, c.Text)
		case localengine.MessageRewritten:
			b = appendMessage(append(b, recordRewritten), c.MessageState, c.Text)
		case localengine.MessagesUpdated:
			for _, m := range c {
				b = appendState(appendKey(append(b, recordUpdated), m.MessageKey), m)
			}
		case localengine.MessageRemoved:
			b = appendKey(append(b, recordRemoved), localengine.MessageKey(c))
		case localengine.MessagesExpired:
			for _, k := range c {
				b = appendKey(append(b, recordRemoved), k)
			}
		case localengine.CommittedAt:
			b = binary.BigEndian.AppendUint64(append(b, recordTime), uint64(c))
		}
	}
	return b
}

func appendMessage(b []byte, m localengine.MessageState, text string) []byte {
	b = appendKey(b, m.MessageKey)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	return appendBytes(appendState(b, m), text)
}

func readChanges(b []byte) (changes []localengine.Change, err error) {
	for f := (fields{rest: b}); len(f.rest) > 0; {
		kind := f.rest[0]
		f.rest = f.rest[1:]
		if kind == recordTime {
			if changes = append(changes, localengine.CommittedAt(f.int64())); f.short {
				return nil, errRecord
			}
			continue
		}
		m := localengine.MessageState{MessageKey: localengine.MessageKey{Queue: f.uint64(), Sequence: f.uint64()}}
		switch kind {
		case recordAdded, recordRewritten:
			m.Inserted, m.Expires = f.int64(), f.int64()
			readState(&f, &m)
			if text := f.string(); kind == recordAdded {
				changes = append(changes, localengine.MessageAdded{MessageState: m, Text: text})
			} else {
				changes = append(changes, localengine.MessageRewritten{MessageState: m, Text: text})
			}
		case recordUpdated:
			readState(&f, &m)
			changes = append(changes, localengine.MessagesUpdated{m})
		case recordRemoved:
			changes = append(changes, localengine.MessageRemoved(m.MessageKey))
		default:
			return nil, ErrNewer
		}
		if f.short {
			return nil, errRecord
		}
	}
	return changes, nil
}
