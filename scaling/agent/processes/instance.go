package processes

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/internal/retry"
)

// The files of a folder. Each instance has two more: "3.lock", see [process], or "3.drain", if it
// was told to end or is about to be, and "3.out", its output. A file is renamed even if the disk is
// full.
const (
	agentLock = "agent.lock" // locked by the agent that supervises
	graceName = "grace"      // of the agent, for Drain
)

func lockName(number int) string   { return strconv.Itoa(number) + ".lock" }
func drainName(number int) string  { return strconv.Itoa(number) + ".drain" }
func outputName(number int) string { return strconv.Itoa(number) + ".out" }

// folder is where it is kept which processes run. It is used by the keeper alone. It is a
// [os.Root], so that a folder that is removed and made again by somebody else is not taken for this
// one.
type folder struct {
	path string
	root *os.Root
	lock *os.File
}

// patience is for how long a new agent tries to lock the folder: processes that the former one was
// starting when it was killed have its lock until they have begun.
const patience = 200 * time.Millisecond

func openFolder(path string, patience time.Duration) (*folder, error) {
	if err := openfile.MakeDirectory(os.Open, path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	f := &folder{path: path, root: root}
	for begin := time.Now(); ; time.Sleep(patience / 10) {
		if f.lock, err = lockFile(root, agentLock); !errors.Is(err, ErrInUse) || time.Since(begin) > patience {
			break
		}
	}
	if err != nil {
		_ = root.Close() // the other error says more
		return nil, fmt.Errorf("lock the folder %s: %w; each pool of each agent needs a folder of its own", path, err)
	}
	return f, nil
}

// close lets the next agent have the folder.
func (f *folder) close() {
	_ = f.lock.Close() // nothing was written
	_ = f.root.Close()
}

// deleted reports whether the folder, or the lock in it, was deleted.
func (f *folder) deleted() bool {
	info, err := f.lock.Stat()
	return err == nil && !openfile.Linked(info)
}

// write writes a small file, or leaves none.
func (f *folder) write(name string, text []byte) error {
	err := f.root.WriteFile(name, text, 0o600)
	if err != nil {
		_ = f.root.Remove(name) // the other error says more
	}
	return err
}

// instances returns the numbers of the instances by the names of their files.
func (f *folder) instances() (map[string]int, error) {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	found := make(map[string]int)
	for _, e := range entries {
		digits, kind, _ := strings.Cut(e.Name(), ".")
		if number, err := strconv.Atoi(digits); err == nil && (kind == "lock" || kind == "drain") {
			found[e.Name()] = number
		}
	}
	return found, err
}

// lockFile opens and locks a file, or returns [ErrInUse]. The kernel releases the lock when all
// processes that have inherited the open file have ended or closed it, however they end. On Windows
// it locks nothing.
func lockFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := openfile.TryLock(f)
	if err == nil && !locked {
		err = ErrInUse
	}
	if err != nil {
		_ = f.Close() // the other error says more
		return nil, err
	}
	return f, nil
}

type phase int

const (
	working  phase = iota // it has a process
	waiting               // it has none, and gets one at the time that is due
	draining              // its process was told to end, or is about to be
)

// instance is one instance. It is used by the keeper alone.
type instance struct {
	number   int
	phase    phase
	process  *process // nil if it has none
	name     string   // of the file of the process
	output   *output  // of the process
	started  time.Time
	due      time.Time    // of the next start or the next step of draining
	waits    *retry.Waits // before starts
	told     bool         // that it should end
	killed   bool
	unlocked int // looks in a row at which the process lived and did not hold its lock
}

// endsBefore orders surplus instances: first those that have no process, then the youngest, which
// have done the least: they may not even have begun.
func endsBefore(a, b *instance) int {
	return cmp.Or(cmp.Compare(b.phase, a.phase), b.started.Compare(a.started), cmp.Compare(b.number, a.number))
}

// detach lets go of the process and of its output, which is read to its end.
func (i *instance) detach() {
	if i.process != nil {
		i.process.close()
		close(i.output.ended)
		i.process, i.output = nil, nil
	}
}

const (
	longestLine = 4 << 10 // a longer one is shown in parts
	reclaimAt   = 1 << 20 // so many bytes that were read are given back to the disk
	shownLines  = 10      // of an instance that has ended
)

// output is what a process writes. It is a file and no pipe, so that the process works on when
// nobody reads: neither the end of the agent nor a terminal that is held up stops it.
type output struct {
	file   *os.File
	ended  chan struct{} // closed when the process has ended, or the supervision
	offset int64         // until where it was read
	hole   int64         // until where the room was given back
	rest   io.Reader     // what is read after that end
	look   time.Duration // between looks for more
}

func openOutput(root *os.Root, number int) (*output, error) {
	file, err := root.OpenFile(outputName(number), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	return &output{file: file, ended: make(chan struct{})}, err
}

func (o *output) size() int64 {
	size, _ := o.file.Seek(0, io.SeekEnd) // it is written at its end anyway, and read at offsets
	return size
}

// follow shows whole lines, until the end, and then closes the file.
func (o *output) follow(prefix string, show func(line string)) {
	defer func() { _ = o.file.Close() }() // it was only read
	lines := bufio.NewReaderSize(o, longestLine)
	for part := false; ; {
		line, err := lines.ReadSlice('\n')
		text := strings.TrimSuffix(string(line), "\n")
		if text != "" || len(line) > 0 && !part {
			show(prefix + text + "\n")
		}
		if part = errors.Is(err, bufio.ErrBufferFull); err != nil && !part {
			return
		}
	}
}

// Read waits until there is more, or until the end.
func (o *output) Read(text []byte) (n int, err error) {
	for wait := time.Duration(0); o.rest == nil; wait = o.look {
		select {
		case <-o.ended: // what others go on to write, such as one that is left, is not shown
			o.rest = io.NewSectionReader(o.file, o.offset, o.size()-o.offset)
			continue
		case <-time.After(wait):
		}
		n, _ = o.file.ReadAt(text, o.offset) // an error comes again with the next read
		if o.offset += int64(n); o.offset-o.hole >= reclaimAt {
			if !punch(o.file, o.offset) && o.file.Truncate(0) == nil {
				o.offset = 0
			}
			o.hole = o.offset
		}
		if n > 0 {
			return n, nil
		}
	}
	return o.rest.Read(text)
}

// last returns the last lines.
func (o *output) last() string {
	text := make([]byte, longestLine)
	n, _ := o.file.ReadAt(text, max(o.size()-longestLine, 0)) // what cannot be read is not shown
	lines := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(bytes.Trim(text[:n], "\x00")), "�"), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}
