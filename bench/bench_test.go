package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/waiting"
)

func TestMain(m *testing.M) {
	playRole() // children of the tests are this program too
	flag.Parse()
	os.Exit(m.Run())
}

// shortRuns are the smallest runs, with patterns of the rows that their tables must have.
var shortRuns = []struct {
	args string
	rows []string
}{
	{
		"load -tls false,true -handlers 0,20ms -latencies 0 -concurrency 64 -contenders ideal,millrace,millrace-http1,loop,loop-http1 -only handler20ms -rounds 1 -warm-up 20ms -for 100ms -size 128",
		[]string{`\| TCP \| 64 \| 20ms \| 0s \| 3200 \| ideal \| [1-9].* \| 1.00 \| `, `\| TLS \| 64 \| 20ms \| 0s \| 3200 \| millrace \| [1-9]`, `\| 3200 \| millrace \| [1-9]`, `\| 3200 \| millrace-http1 \| [1-9]`, `\| 3200 \| loop \| [1-9]`, `\| 3200 \| loop-http1 \| [1-9]`},
	},
	{
		"latency -rates 1:1ms,200:300ms -rounds 2 -round-trips 3 -warm-up 4",
		[]string{`\| 1 \| polling \| 2 \| 2 \|`, `\| 200 \| polling \| 2 \| JOBS \|`, `\| 200 \| bus \| 1 \| JOBS \|`, `\| 200 \| stream \| 2 \| JOBS \|`, `\| 200 \| nats \| 2 \| JOBS \|`,
			`\| 200 \| stream, groups of 40 \| 2 \| [1-9]`, `\| 200 \| stream, bodies .* in blobs \| 1 \| JOBS \|`, `\| [1-9][0-9.]* \| stream over TLS, half of its most \| 2 \| [1-9]`,
			`\| 200 \| stream, beside 4 workers with hung handlers \| 2 \| JOBS \|`, `\| 200 \| stream, beside 4 workers with hung connections \| 2 \| JOBS \|`},
	},
	{
		"pickup -slots 8 -reserve 2 -heavy 200ms -critical 1ms -rate 200 -window 300ms -rounds 2 -warm-up 4",
		[]string{`\| a reserve of 2 \| nothing \| JOBS \|`, `\| a reserve of 2 \| a flood \| JOBS \|.*× [0-9.]+ \|`, `\| weights alone \| nothing \| JOBS \|`, `\| weights alone \| a flood \| JOBS \|.*\| [1-9][0-9]* \|$`},
	},
	{
		"growth -messages 2000,100 -queues 3,2 -handlers 16,4 -rounds 2 -for 50ms -quiet 0",
		[]string{
			`\| messages waiting, in memory \| enqueued`, `\| messages waiting, on disk \|.* µs to open`, `\| 100 \| [1-9][0-9]* \| 1.00 \| [1-9][0-9]* \| 1.00 \|`,
			`\| 2000 \| [1-9][0-9]* \| [0-9.]+ \| [1-9]`, `\| queues \| goroutines`, `\| 3 \| [1-9][0-9.]* \|.*\| [1-9][0-9]* \| [0-9.]+ \|$`,
			`\| handlers \| jobs`, `\| 16 \| [1-9][0-9]* \| [0-9.]+ \| [0-9.]+ \|`,
		},
	},
	{
		"shards -shards 3,1 -rounds 2 -warm-up 0 -for 200ms -under-way 8",
		[]string{`\| 1 \| [1-9][0-9]* \| 1.00 \| [0-9.]+ \| [1-9].* %`, `\| 3 \| [1-9]`},
	},
	{
		"emulators -contenders memory,disk -connections 4 -rounds 1 -for 1ms -work enqueue,drain500",
		[]string{`\| enqueue \| 4 \| memory \| [1-9][0-9]* \| 1.0 \|`, `\| enqueue \| 4 \| disk \| [1-9]`, `\| drain500 \| 4 \| memory \| [1-9]`, `\| drain500 \| 4 \| disk \| [1-9]`},
	},
	{
		"send -rounds 2 -jobs 60 -concurrency 4",
		[]string{
			`\| post \| [1-9][0-9]* \| 1.00 \| [1-9][0-9]* \| 1.00 \| [0-9.]+ \| 1.000 \|`, `\| send \| [1-9].* \| 1.000 \|`, `\| send-http1 \| [1-9].* \| 1.000 \|`,
			`\| sendall \| [1-9].* \| 1.000 \|`, `\| sendall-http1 \| [1-9].* \| 1.000 \|`, `\| packed \| [1-9].* \| 0.017 \|`, `\| packed-http1 \| [1-9].* \| 0.017 \|`,
		},
	},
	{"peers -rounds 1 -jobs 90 -contenders asynq,asynq-disk,river,jetstream,jetstream-file,jetstream-disk,memory,memory-packed,disk,disk-packed,process", peerRows()},
	{
		"table -callers 1,3 -rounds 1 -for 10ms -stored 1000",
		[]string{
			`\| insert \| 1 \| 1 \| [1-9][0-9]* \| [1-9][0-9]* \| × [0-9.]+ \|`, `\| insert \| 100 \| 3 \| [1-9]`, `\| point read \| 1 \| 3 \| [1-9]`,
			`\| page \| 1000 \| 1 \| [1-9]`, `\| delete \| 1 \| 1 \| [1-9]`, `\| delete \| 100 \| 3 \| [1-9]`,
		},
	},
	{
		"scaling -only ^burst.*small$ -others 1",
		[]string{`\| burst from zero, small \| [A-Za-z][^|]+ \| [0-9.]+ \|`, `\| (\*\*)?agent: set by the SLA`, `\| (\*\*)?fixed instances: `, `\| (\*\*)?KEDA queueLength: `, `\| burst from zero, small \| 1 of 1 \|`},
	},
	{"billing -records 4000,2000 -batch 1000 -workers 1", []string{`\| 2000 \| [0-9.]+ \| [1-9]`, `\| 4000 \| [0-9.]+ \| [1-9]`}},
}

