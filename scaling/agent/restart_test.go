package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// halfAnHour lets work come and go, and returns what the platform was asked for. Every period a new
// agent takes over, killed or stopped, and one in the first second.
func halfAnHour(t *testing.T, folder string, period time.Duration, kill bool) (changes []int) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		o := agent.Options{Folder: folder}
		pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow}
		pool.Policy.DownAfter = 5 * time.Minute
		a := start(t, o, pool)
		end := func() {
			if kill {
				history := files(t, folder)
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				history.restore(t) // as a kill leaves it
			} else if err := a.stop(); err != nil {
				t.Error(err)
			}
			if errs := a.errors(); len(errs) != 0 {
				t.Errorf("errors: %v", errs)
			}
		}
		for second := range 2100 {
			if second == 60 || second == 900 {
				fill(t, q, 400)
			}
			take(t, q, p.get())
			after(time.Second)
			if second%int(period.Seconds()) == 0 {
				end()
				a = start(t, o, pool)
			}
		}
		end()
		changes = p.calls()
	})
	return changes
}

// folderFiles are the files of a folder by name.
type folderFiles struct {
	folder string
	texts  map[string][]byte
}

func files(t *testing.T, folder string) folderFiles {
	t.Helper()
	f := folderFiles{folder, map[string][]byte{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f.texts[filepath.Base(path)] = text
	}
	return f
}

func (f folderFiles) restore(t *testing.T) {
	t.Helper()
	for name := range files(t, f.folder).texts {
		if err := os.Remove(filepath.Join(f.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range f.texts {
		if err := os.WriteFile(filepath.Join(f.folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// reversals counts changes in another direction than the one before.
func reversals(n int, asked []int) (count int) {
	up := true
	for _, to := range asked {
		if (to > n) != up {
			count++
			up = !up
		}
		n = to
	}
	return count
}

// an agent that is stopped and started again every few minutes, or killed and forgets the last minute, changes exactly what
// one changes that is started again only in the first second: all of them measure at the same times then.
func TestAKilledAgentDoesNotFlap(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many kills")
	}
	want := halfAnHour(t, t.TempDir(), time.Hour, false)
	if reversals(1, want) != 3 {
		t.Fatalf("without a kill: got Scale %v, want two peaks", want)
	}
	for period, kill := range map[time.Duration]bool{110 * time.Second: false, 130 * time.Second: true} {
		if got := halfAnHour(t, t.TempDir(), period, kill); !slices.Equal(got, want) {
			t.Errorf("ended every %v, killed: %v: got Scale %v, want %v", period, kill, got, want)
		}
	}
}

// what an agent added just before it was killed, and did not write down, is not removed at once.
func TestWhatAKilledAgentAddedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow}
		a := start(t, agent.Options{Folder: folder}, pool)
		after(20*time.Minute + time.Second)
		history := files(t, folder)
		fill(t, q, 600)
		after(40 * time.Second)
		take(t, q, 600)
		if err := a.stop(); err != nil || p.get() != 10 {
			t.Fatal(err, p.get())
		}
		history.restore(t)
		a = start(t, agent.Options{Folder: folder}, pool)
		after(5 * time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("5 minutes after the kill: got %d instances, want 10", n)
		}
		after(6 * time.Minute)
		if n := p.get(); n != 1 {
			t.Errorf("11 minutes after the kill: got %d instances, want 1", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// without its history an agent removes nothing until it has seen enough, and with it it removes what is due.
func TestAnAgentWithoutHistoryRemovesNothingAtFirst(t *testing.T) {
	for name, c := range map[string]struct {
		lose bool
		want int
	}{"with its history": {false, 1}, "without it": {true, 8}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder := t.TempDir()
				q := created(t, must(localqueue.New(nil)), "jobs")
				p := &platform{n: 8}
				pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow}
				a := start(t, agent.Options{Folder: folder}, pool)
				after(9*time.Minute + 30*time.Second)
				if err := a.stop(); err != nil || p.get() != 8 {
					t.Fatal(err, p.get())
				}
				if c.lose {
					folder = t.TempDir()
				}
				a = start(t, agent.Options{Folder: folder}, pool)
				after(time.Minute)
				if n := p.get(); n != c.want {
					t.Errorf("a minute after the restart: got %d instances, want %d", n, c.want)
				}
				after(11 * time.Minute)
				if n := p.get(); n != 1 {
					t.Errorf("12 minutes after the restart: got %d instances, want 1", n)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A file that cannot be used is reported, moved aside, and hurts nothing.
func TestAFileThatIsNoHistoryIsMovedAside(t *testing.T) {
	whole := writtenHistory(t)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for name, text := range map[string][]byte{
		"an empty file":         {},
		"another program's":     []byte("dear diary\n"),
		"another pool's":        bytes.Replace(whole, []byte(`"pool"`), []byte(`"loop"`), 2),
		"a newer version's":     bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1),
		"without its end":       bytes.Join(lines[:len(lines)-2], nil),
		"within a line":         whole[:len(whole)*2/3],
		"without a line":        append(bytes.Clone(lines[0]), bytes.Join(lines[2:], nil)...),
		"with another line":     bytes.Replace(whole, []byte(`"instances":1`), []byte(`"instances":"`), 1),
		"with zeros at its end": append(bytes.Clone(whole[:len(whole)/2]), make([]byte, len(whole)/2)...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder := t.TempDir()
				path := filepath.Join(folder, "pool.history.jsonl")
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				q := created(t, must(localqueue.New(nil)), "jobs")
				a := start(t, agent.Options{Folder: folder}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
				after(time.Minute)
				errs := a.errors()
				if len(errs) != 1 || !strings.Contains(errs[0].Error(), "pool pool: read the history: the file is not a history of this pool") || !strings.Contains(errs[0].Error(), path+".unusable") {
					t.Errorf("errors: %v", errs)
				}
				if aside, err := os.ReadFile(path + ".unusable"); err != nil || !bytes.Equal(aside, text) {
					t.Errorf("what was moved aside: %q, %v", aside, err)
				}
				if len(a.of("pool")) != 7 {
					t.Errorf("got %d decisions in a minute, want 7", len(a.of("pool")))
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				b := start(t, agent.Options{Folder: folder}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
				after(time.Second)
				if err := b.stop(); err != nil || len(b.errors()) != 0 {
					t.Errorf("the next start: %v, %v", err, b.errors())
				}
			})
		})
	}
}

// A file that cannot be read is moved aside too, such as a folder in its place: it is neither overwritten nor in the way.
func TestAHistoryThatCannotBeReadIsMovedAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		path := filepath.Join(folder, "pool.history.jsonl")
		if err := os.MkdirAll(filepath.Join(path, "something"), 0o700); err != nil {
			t.Fatal(err)
		}
		q := created(t, must(localqueue.New(nil)), "jobs")
		a := start(t, agent.Options{Folder: folder}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
		after(5 * time.Minute)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if errs := a.errors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "it is now "+path+".unusable") {
			t.Errorf("got %d errors, want one that says where it is now: %v", len(errs), errs)
		}
		if _, err := os.Stat(filepath.Join(path+".unusable", "something")); err != nil {
			t.Errorf("what was moved aside: %v", err)
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte(`"samples":`)) {
			t.Errorf("the history: %v", err)
		}
	})
}

// writtenHistory is the file of an agent that ran for five minutes.
func writtenHistory(t *testing.T) (text []byte) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := created(t, must(localqueue.New(nil)), "jobs")
		a := start(t, agent.Options{Folder: folder}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
		after(5 * time.Minute)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		var err error
		if text, err = os.ReadFile(filepath.Join(folder, "pool.history.jsonl")); err != nil {
			t.Fatal(err)
		}
	})
	return text
}

// The history is replaced once a minute at most, with the samples since then appended, and a folder that does not accept it is
// reported.
func TestTheHistoryIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := created(t, must(localqueue.New(nil)), "jobs")
		a := start(t, agent.Options{Folder: folder, Interval: time.Second}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
		path := filepath.Join(folder, "pool.history.jsonl")
		var before os.FileInfo
		writes := 0
		for second := range 300 {
			after(time.Second)
			now, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(before, now) {
				writes++
				before = now
			}
			text := string(files(t, folder).texts["pool.history.jsonl"])
			if samples := strings.Count(text, `"at"`); samples < second || !strings.HasSuffix(text, fmt.Sprintf("{\"samples\":%d}\n", samples)) {
				t.Fatalf("after %d s: got %d samples, want one for each second and their number in the last line:\n%s", second, samples, text)
			}
		}
		if writes < 5 || writes > 6 {
			t.Errorf("in five minutes: got %d writes, want 5 or 6", writes)
		}
		a.errors()
		if err := os.Mkdir(filepath.Join(folder, "pool.history.jsonl.new"), 0o700); err != nil { // it cannot be written
			t.Fatal(err)
		}
		after(3 * time.Minute)
		errs := a.errors()
		if len(errs) < 2 || len(errs) > 4 || !strings.Contains(errs[0].Error(), "pool pool: keep the history: ") || !strings.Contains(errs[0].Error(), "full") {
			t.Errorf("errors in three minutes: %v", errs)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(before, now) {
			t.Errorf("the old file was not kept: %v", err)
		}
	})
}

// A folder that is deleted is made again, with the history, at the next write. While that fails, that is said once, and that it works
// again only when it does. Another agent that has made the folder meanwhile keeps it.
func TestAFolderThatIsDeletedIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "state")
		q := created(t, must(localqueue.New(nil)), "jobs")
		pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow}
		var log logText
		a := start(t, agent.Options{Folder: folder, Logger: slog.New(slog.NewTextHandler(&log, nil))}, pool)
		after(90 * time.Second)
		remove := func() {
			t.Helper()
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		after(time.Minute)
		if texts := files(t, folder).texts; len(texts) != 1 || log.String() != "" {
			t.Errorf("a minute later: got the files %v and the log %q, want the history and nothing", texts, log.String())
		}
		remove()
		if err := os.WriteFile(folder, nil, 0o600); err != nil { // it cannot be made
			t.Fatal(err)
		}
		after(2 * time.Minute)
		if failed, mended := strings.Count(log.String(), "keep the history"), strings.Count(log.String(), "works again"); failed != 1 || mended != 0 {
			t.Errorf("while it cannot be made: got\n%s\nwant one line about it", log.String())
		}
		remove()
		after(time.Minute)
		if texts := files(t, folder).texts; len(texts) != 1 || strings.Count(log.String(), "it works again: keep the history") != 1 {
			t.Errorf("when it can be made: got the files %v and the log\n%s\nwant the history and one line more", texts, log.String())
		}
		remove()
		b := start(t, agent.Options{Folder: folder}, pool)
		after(time.Minute)
		if errs := a.errors(); len(errs) == 0 || !errors.Is(errs[len(errs)-1], agent.ErrInUse) {
			t.Errorf("with another agent: got %v, want ErrInUse", errs)
		}
		for _, one := range []*running{b, a} {
			if err := one.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A folder that cannot be made, and one that another agent uses for the same pool, end Run.
func TestAFolderThatCannotBeUsedEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := created(t, must(localqueue.New(nil)), "jobs")
		pool := func(name string) agent.Pool { return agent.Pool{Name: name, Queues: []queue.Queue{q}} }
		a := start(t, agent.Options{Folder: folder}, pool("one"), pool("two"))
		after(time.Second)
		b := start(t, agent.Options{Folder: folder}, pool("three"), pool("two"))
		if err := <-b.done; !errors.Is(err, agent.ErrInUse) || !strings.Contains(err.Error(), "pool two") || !strings.Contains(err.Error(), folder) {
			t.Errorf("a second agent: got %v, want ErrInUse with pool and folder", err)
		}
		c := start(t, agent.Options{Folder: folder}, pool("three"))
		after(time.Second)
		if err := c.stop(); err != nil {
			t.Errorf("an agent for another pool: %v", err)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		d := start(t, agent.Options{Folder: folder}, pool("two"))
		after(time.Second)
		if err := d.stop(); err != nil {
			t.Errorf("after the first has stopped: %v", err)
		}
		file := filepath.Join(folder, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := <-start(t, agent.Options{Folder: filepath.Join(file, "below")}, pool("one")).done; err == nil || !strings.Contains(err.Error(), "create the folder of the history") {
			t.Errorf("a folder below a file: got %v", err)
		}
	})
}

// With a forecast the history of days is kept, in a file that is rarely written beside a small one.
func TestDaysAreKeptInAFileOfTheirOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("plays days")
	}
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := created(t, must(localqueue.New(nil)), "jobs")
		policy := slow
		policy.Forecast = true
		pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: policy}
		a := start(t, agent.Options{Folder: folder, Interval: 30 * time.Second}, pool)
		writes, before := 0, ""
		for range 5 * 60 {
			after(time.Minute)
			if now := string(files(t, folder).texts["pool.older.jsonl"]); now != before {
				writes++
				before = now
			}
		}
		if writes < 3 || writes > 5 {
			t.Errorf("writes of the large file in five hours: got %d, want about one an hour", writes)
		}
		if n := len(files(t, folder).texts["pool.history.jsonl"]); n > 80_000 {
			t.Errorf("the small file has %d bytes", n)
		}
		if err := a.stop(); err != nil || len(a.errors()) != 0 {
			t.Error(err, a.errors())
		}
		b := start(t, agent.Options{Folder: folder, Interval: 30 * time.Second}, pool)
		after(2 * time.Second)
		if err := b.stop(); err != nil || len(b.errors()) != 0 {
			t.Error(err, b.errors())
		}
		texts := files(t, folder).texts
		n := bytes.Count(texts["pool.older.jsonl"], []byte(`"at"`)) + bytes.Count(texts["pool.history.jsonl"], []byte(`"at"`))
		if n < 4*60+120-3 || n > 4*60+120+5 {
			t.Errorf("samples of five hours: got %d, want one a minute and twice as many in the last hour", n)
		}
	})
}
