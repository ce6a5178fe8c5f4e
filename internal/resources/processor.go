package resources

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Processor returns the processor time that this process has used since its start, and how many processors it may keep busy:
// GOMAXPROCS, or the quota of a control group if that is less. Known is false where the system does not tell the time.
func Processor() (used time.Duration, processors float64, known bool) {
	used, known = processorTime()
	return used, min(float64(runtime.GOMAXPROCS(0)), quota(os.DirFS("/"))), known
}

// quota returns how many processors the control groups of this process allow, +Inf if there is no limit. A file that
// cannot be read or understood is no limit.
func quota(root fs.FS) float64 {
	least := math.Inf(1)
	_ = eachGroup(root, "cpu", func(version int, group string) error {
		var text string
		if version == 2 {
			text, _ = readText(root, path.Join("sys/fs/cgroup", group, "cpu.max"))
		} else {
			used, _ := readText(root, path.Join("sys/fs/cgroup/cpu", group, "cpu.cfs_quota_us"))
			period, _ := readText(root, path.Join("sys/fs/cgroup/cpu", group, "cpu.cfs_period_us"))
			text = used + " " + period
		}
		if fields := strings.Fields(text); len(fields) == 2 { // microseconds, "max" or -1 of how many
			used, err := strconv.ParseUint(fields[0], 10, 32)
			period, failed := strconv.ParseUint(fields[1], 10, 32)
			if err == nil && failed == nil && used > 0 && period > 0 {
				least = min(least, float64(used)/float64(period))
			}
		}
		return nil
	})
	return least
}