// peerRows returns the rows of the contenders that are installed.
func peerRows() []string {
	rows := []string{
		`\| NATS JetStream \| memory \| 90 \| RATE \| RATE \| RATE \|`, `\| NATS JetStream \| file.* \| 90 \| RATE \| RATE \| RATE \|`, `\| NATS JetStream with .* \| disk \| 18 \| RATE \| RATE \| RATE \|`,
		`\| Millrace, its server \| memory \| 90 \| RATE \| RATE \| RATE \|`, `\| Millrace, its server, packed \| memory \| 90 \| – \| RATE \| RATE \|`,
		`\| Millrace, its server with .-data. \| disk \| 90 \| RATE \| RATE \| RATE \|`, `\| Millrace, its server with .-data., packed \| disk \| 90 \| – \| RATE \| RATE \|`,
		`\| Millrace, its engine without a server \| memory \| 450 \| RATE \| RATE \| RATE \|`,
	}
	if _, err := exec.LookPath("redis-server"); err == nil || azuritetest.Required("redis") {
		rows = append(rows, `\| asynq, Redis \| memory \| 90 \| RATE \| – \| RATE \|`, `\| asynq, Redis with .* \| disk \| 90 \| RATE \| – \| RATE \|`)
	}
	if _, err := findPostgres(); err == nil || azuritetest.Required("postgres") {
		rows = append(rows, `\| river, PostgreSQL \| disk \| 90 \| RATE \| RATE \| RATE \|`)
	}
	for i := range rows {
		rows[i] = strings.ReplaceAll(rows[i], "RATE", `(\*\*)?[1-9][0-9]*(\*\*)?`)
	}
	return rows
}

func TestEveryBenchmarkRuns(t *testing.T) {
	if dir, err := os.MkdirTemp("/dev/shm", "bench"); err == nil { //nolint:usetesting // the tests are not about the disk
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		t.Setenv("TMPDIR", dir)
		if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL started by root runs as another user
			t.Fatal(err)
		}
	}
	jobs := len(schedule(200, 300*time.Millisecond, 1)) + len(schedule(200, 300*time.Millisecond, 2))
	for _, c := range shortRuns {
		name, _, _ := strings.Cut(c.args, " ")
		t.Run(name, func(t *testing.T) {
			if testing.Short() && (name == "billing" || name == "emulators" || name == "peers") {
				t.Skip("it builds programs")
			}
			path := newPage(t, name)
			var out strings.Builder
			if err := run(t.Context(), append(strings.Fields(c.args), "-page", path), &out, io.Discard); err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + out.String())
			page := read(t, path)
			if !strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "\nafter\n") || strings.Contains(page, "\nold\n") || !strings.Contains(page, out.String()) {
				t.Errorf("page: got\n%s\nwant only what is between the marks replaced, by the table", page)
			}
			for _, row := range c.rows {
				row = strings.ReplaceAll(row, "JOBS", fmt.Sprint(jobs))
				if !regexp.MustCompile("(?m)^.*" + row).MatchString(out.String()) {
					t.Errorf("got\n%s\nwant a row like %s", out.String(), row)
				}
			}
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "millrace-bench-*")); err != nil || len(left) > 0 {
				t.Errorf("files left: got %v, %v, want none", left, err)
			}
		})
	}
}

