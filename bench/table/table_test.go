package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/internal/report/reporttest"
)

func TestMain(m *testing.M) {
	pageThroughIfAsked() // the process that pages through a file is this program too
	flag.Parse()
	os.Exit(m.Run())
}

// short is what makes a run take little time.
var short = []string{"-contenders", "filetable,sqlite", "-callers", "1,3", "-rounds", "1", "-for", "10ms", "-stored", "1000", "-many", "2500"}

// folder returns one in memory, if that is possible: the tests are not about the disk.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "bench-table") //nolint:usetesting // TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestEveryCallIsMeasured: the table and the page have a figure for every call and contender, and say what a million entities
// take.
func TestEveryCallIsMeasured(t *testing.T) {
	written := reporttest.NewPage(t, "table")
	var out strings.Builder
	if err := run(t.Context(), append(short, "-dir", folder(t), "-page", written.Path), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text := checkPage(t, written.Path)
	for _, w := range works {
		for _, callers := range []int{1, 3} {
			row := fmt.Sprintf(`(?m)^\| %s \| %d \| %d \| [1-9][0-9]* \| [1-9][0-9]* \| × [0-9.]+ \|$`, w.name, w.call, callers)
			if !regexp.MustCompile(row).MatchString(out.String()) || !regexp.MustCompile(row).MatchString(text) {
				t.Errorf("got the table\n%s\nwant a row like %s, and on the page", out.String(), row)
			}
		}
	}
	if !strings.Contains(text, "\n2500 entities of some 300 bytes") {
		t.Errorf("got the page\n%s\nwant what 2500 entities take", text)
	}
}

// checkPage returns a page of which only what is between the marks was replaced.
func checkPage(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	if !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "\nafter\n") || strings.Contains(text, "\nold\n") {
		t.Errorf("page: got\n%s\nwant only what is between the marks replaced", text)
	}
	return text
}

// TestAzuriteIsMeasuredOrLeftOut: it is left out with a line that says why, and the others are measured.
func TestAzuriteIsMeasuredOrLeftOut(t *testing.T) {
	var out strings.Builder
	args := []string{"-contenders", "filetable,azurite", "-callers", "2", "-rounds", "1", "-for", "10ms", "-stored", "1000", "-many", "0", "-dir", folder(t)}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	left, measured := strings.Contains(out.String(), "Left out: not installed: Azurite"), strings.Contains(out.String(), "filetable to azurite")
	if left == measured || left && strings.Contains(os.Getenv("MILLRACE_REQUIRE"), "azurite") || !strings.Contains(out.String(), "\n| delete | 100 | 2 | ") {
		t.Errorf("got\n%s\nwant Azurite's figures, or that it was left out", out.String())
	}
}

// TestContendersKeepWhatTheyAreGiven: each finds what was inserted, in whole pages, and no longer what was removed.
func TestContendersKeepWhatTheyAreGiven(t *testing.T) {
	for _, c := range contenders[:2] {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.open(folder(t))
			if err != nil {
				t.Fatal(err)
			}
			m := &measured{target: s}
			if err := m.fill(t.Context(), 2*pageSize); err != nil {
				t.Fatal(err)
			}
			m.stored = m.inserted.Load()
			if n, err := m.readPage(t.Context()); n != pageSize || err != nil {
				t.Errorf("page: got %d entities, %v", n, err)
			}
			if err := s.insert(t.Context(), entitiesFrom(0, 1)); err == nil {
				t.Error("insert of what exists: got no error")
			}
			_, one := m.removeOne(t.Context())
			align := m.align(t.Context())
			_, group := m.removeGroup(t.Context())
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
				_, err = m.removeGroup(t.Context())
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

func TestMediansAreOfTheRounds(t *testing.T) {
	r := &results{rates: map[cell][]float64{{"a", 1, 0}: {9, 1, 5}, {"a", 1, 1}: {4, 2}}}
	for i, want := range []float64{5, 3, 0} {
		if got := r.median(cell{"a", 1, i}); got != want {
			t.Errorf("%d: got %v, want %v", i, got, want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{{"-contenders", "nobody"}, {"-callers", "0"}, {"-callers", "many"}, {"-rounds", "0"}, {"-for", "0"}, {"-stored", "10"}, {"-many", "-1"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
}
