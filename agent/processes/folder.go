package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/openfile"
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
	if err := openfile.MakeDirectory(path, 0o700); err != nil {
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
