package resources

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Memory is how much memory is in use, and how much there is, in bytes.
type Memory struct {
	Used  int64
	Limit int64 // 0 if there is none
}

// Process returns the memory of this process: what is resident, or what the Go runtime uses where the system is not Linux. Its
// limit is that of a control group. The limit of the Go runtime is none: garbage may fill it at any time.
func Process() Memory {
	m := Memory{Used: runtimeMemory().Used}
	if group, err := groupMemory(os.DirFS("/")); err == nil {
		m.Limit = group.Limit
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil && pages > 0 {
				m.Used = pages * int64(os.Getpagesize())
			}
		}
	}
	return m
}

// Container returns the memory that this process may use: that of its control group, or of one around it, whichever is
// nearest to being reached. Without a limit of a group it is that of the Go runtime.
func Container() (Memory, error) {
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
func groupMemory(root fs.FS) (nearest Memory, err error) {
	err = eachGroup(root, "memory", func(version int, group string) error {
		m, err := memoryOf[version].read(root, group)
		if m.Limit > 0 && (nearest.Limit == 0 || float64(m.Used)/float64(m.Limit) > float64(nearest.Used)/float64(nearest.Limit)) {
			nearest = m
		}
		return err
	})
	if err != nil {
		return Memory{}, err
	}
	return nearest, nil
}

// memoryFiles are where a version of control groups has its files.
type memoryFiles struct{ mount, limit, used, cached string }

var memoryOf = map[int]*memoryFiles{
	1: {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
	2: {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
}

// unlimited is from which size on a limit is none: version 1 writes the largest number of pages.
const unlimited = 1 << 60

// read returns the memory of one group. It is zero if the group has no limit or is not mounted here.
func (v *memoryFiles) read(root fs.FS, group string) (Memory, error) {
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
func (v *memoryFiles) cachedFiles(root fs.FS, dir string) int64 {
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

func parseBytes(name, text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("/%s says %.40q, which is no size", name, strings.TrimSpace(text))
	}
	return n, nil
}
