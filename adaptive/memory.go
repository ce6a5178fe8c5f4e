package adaptive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/hook"
)

// Memory is how much memory is in use, and how much there is, in bytes.
type Memory struct {
	Used  int64
	Limit int64 // 0 if there is none
}

// highMemory is the part of the memory beyond which the limit shrinks. What is left is for the handlers that run already, whose
// need may grow.
const highMemory = 0.8

// calm is how long no reading must have been high before the limit grows again. What handlers need varies, and it is the
// peaks that must fit.
const calm = time.Minute

// memoryInterval is how long a reading of the memory counts.
const memoryInterval = 100 * time.Millisecond

// reading is what was last read of the memory. The lock of the limit guards it.
type reading struct {
	Memory
	at   time.Time // when it began; zero if it was never read
	busy bool      // it is being read
	high time.Time // when it was last high; zero if it never was
}

// part returns the part of the memory that is in use, or 0 if that is unknown or there is no limit.
func (r *reading) part() float64 {
	if r.Limit <= 0 {
		return 0
	}
	return float64(r.Used) / float64(r.Limit)
}

// isHigh reports whether too much memory is in use.
func (r *reading) isHigh() bool { return r.part() > highMemory }

// forbidsGrowth reports whether too much memory was in use lately.
func (r *reading) forbidsGrowth() bool { return !r.high.IsZero() && time.Since(r.high) < calm }

// lookAtMemory reads the memory, unless that was done a moment ago, and shrinks the limit if too much is in use.
func (l *Limit) lookAtMemory() {
	if l.options.Memory == nil || !l.beginReading() {
		return
	}
	var now Memory
	var err error
	failure := hook.Run(func() { now, err = l.options.Memory() })
	if failure != nil {
		l.failed("Memory", failure)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.busy = false
	switch {
	case failure != nil:
		l.memory.Memory = Memory{} // unknown
	case err != nil:
		l.memory.Memory, l.failure = Memory{}, err
	default:
		was := l.memory.isHigh()
		l.memory.Memory = now
		l.fitMemory(was)
	}
}

// beginReading reports whether the caller should read the memory.
func (l *Limit) beginReading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.memory
	if r.busy || !r.at.IsZero() && time.Since(r.at) < memoryInterval {
		return false
	}
	r.busy, r.at = true, time.Now()
	return true
}

// fitMemory shrinks the limit while too much memory is in use: to as many handlers as would fit if all of it were theirs, by a
// tenth when that begins, and below those that run, so that none starts for one that ends until the memory is less. Was
// says whether it was too much before. Requires mu.
func (l *Limit) fitMemory(was bool) {
	if !l.memory.isHigh() {
		return
	}
	l.memory.high = time.Now()
	l.rule.starting = false
	running := float64(l.running)
	fit := min(running*highMemory/l.memory.part(), running-1)
	if !was {
		fit = min(fit, running*backOff)
	}
	if fit < l.rule.exact {
		l.set(fit, change{why: afterMemory, memory: l.memory.Memory})
	}
}

// ContainerMemory reads the memory that this process may use, for the option Memory: the limit of its control group, of
// version 2 or 1, and of the groups around that, whichever is nearest to being reached; what is in use there without the cached
// files that the kernel would drop first, as the kubelet counts it. Without such a limit it is that of the Go runtime
// (GOMEMLIMIT, debug.SetMemoryLimit) and what the runtime uses. Without any Limit is 0. It takes about 0.1 ms. It is safe for
// concurrent use.
//
// Garbage counts until it is collected. With a limit of a container set GOMEMLIMIT to 0.7 of it, so that the runtime
// collects its garbage before that counts.
func ContainerMemory() (Memory, error) {
	found, err := groupMemory(os.DirFS("/"))
	if err != nil {
		return Memory{}, fmt.Errorf("read the memory of the container: %w", err)
	}
	if found.Limit > 0 {
		return found, nil
	}
	return runtimeMemory(), nil
}

func runtimeMemory() Memory {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = 0
	}
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return Memory{Used: int64(samples[0].Value.Uint64() - samples[1].Value.Uint64()), Limit: limit}
}

// groupMemory returns the memory of the control group of this process, or of one around it: the one that has the largest
// part of its limit in use. Its Limit is 0 if none has one.
func groupMemory(root fs.FS) (Memory, error) {
	text, err := readText(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, nil // not Linux
	}
	if err != nil {
		return Memory{}, err
	}
	var nearest Memory
	for line := range strings.Lines(text) {
		group, version := memoryGroup(strings.TrimSpace(line))
		if version == nil {
			continue
		}
		for dir := group; ; dir = path.Dir(dir) {
			m, err := version.read(root, dir)
			if err != nil {
				return Memory{}, err
			}
			if m.Limit > 0 && (nearest.Limit == 0 || float64(m.Used)/float64(m.Limit) > float64(nearest.Used)/float64(nearest.Limit)) {
				nearest = m
			}
			if dir == "." || dir == "/" {
				break
			}
		}
	}
	return nearest, nil
}

// groupVersion is where a version of control groups has its files.
type groupVersion struct {
	mount, limit, used, cached string
}

var (
	version2 = &groupVersion{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	version1 = &groupVersion{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
)

// memoryGroup returns the group in a line of /proc/self/cgroup, such as "0::/a/b" or "4:memory:/a/b", and the version if
// the line is about memory. In a container the group may be named as the host sees it, and be mounted as the root.
func memoryGroup(line string) (group string, v *groupVersion) {
	fields := strings.SplitN(line, ":", 3)
	if len(fields) != 3 {
		return "", nil
	}
	group = strings.TrimPrefix(path.Clean("/"+fields[2]), "/")
	group = cmp.Or(group, ".")
	switch {
	case fields[0] == "0" && fields[1] == "":
		return group, version2
	case slices.Contains(strings.Split(fields[1], ","), "memory"):
		return group, version1
	}
	return "", nil
}

// unlimited is from which size on a limit is none: version 1 writes the largest number of pages.
const unlimited = 1 << 60

// read returns the memory of one group. It is zero if the group has no limit or is not mounted here.
func (v *groupVersion) read(root fs.FS, group string) (Memory, error) {
	dir := path.Join(v.mount, group)
	text, err := readText(root, path.Join(dir, v.limit))
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, nil
	}
	if err != nil {
		return Memory{}, err
	}
	if strings.TrimSpace(text) == "max" {
		return Memory{}, nil
	}
	limit, err := parseBytes(path.Join(dir, v.limit), text)
	if err != nil || limit >= unlimited {
		return Memory{}, err
	}
	if text, err = readText(root, path.Join(dir, v.used)); err != nil {
		return Memory{}, err
	}
	used, err := parseBytes(path.Join(dir, v.used), text)
	if err != nil {
		return Memory{}, err
	}
	return Memory{Used: max(used-v.cachedFiles(root, dir), 0), Limit: limit}, nil
}

// cachedFiles returns the size of the cached files that were not used lately, or 0 if it is unknown: then more counts as in use.
func (v *groupVersion) cachedFiles(root fs.FS, dir string) int64 {
	text, err := readText(root, path.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(line, " "); name == v.cached {
			n, _ := parseBytes(name, value)
			return n
		}
	}
	return 0
}

func readText(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, filepath.ToSlash(name))
	return string(b), err
}

func parseBytes(name, text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("/%s says %.40q, which is no size", name, strings.TrimSpace(text))
	}
	return n, nil
}
