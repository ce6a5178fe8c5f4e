package processes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/internal/retry"
)

// The files of a folder. Each instance has two more: "3.lock", see [process], and "3.out", its output.
const (
	agentLock = "agent.lock" // locked by the agent that supervises
	keptName  = "state.json" // a kept
	keptFresh = "state.json.new"
)

func lockName(number int) string   { return strconv.Itoa(number) + ".lock" }
func outputName(number int) string { return strconv.Itoa(number) + ".out" }

var instanceNames = regexp.MustCompile(`^([1-9][0-9]{0,8})\.(?:lock|out)$`)

// kept is what an agent tells the next one.
type kept struct {
	Wanted   int          `json:"wanted"`
	Draining map[int]bool `json:"draining,omitempty"` // by number: whether the instance was told to end
}

// folder is where it is kept which processes run. It is used by the keeper alone. It is a [os.Root], so that a folder that is removed
// and made again by somebody else is not taken for this one.
type folder struct {
	path string
	root *os.Root
	lock *os.File
}

// patience is for how long a new agent tries to lock the folder: processes that the former one was starting when it was killed have
// its lock until they have begun.
const patience = 200 * time.Millisecond

func openFolder(path string) (*folder, error) {
	if err := openfile.MakeDirectory(os.Open, path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	f := &folder{path: path, root: root}
	for begin := time.Now(); ; time.Sleep(patience / 10) {
		if f.lock, err = lockFile(root, agentLock); !errors.Is(err, errLocked) || time.Since(begin) > patience {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = root.Close() // the other error says more
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("folder %s: %w; each pool of each agent needs a folder of its own", path, ErrInUse)
	}
	return nil, fmt.Errorf("lock the folder %s: %w", path, err)
}

// close lets the next agent have the folder.
func (f *folder) close() {
	_ = f.lock.Close() // nothing was written
	_ = f.root.Close()
}

// read returns what the former agent kept, or nil if there was none.
func (f *folder) read() (*kept, error) {
	file, err := f.root.Open(keptName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", f.path, err)
	}
	k := &kept{}
	if err = json.Unmarshal(text, k); err == nil && k.Wanted < 0 {
		err = errors.New("the number is negative")
	}
	if err != nil {
		return nil, fmt.Errorf("folder %s: %s has %q, which no agent writes: %w; delete it: then as many instances are wanted as run", f.path, keptName, text, err)
	}
	return k, nil
}

// write keeps k, all of it or nothing, whatever is killed. With sync a loss of power does no more harm: it matters only for what is
// wanted, because all instances end with it.
func (f *folder) write(k kept, sync bool) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	file, err := f.root.OpenFile(keptFresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = file.Write(append(text, '\n'))
		if sync {
			err = errors.Join(err, file.Sync())
		}
		err = errors.Join(err, file.Close())
	}
	if err == nil {
		err = f.root.Rename(keptFresh, keptName)
	}
	if err != nil {
		return fmt.Errorf("keep in %s that %d instances are wanted: %w", f.path, k.Wanted, err)
	}
	return nil
}

// numbers returns those of the instances that have files here, in order.
func (f *folder) numbers() ([]int, error) {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read the folder %s: %w", f.path, err)
	}
	var numbers []int
	for _, e := range entries {
		if match := instanceNames.FindStringSubmatch(e.Name()); match != nil {
			number, err := strconv.Atoi(match[1])
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

type phase int

const (
	working  phase = iota // it has a process
	waiting               // it has none, and gets one at the time that is due
	draining              // its process was told to end, or is about to be
	gone                  // it has ended for good, and some of its output has still to be read
)

// instance is one instance. It is used by the keeper alone.
type instance struct {
	number  int
	phase   phase
	process *process // nil if it has none
	output  *output  // nil until it is started
	started time.Time
	due     time.Time    // of the next start or the next step of draining
	waits   *retry.Waits // before starts
	told    bool         // that it should end
	killed  bool
	warned  bool // that its process id is unknown
}

func newInstance(number int, t timing) *instance {
	return &instance{number: number, phase: waiting, waits: retry.NewWaits("instance "+strconv.Itoa(number), t.restart, t.maxRestart)}
}

// endsBefore orders surplus instances: first those that have no process, then the youngest, which have done the least: they may not
// even have begun.
func endsBefore(a, b *instance) int {
	switch {
	case a.phase != b.phase:
		return int(b.phase) - int(a.phase) // waiting before working
	case !a.started.Equal(b.started):
		return b.started.Compare(a.started)
	default:
		return b.number - a.number
	}
}

func (i *instance) closeFiles() {
	if i.process != nil {
		i.process.close()
	}
	if i.output != nil {
		_ = i.output.file.Close() // it was only read
	}
}

// startedAt is when the process of a former agent was started.
func startedAt(root *os.Root, number int) time.Time {
	info, err := root.Stat(lockName(number))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

const (
	chunk       = 32 << 10 // is read at once
	longestLine = 4 << 10  // a longer one is shown in parts
	reclaimAt   = 1 << 20  // so many bytes that were read are given back to the disk
	shownLines  = 10       // of an instance that has ended
)

// output is what an instance writes. It is a file and no pipe, so that the instance works on when nobody reads: neither the end of the
// agent nor a terminal that is held up stops it.
type output struct {
	file      *os.File
	prefix    string
	from      int64  // where that of the present process begins
	offset    int64  // until where it was read
	reclaimed int64  // until where the room was given back
	partial   []byte // of a line that has no end yet
	chunk     []byte
}

// openOutput opens the output of an instance, from its beginning, or of a process that exists from its end.
func openOutput(root *os.Root, number int, exists bool) (*output, error) {
	mode := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if !exists {
		_ = root.Remove(outputName(number)) // what is left of an older one
	}
	file, err := root.OpenFile(outputName(number), mode, 0o600)
	if err != nil {
		return nil, err
	}
	o := &output{file: file, prefix: fmt.Sprintf("[%d] ", number)}
	o.begins()
	o.offset = o.from
	return o, nil
}

// begins says that what comes next is of another process.
func (o *output) begins() {
	if info, err := o.file.Stat(); err == nil {
		o.from = info.Size()
	}
}

// next returns the next whole lines, with the prefix, or nil if there are none at the moment.
func (o *output) next() []byte {
	info, err := o.file.Stat()
	switch {
	case err != nil || info.Size() == o.offset:
		return nil
	case info.Size() < o.offset: // somebody has emptied the file
		o.offset, o.reclaimed, o.from = 0, 0, 0
	}
	if o.chunk == nil {
		o.chunk = make([]byte, chunk)
	}
	n, _ := o.file.ReadAt(o.chunk, o.offset) // an error comes again with the next read
	o.offset += int64(n)
	if o.offset-o.reclaimed >= reclaimAt {
		before := o.offset
		o.offset = reclaim(o.file, o.offset)
		o.reclaimed = o.offset
		if o.offset < before {
			o.from = 0
		}
	}
	return o.lines(o.chunk[:n])
}

func (o *output) lines(text []byte) []byte {
	var whole []byte
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		room := longestLine - len(o.partial)
		switch {
		case end >= 0 && end <= room:
			o.partial = append(o.partial, text[:end]...)
			text = text[end+1:]
		case len(text) >= room:
			o.partial = append(o.partial, text[:room]...)
			text = text[room:]
			if len(text) > 0 && text[0] == '\n' {
				text = text[1:]
			}
		default:
			o.partial = append(o.partial, text...)
			return whole
		}
		whole = append(whole, o.rest()...)
	}
	return whole
}

// rest returns the line that has no end, with one.
func (o *output) rest() []byte {
	line := append([]byte(o.prefix), o.partial...)
	o.partial = o.partial[:0]
	return append(line, '\n')
}

// last returns the last lines of the present process.
func (o *output) last() string {
	info, err := o.file.Stat()
	if err != nil {
		return ""
	}
	begin := max(o.from, info.Size()-longestLine, 0)
	text := make([]byte, max(0, info.Size()-begin))
	n, _ := o.file.ReadAt(text, begin) // what cannot be read is not shown
	lines := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(bytes.Trim(text[:n], "\x00")), "�"), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}

// write writes chunks to w until there are no more, and calls failed with the first error.
func write(w io.Writer, chunks <-chan []byte, failed func(error)) {
	for text := range chunks {
		if _, err := w.Write(text); err != nil && failed != nil {
			failed(err)
			failed = nil
		}
	}
}
