package resources

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// system returns a file system with these files.
func system(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestTheMemoryOfTheGroupIsRead(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
		error string
	}{
		"version 2, the root of a container": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "700\n",
			v2 + "memory.stat": "anon 1\nfile 300\ninactive_file 200\nactive_file 100\n",
		}, want: Memory{500, 1000}},
		"version 2, without statistics": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "700\n",
		}, want: Memory{700, 1000}},
		"version 2, no limit": {files: map[string]string{
			"proc/self/cgroup": "0::/a\n", v2 + "a/memory.max": "max\n", v2 + "a/memory.current": "700\n",
		}},
		"a group around it is nearer to its limit": {files: map[string]string{
			"proc/self/cgroup":        "0::/pod/one\n",
			v2 + "pod/one/memory.max": "1000\n", v2 + "pod/one/memory.current": "100\n",
			v2 + "pod/memory.max": "2000\n", v2 + "pod/memory.current": "1900\n",
		}, want: Memory{1900, 2000}},
		"the group has its host's name and is mounted as the root": {files: map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c1\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "400\n",
		}, want: Memory{400, 1000}},
		"a name with a colon": {files: map[string]string{
			"proc/self/cgroup": "0::/a:b\n", v2 + "a:b/memory.max": "1000\n", v2 + "a:b/memory.current": "400\n",
		}, want: Memory{400, 1000}},
		"version 1": {files: map[string]string{
			"proc/self/cgroup":             "7:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
			v1 + "x/memory.limit_in_bytes": "1000\n", v1 + "x/memory.usage_in_bytes": "900\n",
			v1 + "x/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
		}, want: Memory{600, 1000}},
		"version 1, no limit": {files: map[string]string{
			"proc/self/cgroup": "4:memory:/\n", v1 + "memory.limit_in_bytes": "9223372036854771712\n", v1 + "memory.usage_in_bytes": "900\n",
		}},
		"more cached than used": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "100\n", v2 + "memory.stat": "inactive_file 200\n",
		}, want: Memory{0, 1000}},
		"no Linux":         {},
		"nothing mounted":  {files: map[string]string{"proc/self/cgroup": "0::/a/b\n4:memory:/c\n"}},
		"lines of no kind": {files: map[string]string{"proc/self/cgroup": "x\n\n1:2\n"}},
		"a name that leads out": {files: map[string]string{
			"proc/self/cgroup": "0::/../../etc\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "400\n",
		}, want: Memory{400, 1000}},
		"no number": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "much\n", v2 + "memory.current": "400\n",
		}, error: `/sys/fs/cgroup/memory.max says "much", which is no size`},
		"a negative size": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "1000\n", v2 + "memory.current": "-4\n",
		}, error: `/sys/fs/cgroup/memory.current says "-4"`},
		"no usage": {files: map[string]string{"proc/self/cgroup": "0::/\n", v2 + "memory.max": "1000\n"}, error: "memory.current"},
	} {
		got, err := groupMemory(system(c.files))
		switch {
		case c.error == "" && (err != nil || got != c.want):
			t.Errorf("%s: got %+v and error %v, want %+v", name, got, err, c.want)
		case c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error)):
			t.Errorf("%s: got %+v and error %v, want an error with %q", name, got, err, c.error)
		}
	}
}

// On this machine, whatever it is: it can be read, and a limit of the runtime counts where no group has one.
func TestTheMemoryOfThisProcessIsRead(t *testing.T) {
	got, err := Container()
	if err != nil {
		t.Fatal(err)
	}
	if got.Used <= 0 {
		t.Errorf("got %+v, want memory in use", got)
	}
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	if m := runtimeMemory(); m.Limit != 0 {
		t.Errorf("of a runtime without a limit: got %+v, want the limit 0", m)
	}
	debug.SetMemoryLimit(1 << 40)
	if m := runtimeMemory(); m.Limit != 1<<40 || m.Used <= 1<<20 || m.Used >= 1<<40 {
		t.Errorf("of the runtime: got %+v, want the limit that was set and more than 1 MiB in use", m)
	}
}

// N-09: the quota of a group counts, the least of those around it too, and what is wrong or missing is no limit.
func TestTheQuotaOfTheGroupIsRead(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/cpu/"
	for name, c := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"version 2": {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "cpu.max": "50000 100000\n"}, 0.5},
		"no quota":  {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "cpu.max": "max 100000\n"}, math.Inf(1)},
		"around it": {map[string]string{"proc/self/cgroup": "0::/pod/c\n", v2 + "pod/c/cpu.max": "max 100000\n", v2 + "pod/cpu.max": "250000 100000\n"}, 2.5},
		"version 1": {map[string]string{
			"proc/self/cgroup": "3:cpu,cpuacct:/a\n", v1 + "a/cpu.cfs_quota_us": "150000\n", v1 + "a/cpu.cfs_period_us": "100000\n",
		}, 1.5},
		"version 1, no quota": {map[string]string{
			"proc/self/cgroup": "3:cpu,cpuacct:/\n", v1 + "cpu.cfs_quota_us": "-1\n", v1 + "cpu.cfs_period_us": "100000\n",
		}, math.Inf(1)},
		"zero":     {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "cpu.max": "0 0\n"}, math.Inf(1)},
		"no words": {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "cpu.max": "much\n"}, math.Inf(1)},
		"no Linux": {nil, math.Inf(1)},
	} {
		if got := quota(system(c.files)); got != c.want {
			t.Errorf("%s: got %v processors, want %v", name, got, c.want)
		}
	}
}

// N-09: work is seen in the processor time where the system tells it, and memory is that of this process.
func TestTheUseOfThisProcessIsRead(t *testing.T) {
	before, processors, known := Processor()
	for n := 0; ; n++ {
		after, _, _ := Processor()
		if !known || after >= before+10*time.Millisecond {
			break
		}
		if n > 1e8 {
			t.Fatalf("processor time after much work: got %v, before %v", after, before)
		}
	}
	if known != (runtime.GOOS != "plan9" && runtime.GOARCH != "wasm") || processors <= 0 || processors > float64(runtime.GOMAXPROCS(0)) {
		t.Errorf("got %v processors, known %v", processors, known)
	}
	if m := Process(); m.Used < 1<<20 || m.Used > 1<<40 {
		t.Errorf("got %+v, want between 1 MiB and 1 TiB in use", m)
	}
}

func FuzzGroupMemory(f *testing.F) {
	f.Add("0::/a\n4:memory:/b\n", "1000", "700", "inactive_file 100\n")
	f.Fuzz(func(t *testing.T, groups, limit, used, stat string) {
		m, err := groupMemory(system(map[string]string{
			"proc/self/cgroup": groups, "sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": used, "sys/fs/cgroup/memory.stat": stat,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": limit, "sys/fs/cgroup/memory/memory.usage_in_bytes": used, "sys/fs/cgroup/memory/memory.stat": stat,
		}))
		if m.Used < 0 || m.Limit < 0 || err != nil && m != (Memory{}) {
			t.Errorf("got %+v and error %v", m, err)
		}
	})
}
