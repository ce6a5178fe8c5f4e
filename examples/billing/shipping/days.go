package shipping

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/millrace/millrace/examples/billing/records"
)

// day is the records and rejected lines of a day. Its file has lines that begin with one of the marks.
type day struct {
	name    string
	buffer  []byte // lines that are not in the file
	file    int    // index of the source of the last line, -1 at first
	early   int    // rejections before the first record of a source that are only counted
	records int
}

const (
	fileMark      = 'F' // a source: the lines that follow are from it
	recordMark    = 'R' // the hash of the id, the line number, a space, and the canonical line
	rejectionMark = 'J' // a rejection in JSON
)

const (
	maxBuffered = 4 << 20 // bytes in the buffers of all days
	maxText     = 512     // bytes of a text in a rejection; an id has at most 64 characters
)

// idHash identifies the id of a record. 128 bits never collide by chance.
type idHash [16]byte

func hashOf(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
}

// read sorts the lines of a source.
func (s *Spool) read(ctx context.Context, source Source) error {
	if err := checkFile(source.File); err != nil {
		return err
	}
	s.files = append(s.files, source.File)
	var current *day
	for record, err := range source.Lines {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if rejection := (*records.Rejection)(nil); errors.As(err, &rejection) {
			err = s.reject(current, *rejection)
		} else if err == nil {
			current, err = s.add(current, &record)
		}
		if err != nil {
			return err
		}
	}
	if current != nil {
		s.last = current
	} else if s.last != nil {
		return s.addEarly(s.last)
	}
	return nil
}

// earlyRejections are lines of a source before its first record, whose day is not known yet. Those of a source without records
// go to the last day of the sources before, or wait for the next source.
type earlyRejections struct {
	named []records.Rejection
	more  int
}

// reject adds a rejection to the current day, or keeps it until there is one.
func (s *Spool) reject(current *day, r records.Rejection) error {
	s.rejected++
	r.File, r.ID, r.Reason = shorten(r.File, MaxFile), shorten(r.ID, maxText), shorten(r.Reason, maxText)
	s.options.Rejected(r)
	if current != nil {
		return s.addRejection(current, r)
	}
	if len(s.early.named) == MaxRejected {
		s.early.more++
		return nil
	}
	s.early.named = append(s.early.named, r)
	return nil
}

// add appends a record to its day, and the early rejections before it.
func (s *Spool) add(current *day, r *records.Record) (*day, error) {
	name := r.Day()
	if current == nil || current.name != name {
		if err := CheckBatch(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.Line, err)
		}
		if current = s.days[name]; current == nil {
			current = &day{name: name, file: -1}
			s.days[name] = current
		}
	}
	if err := s.addEarly(current); err != nil {
		return nil, err
	}
	before := len(current.buffer)
	s.addFile(current)
	hash := hashOf(r.ID)
	current.buffer = append(current.buffer, recordMark)
	current.buffer = hex.AppendEncode(current.buffer, hash[:])
	current.buffer = strconv.AppendInt(current.buffer, int64(r.Line), 10)
	current.buffer = append(current.buffer, ' ')
	current.buffer = records.AppendPiece(current.buffer, r)
	current.records++
	s.records++
	return current, s.grown(len(current.buffer) - before)
}

// addEarly adds the early rejections to a day.
func (s *Spool) addEarly(d *day) error {
	for _, e := range s.early.named {
		if err := s.addRejection(d, e); err != nil {
			return err
		}
	}
	d.early += s.early.more
	s.early = earlyRejections{}
	return nil
}

// addFile says from which source the lines are that follow.
func (s *Spool) addFile(d *day) {
	if file := len(s.files) - 1; d.file != file {
		d.file = file
		d.buffer = append(d.buffer, fileMark)
		d.buffer = strconv.AppendInt(d.buffer, int64(file), 10)
		d.buffer = append(d.buffer, '\n')
	}
}

func (s *Spool) addRejection(d *day, r records.Rejection) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	before := len(d.buffer)
	d.buffer = append(d.buffer, rejectionMark)
	d.buffer = append(d.buffer, text...)
	d.buffer = append(d.buffer, '\n')
	return s.grown(len(d.buffer) - before)
}

// grown notes that a buffer has grown, and writes the largest one if all have too much. So a day has few
// writes also when the records of many days come in random order.
func (s *Spool) grown(n int) error {
	if s.buffered += n; s.buffered < maxBuffered {
		return nil
	}
	var largest *day
	for _, d := range s.days {
		if largest == nil || len(d.buffer) > len(largest.buffer) {
			largest = d
		}
	}
	return s.flush(largest)
}

// flush appends a buffer to the day's file.
func (s *Spool) flush(d *day) error {
	f, err := s.folder.OpenFile(d.name+daySuffix, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(d.buffer)
	if e := f.Close(); err == nil {
		err = e
	}
	s.buffered -= len(d.buffer)
	d.buffer = nil // many days may have had their time
	return err
}

func (s *Spool) flushAll() error {
	for _, d := range s.days {
		if err := s.flush(d); err != nil {
			return err
		}
	}
	return nil
}

// shorten returns a text of at most that many bytes, in UTF-8.
func shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
