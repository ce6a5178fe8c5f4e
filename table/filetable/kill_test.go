package filetable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/table"
)

// The variables that make the test binary write to a file until it is killed.
const (
	writeVariable      = "FILETABLE_TEST_WRITE" // the file
	generationVariable = "FILETABLE_TEST_GENERATION"
)

// writers is the number of concurrent writers in a child process, which share its commits. Each has a partition
// of its own, so that its lines are in the order of events.
const writers = 8

// groupSize is how many entities a group inserts, updates and deletes.
const groupSize = 5

// writeUntilKilled makes changes, and prints what it is about to do and what was confirmed.
func writeUntilKilled(path, generation string) error {
	db, err := Open(path, nil)
	if err != nil {
		return err
	}
	s, err := db.Table("kept")
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failures := make([]error, writers)
	for i := range writers {
		all.Go(func() { failures[i] = writeForever(s, fmt.Sprintf("%s-%d", generation, i), i%2 == 0) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// writeForever inserts, updates and deletes groups or single entities. A line is a verb, the row or the first row of a
// group, and the value: "?" before a change, "=" after it was confirmed. The value "-" is a deletion.
func writeForever(s table.Store, partition string, groups bool) error {
	for n := 0; ; n++ {
		first := fmt.Sprintf("%s/%06d", partition, n)
		for _, value := range []string{"inserted", "updated", "-"} {
			if value == "-" && n%2 == 0 {
				continue // it stays
			}
			say("? %s %s %v", first, value, groups)
			if err := writeOnce(s, partition, n, value, groups); err != nil {
				return err
			}
			say("= %s %s %v", first, value, groups)
		}
	}
}

// say prints a line in one write, which a pipe keeps whole among concurrent writers.
func say(format string, args ...any) {
	if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
		os.Exit(0) // the test has ended
	}
}

func writeOnce(s table.Store, partition string, n int, value string, group bool) error {
	ctx := context.Background()
	var changes []table.Change
	for part := range groupSize {
		e := entity(partition, fmt.Sprintf("%06d.%d", n, part), value)
		e.ETag = table.Any
		switch value {
		case "inserted":
			changes = append(changes, table.Inserting(e))
		case "updated":
			changes = append(changes, table.Updating(e))
		default:
			changes = append(changes, table.Deleting(e.Key, table.Any))
		}
		if !group {
			break
		}
	}
	_, err := s.Apply(ctx, changes)
	return err
}

// ledger has what the lines of the children say of each group, or entity alone.
type ledger map[string]*expected

type expected struct {
	confirmed string // its value; "" if it was not inserted, "-" if it was deleted
	begun     string // a change that was not confirmed; "" if there is none
	group     bool
}

func (l ledger) read(t *testing.T, line string) {
	fields := strings.Fields(line)
	if len(fields) != 4 {
		t.Fatalf("invalid line of a child: %q", line)
	}
	e := l[fields[1]]
	if e == nil {
		e = &expected{group: fields[3] == "true"}
		l[fields[1]] = e
	}
	if fields[0] == "?" {
		e.begun = fields[2]
		return
	}
	e.confirmed, e.begun = fields[2], ""
}

// check compares the file with the ledger, and goes on with what is in the file.
func (l ledger) check(t *testing.T, path string) {
	t.Helper()
	db, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, db)
	found := map[string][]string{} // the values of the entities of each
	for e, err := range table.All(t.Context(), tableOf(t, db, "kept"), table.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		row, _, _ := strings.Cut(e.Row, ".")
		key := e.Partition + "/" + row
		found[key] = append(found[key], e.Text("Text"))
	}
	for key, values := range found {
		if l[key] == nil {
			t.Errorf("%s has %v, and nobody has written it", key, values)
		}
	}
	for key, want := range l {
		got := "-"
		for i, value := range found[key] {
			if i > 0 && value != found[key][0] {
				t.Errorf("%s was changed in part: %v", key, found[key])
			}
			got = value
		}
		if n := len(found[key]); want.group && n != 0 && n != groupSize {
			t.Errorf("%s has %d entities, want all %d or none", key, n, groupSize)
		}
		before := want.confirmed
		if before == "" {
			before = "-"
		}
		if got != before && (want.begun == "" || got != want.begun) {
			t.Errorf("%s is %q, want %q as confirmed, or %q as begun", key, got, before, want.begun)
		}
		want.confirmed, want.begun = got, ""
	}
}

// TestAKillLosesNothingConfirmed kills a process that writes, again and again: every confirmed change is in the file,
// and every group is whole.
func TestAKillLosesNothingConfirmed(t *testing.T) {
	path, l, lines := scratch(t), ledger{}, 0
	for generation := range 12 {
		output := make(chan string, 1<<16)
		p := killtest.Start(t, output, writeVariable+"="+path, generationVariable+"="+strconv.Itoa(generation), "GORACE=atexit_sleep_ms=0")
		for range 1 + rand.IntN(300) {
			l.read(t, <-output)
			lines++
		}
		p.Kill(t)
		close(output)
		for line := range output {
			l.read(t, line)
			lines++
		}
		l.check(t, path)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d lines", lines)
}