// newPage makes a page with the marks of a benchmark.
func newPage(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	begin, end := page{name: name}.marks()
	if err := os.WriteFile(path, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMistakesAreNamed: wrong input is refused before anything happens, in one line.
func TestMistakesAreNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.md")
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := errors.Join(os.WriteFile(empty, nil, 0o644), os.WriteFile(bad, []byte("# handling: 1s\narrivals\nmany\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"", "which benchmark?"},
		{"speed", `unknown benchmark "speed"`},
		{"load now", `unexpected argument "now"`},
		{"load -page " + empty, "written by bench load"},
		{"load -page none.md", "no such file"},
		{"load -handlers x", "-handlers"},
		{"load -contenders nobody", `unknown "nobody": choose from [ideal`},
		{"load -only (", "error parsing regexp"},
		{"load -only nothing", "no cell matches"},
		{"load -tls perhaps", "-tls"},
		{"load -concurrency 0", "write a value from 1"},
		{"load -for 0", "write a value from"},
		{"latency -transports pigeon", "unknown"},
		{"latency -rates 100", "such as 100:10s"},
		{"latency -rates NaN:1s", "such as 100:10s"},
		{"latency -rates 0:1s", "such as 100:10s"},
		{"latency -rates 1:0s", "such as 100:10s"},
		{"latency -round-trips 0", "write a value from 1"},
		{"growth -messages 0", "write a value from 1"},
		{"growth -size 0", "write a value from 1"},
		{"pickup -rate NaN", "write a value from"},
		{"pickup -reserve 0", "write a value from 1"},
		{"pickup -reserve 63", "is more than 62"},
		{"pickup -reserve 4 -rate 1000 -critical 5ms", "at most half of the 4 of -reserve"},
		{"shards -shards 65", "write a value from 1 to 64"},
		{"shards -limit -1", "write a value from 0"},
		{"emulators -work sleep", "unknown"},
		{"emulators -connections x", "write a value from 1"},
		{"peers -contenders nobody", `unknown "nobody": choose from [asynq`},
		{"peers -jobs 0", "write a value from 1"},
		{"table -callers many", "write a value from 1"},
		{"table -stored 10", "write a value from 1000"},
		{"scaling -trace none.csv", "no such file"},
		{"scaling -trace " + bad, "bad.csv:3: arrivals is"},
		{"scaling -only nothing", "no trace has such a name"},
		{"billing -records 0", "write a value from 1"},
		{"billing -colour", "flag provided but not defined"},
	} {
		err := run(t.Context(), strings.Fields(c[0]), io.Discard, io.Discard)
		if !errors.As(err, new(mistake)) || !strings.Contains(err.Error(), c[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("bench %s: got %v, want a mistake in one line with %q", c[0], err, c[1])
		}
	}
	if got := read(t, empty); got != "" {
		t.Errorf("a page without marks: got %q, want it as it was", got)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range commands {
		var overview, help strings.Builder
		err := errors.Join(run(t.Context(), []string{"-h"}, &overview, io.Discard), run(t.Context(), []string{c.name, "-h"}, &help, io.Discard))
		if err != nil || !strings.Contains(overview.String(), "  "+c.name+" ") || !strings.Contains(help.String(), "bench "+c.name+" [flags]") || !strings.Contains(help.String(), "-page file") {
			t.Errorf("%s: got %v,\n%s\n%s", c.name, err, overview.String(), help.String())
		}
	}
}

// TestAnInterruptLeavesNothing: children end and files go.
func TestAnInterruptLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL started by root runs as another user
		t.Fatal(err)
	}
	for _, args := range []string{
		"load -handlers 0 -concurrency 16", "latency -rates 1:1h", "shards -for 1h", "table -for 1h -callers 1",
		"peers -jobs 1000000 -contenders jetstream-file", "peers -jobs 1000000 -contenders asynq-disk,process", "peers -jobs 1000000 -contenders river,process",
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		measuring := writerFunc(func(b []byte) (int, error) {
			time.AfterFunc(100*time.Millisecond, interrupt)
			return len(b), nil
		})
		if err := run(ctx, strings.Fields(args), io.Discard, measuring); !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Errorf("%s: got %v, want the end of the context", args, err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%s: got %v, %v left, want no files", args, left, err)
		}
	}
}

// TestAPeerThatIsNotInstalledIsSkipped: the page says so, and the others are measured.
func TestAPeerThatIsNotInstalledIsSkipped(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("AZURITE", "")
	path := newPage(t, "peers")
	var out strings.Builder
	if err := run(t.Context(), []string{"peers", "-jobs", "10", "-rounds", "2", "-contenders", "asynq,azurite,process", "-page", path}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "\n") - 2; rows != 1 || !strings.Contains(out.String(), "| Millrace, its engine without a server | memory | 50 |") {
		t.Errorf("got\n%s\nwant one row, of the engine", out.String())
	}
	page := read(t, path)
	for _, want := range []string{"\nasynq was skipped: ", "\nazurite was skipped: no Azurite here"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("got\n%s\nwant one line that begins with %q", page, want)
		}
	}
}

// TestAPeerThatWinsIsBold: its figures are compared with those of Millrace with the same durability.
func TestAPeerThatWinsIsBold(t *testing.T) {
	turn := func(name, like string, sent, bulk, handled int64) *peerTurn {
		t := &peerTurn{peer: peer{name: name, title: name, kept: "memory", like: like}}
		for n, into := range map[int64]*samples{sent: &t.sent, bulk: &t.bulk, handled: &t.handled} {
			if n > 0 {
				*into = samples{{messages: n, wall: time.Second}}
			}
		}
		return t
	}
	all := []*peerTurn{
		turn("a", "memory", 11, 0, 29), turn("b", "disk", 9, 4, 31), turn("c", "disk", 5, 6, 40),
		turn("memory", "", 10, 20, 30), turn("disk", "", 8, 5, 40),
	}
	got := peersTable(all)
	for _, want := range []string{
		"| a | memory | 29 | **11** | – | 29 |", "| b | memory | 31 | **9** | 4 | 31 |", "| c | memory | 40 | 5 | **6** | 40 |",
		"| memory | memory | 30 | 10 | 20 | 30 |",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got\n%s\nwant a row %s", got, want)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestMediansAreOfTheRounds(t *testing.T) {
	for _, c := range []struct {
		messages []int64
		want     float64
	}{{nil, 0}, {[]int64{5}, 5}, {[]int64{9, 1, 5}, 5}, {[]int64{4, 2}, 3}} {
		var s, twice samples
		for _, n := range c.messages {
			s = append(s, sample{messages: n, wall: time.Second})
			twice = append(twice, sample{messages: 2 * n, wall: time.Second})
		}
		if got := s.median(sample.perSecond); got != c.want {
			t.Errorf("%v: got %v, want %v", c.messages, got, c.want)
		}
		if got := twice.times(s, sample.perSecond); len(s) > 0 && got != 2 {
			t.Errorf("twice %v: got %v times, want 2", c.messages, got)
		}
	}
}

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{{hundred, 50, 50}, {hundred, 95, 95}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred[:3], 50, 2}, {hundred[:10], 99, 10}} {
		if got := percentile(c.sorted, c.percent); got != c.want {
			t.Errorf("%d %% of %d: got %d, want %d", c.percent, len(c.sorted), got, c.want)
		}
	}
}

// TestTheScheduleIsTheSameForAll: it depends only on the seed, is in order, and has about as many jobs as asked
// for.
func TestTheScheduleIsTheSameForAll(t *testing.T) {
	due := schedule(1000, 10*time.Second, 7)
	if !slices.Equal(due, schedule(1000, 10*time.Second, 7)) || slices.Equal(due, schedule(1000, 10*time.Second, 8)) {
		t.Error("got another schedule for the same seed, or the same for another")
	}
	if n := len(due); n < 9500 || n > 10_500 || !slices.IsSorted(due) || due[n-1] >= 10*time.Second {
		t.Errorf("got %d jobs up to %v, want about 10,000 in 10 s", n, due[n-1])
	}
	if one := schedule(0.001, time.Millisecond, 1); len(one) != 1 || one[0] > time.Millisecond {
		t.Errorf("a window that is too short: got %v, want one job in it", one)
	}
}

// TestAnotherProcessReadsTheSameClock: its readings lie between ours.
func TestAnotherProcessReadsTheSameClock(t *testing.T) {
	s, err := startServer(serverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	a := assignment{Location: s.started.Locations[0], Transport: "polling", Queue: "clock", Jobs: 1}
	p, closing, err := a.sender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	w, err := transports[0].consume(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer w.stop()
	before := now()
	if _, err := send(t.Context(), transports[0].send(p), 0, []time.Duration{0}); err != nil {
		t.Fatal(err)
	}
	begun, err := w.starts(t.Context(), 1)
	if after := now(); err != nil || begun[0] < before || begun[0] > after {
		t.Errorf("a handler in another process: got %v, %v; want it between %d and %d", begun, err, before, after)
	}
}

// TestTheLimitHolds: no more than a third of the limit comes from sending to deleting, but for what an
// unused queue has saved for its first second. It continues until the limit has refused requests and let jobs through,
// however slow the machine is.
func TestTheLimitHolds(t *testing.T) {
	const limit, shards = 15, 2
	s, err := startServer(serverOptions{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	w, err := startShards(t.Context(), s.started.Locations[0], shards, 64)
	if err != nil {
		t.Fatal(errors.Join(err, s.stop()))
	}
	var seen sample
	most := 0.0
	for err == nil && (seen.messages == 0 || seen.limited == 0) && float64(seen.messages) <= most {
		waiting.For(100*time.Millisecond, t.Context().Done())
		seen, err = w.look(s)
		most = shards * (limit*(time.Since(begin).Seconds()+1) + 3*32) / 3 // a get may leave a debt of a batch
	}
	if err = errors.Join(err, w.stop(), s.stop()); err != nil {
		t.Fatal(err)
	}
	if float64(seen.messages) > most {
		t.Errorf("got %d jobs, %d requests refused; want at most %.0f jobs", seen.messages, seen.limited, most)
	}
}

// TestADrainDeletes: drained messages are deleted from the queue.
func TestADrainDeletes(t *testing.T) {
	s, err := startServer(serverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	c, err := openQueueClient(t.Context(), s.started.Locations[0], 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.put(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	done, err := c.drain(t.Context(), 200)
	if err != nil || done < 200 || done > 300 {
		t.Fatalf("drained: got %d, %v; want 200 to 300", done, err)
	}
	p, err := c.queue.GetProperties(t.Context(), nil)
	if err != nil || *p.ApproximateMessagesCount != 300-done {
		t.Errorf("messages left: got %d, %v; want %d", *p.ApproximateMessagesCount, err, 300-done)
	}
}

// TestStoresKeepWhatTheyAreGiven: each finds what was inserted, in whole pages, and no longer what was removed.
func TestStoresKeepWhatTheyAreGiven(t *testing.T) {
	for _, k := range tableKinds {
		t.Run(k.name, func(t *testing.T) {
			s, err := k.open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			m := &measuredTable{target: s}
			if err := m.fill(t.Context(), 2*pageSize); err != nil {
				t.Fatal(err)
			}
			m.stored = m.inserted.Load()
			if err := m.readPage(t.Context(), pageSize); err != nil {
				t.Error(err)
			}
			if err := s.insert(t.Context(), entitiesFrom(0, 1)); err == nil {
				t.Error("insert of what exists: got no error")
			}
			one := m.removeSome(t.Context(), 1)
			align := m.align(t.Context())
			group := m.removeSome(t.Context(), groupSize)
			if err := errors.Join(one, align, group); err != nil || m.removed.Load() != 2*groupSize {
				t.Errorf("removed %d, %v, want two groups", m.removed.Load(), err)
			}
			if n, err := s.page(t.Context(), keyOf(0)); n != pageSize || err != nil {
				t.Errorf("page after the removed: got %d entities, %v", n, err)
			}
			if err := s.get(t.Context(), keyOf(0)); err == nil {
				t.Error("get of what was removed: got no error")
			}
			for !errors.Is(err, errUsedUp) && err == nil {
				err = m.removeSome(t.Context(), groupSize)
			}
			if n, failed := s.page(t.Context(), keyOf(0)); n != 0 || failed != nil || !errors.Is(err, errUsedUp) {
				t.Errorf("after all were removed: got %d entities, %v, %v", n, failed, err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
