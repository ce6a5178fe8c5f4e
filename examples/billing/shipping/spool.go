package shipping

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/examples/billing/records"
)

// Source is a usage file, or what takes its place.
type Source struct {
	File string // names it in messages; at most [MaxFile] bytes

	// Lines are what [records.Read] returns: a *records.Rejection for a line that is not billed; any other error is the
	// last.
	Lines iter.Seq2[records.Record, error]
}

// Records returns a source of records that are not from a file, such as those of [records.Generate].
func Records(name string, all iter.Seq[records.Record]) Source {
	return Source{File: name, Lines: func(yield func(records.Record, error) bool) {
		for r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}}
}

// SpoolOptions configure [Consolidate]. Nil and the zero value mean the defaults.
type SpoolOptions struct {
	// Rejected is called for each line that is not billed: those of the sources while they are read, and
	// duplicates when their batch is made. Defaults to none.
	Rejected func(records.Rejection)
}

// Spool is a folder with the records of all days, a file for each. It holds no more than a few megabytes in memory, and 40
// bytes for each record of the day whose batch is made. It is not safe for concurrent use; its batches are.
type Spool struct {
	path    string
	folder  *os.Root
	locked  *os.File
	options SpoolOptions

	days     map[string]*day // by name; not those whose batch was made
	last     *day            // of the last record of the sources that were read, or nil
	early    earlyRejections
	buffered int      // bytes in the buffers of all days
	files    []string // names of sources
	records  int
	rejected int
	closed   bool
}

// lockFile keeps other processes out of the folder.
const lockFile = "lock"

// Ends of the names of spool files, behind the day.
const (
	daySuffix   = ".spool" // lines as they came
	batchSuffix = ".csv"   // the pieces
)

var errInUse = errors.New("another process is using it")

// Consolidate reads all sources and sorts their lines by the day of the record, in UTC. Rejected lines go to the day
// of the record before them, or of the first one after them; those of a source without records to that of the record before it, or after it. It creates the folder, and begins anew if an earlier
// process was killed: what that one left is deleted. So the same sources make the same batches whatever happened
// before, and a batch is never made from half of them. The error is that of a source or of the folder, or the
// cause of ctx; another process may not use the folder meanwhile. Call [Spool.Close] when done.
func Consolidate(ctx context.Context, folder string, sources iter.Seq[Source], o *SpoolOptions) (*Spool, error) {
	s, err := openSpool(folder, o)
	if err != nil {
		return nil, fmt.Errorf("consolidate in the spool folder %s: %w", folder, err)
	}
	for source := range sources {
		if err := s.read(ctx, source); err != nil {
			return nil, errors.Join(fmt.Errorf("consolidate %s in the spool folder %s: %w", source.File, folder, err), s.Close())
		}
	}
	if err := s.flushAll(); err != nil {
		return nil, errors.Join(fmt.Errorf("consolidate in the spool folder %s: %w", folder, err), s.Close())
	}
	return s, nil
}

func openSpool(path string, o *SpoolOptions) (*Spool, error) {
	s := &Spool{path: path, days: make(map[string]*day)}
	if o != nil {
		s.options = *o
	}
	if s.options.Rejected == nil {
		s.options.Rejected = func(records.Rejection) {}
	}
	err := os.MkdirAll(path, 0o777)
	if err == nil {
		s.folder, err = os.OpenRoot(path)
	}
	if err != nil {
		return nil, err
	}
	if s.locked, err = lock(s.folder, lockFile); err == nil {
		err = s.clean()
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// clean deletes spool files, and nothing else that is in the folder.
func (s *Spool) clean() error {
	entries, err := fs.ReadDir(s.folder.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, isDay := strings.CutSuffix(e.Name(), daySuffix)
		name, isBatch := strings.CutSuffix(name, batchSuffix)
		if (isDay || isBatch) && CheckBatch(name) == nil && e.Type().IsRegular() {
			if err := s.folder.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Records returns how many records were read, duplicates included.
func (s *Spool) Records() int { return s.records }

// Rejected returns how many lines were rejected until now.
func (s *Spool) Rejected() int { return s.rejected }

// Batches makes the batch of each day when it is asked for, oldest first, and each once: a further call goes on with
// the next day. A day without records has none. An error, such as that of a full disk, is yielded last.
func (s *Spool) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		seen := make(map[idHash]origin)
		for _, name := range s.dayNames() {
			clear(seen) // and keep its memory
			b, err := s.cut(ctx, name, seen)
			if err != nil {
				yield(nil, fmt.Errorf("make batch %s in the spool folder %s: %w", name, s.path, err))
				return
			}
			delete(s.days, name)
			if !yield(b, nil) {
				return
			}
		}
	}
}

func (s *Spool) dayNames() []string {
	var names []string
	for name, d := range s.days {
		if d.records > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Close deletes the spool files and releases the folder. Batches cannot be shipped anymore. A further call does
// nothing.
func (s *Spool) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if err := errors.Join(s.clean(), s.release()); err != nil {
		return fmt.Errorf("close the spool folder %s: %w", s.path, err)
	}
	return nil
}

func (s *Spool) release() error {
	var err error
	if s.locked != nil {
		err = s.locked.Close()
	}
	return errors.Join(err, s.folder.Close())
}

// batchPath returns the path of a batch's file.
func (s *Spool) batchPath(day string) string { return filepath.Join(s.path, day+batchSuffix) }
