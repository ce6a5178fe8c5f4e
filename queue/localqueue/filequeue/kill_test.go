package filequeue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

var kills = flag.Int("kills", 8, "number of times that TestAKillLosesNothingAcknowledged kills its child process")

// fate is the state of a text according to the lines of a child.
type fate int

const (
	unknown fate = iota // at most an enqueue that was not acknowledged
	present
	perhaps // a change was begun and not acknowledged
	gone
)

// ledger has the texts that must be in a directory, according to what was acknowledged.
type ledger struct {
	fates    map[string]fate
	replaced map[string]string // new text to old: begun and not acknowledged
}

// read reads one line of a child.
func (l *ledger) read(line string) error {
	fields := strings.Fields(line)
	switch {
	case line == "opening":
	case len(fields) == 2 && fields[0] == "+":
		l.fates[fields[1]] = present
	case len(fields) == 2 && fields[0] == "?":
		l.fates[fields[1]] = perhaps
	case len(fields) == 2 && fields[0] == "-":
		l.fates[fields[1]] = gone
	case len(fields) == 3 && fields[0] == ">":
		l.fates[fields[1]], l.fates[fields[2]] = perhaps, perhaps
		l.replaced[fields[2]] = fields[1]
	case len(fields) == 3 && fields[0] == "=":
		l.fates[fields[1]], l.fates[fields[2]] = gone, present
		delete(l.replaced, fields[2])
	default:
		return fmt.Errorf("invalid line of a child: %q", line)
	}
	return nil
}

// check compares the directory with the ledger, and continues with the texts in the directory.
func (l *ledger) check(t *testing.T, dir string) {
	t.Helper()
	there := textsIn(t, dir)
	for text, fate := range l.fates {
		switch {
		case fate == present && !there[text]:
			t.Errorf("%s was enqueued and is lost", text)
		case fate == gone && there[text]:
			t.Errorf("%s was deleted and is back", text)
		}
	}
	for text, old := range l.replaced {
		if l.fates[text] == perhaps && l.fates[old] == perhaps && there[text] == there[old] {
			t.Errorf("%s was being replaced by %s: got both present %v, want exactly one", old, text, there[text])
		}
	}
	clear(l.replaced)
	for text := range l.fates {
		l.fates[text] = gone
	}
	for text := range there {
		l.fates[text] = present
	}
}

// textsIn reads a directory, which must be sound.
func textsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if f := s.Found(); f.Damaged > 0 {
		t.Errorf("damage after a kill: got %v, want none", f.Damage)
	}
	saved, view := loaded(t, s)
	defer view.Close()
	texts := map[string]bool{}
	if saved.Messages == nil {
		return texts
	}
	for m := range saved.Messages {
		text, err := view.Text(m.MessageKey)
		if err != nil {
			t.Fatal(err)
		}
		if texts[text] {
			t.Errorf("message %s is present twice", text)
		}
		texts[text] = true
	}
	return texts
}

// TestAKillLosesNothingAcknowledged repeatedly kills a process that works on one directory: no
// acknowledged message may be lost, and no deleted one may reappear.
func TestAKillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	l := &ledger{fates: map[string]fate{}, replaced: map[string]string{}}
	lines := 0
	for generation := range *kills {
		lines += l.kill(t, dir, generation)
		l.check(t, dir)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d lines, %d texts are left", *kills, lines, len(l.fates))
	if lines == 0 {
		t.Error("the children acknowledged nothing")
	}
}

// kill lets a child print some lines, kills it, and reads everything that it printed.
func (l *ledger) kill(t *testing.T, dir string, generation int) (lines int) {
	t.Helper()
	c, in := startTask(t, "work", dir, strconv.Itoa(generation))
	until := 1 + rand.IntN(300)
	if generation%4 == 3 {
		until = 1 // while it opens
	}
	for in.Scan() {
		if err := l.read(in.Text()); err != nil {
			t.Error(err)
		}
		if lines++; lines == until {
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = c.Wait() // it was killed
	if lines < until {
		t.Fatalf("the child ended by itself after %d lines, want %d", lines, until)
	}
	return lines
}
