package filequeue

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
)

var kills = flag.Int("kills", 20, "how often TestKilledAtAnyMoment kills a process")

// ledger is the last that a process said of each text.
type ledger map[string]byte

// line takes one line of a process. Whoever takes a message out may say so before the
// one who put it in does.
func (l ledger) line(line string) {
	what, text, _ := strings.Cut(line, " ")
	if what != "+" || l[text] == 0 {
		l[text] = what[0]
	}
}

// TestKilledAtAnyMoment kills a process under load again and again, each time on what
// the one before left, and looks: what was accepted is there, with its text, what was
// deleted is not, and there is no damage.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := memoryDirectory(t)
	random := rand.New(rand.NewPCG(1, 2))
	answered := ledger{}
	for n := range *kills {
		process, lines := child(t, "work", dir)
		for left := random.IntN(3000); left > 0 && lines.Scan(); left-- {
			answered.line(lines.Text())
		}
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what was said before it died
			answered.line(lines.Text())
		}
		_ = process.Wait() // it was killed
		answered.check(t, dir)
		if t.Failed() {
			t.Fatalf("after kill %d", n+1)
		}
	}
	if len(answered) < *kills {
		t.Errorf("in %d lives only %d messages were sent", *kills, len(answered))
	}
}

// check compares the answers with what is in the directory.
func (l ledger) check(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found := s.Found(); found.Damaged > 0 {
		t.Errorf("damage: %v", found.Damage)
	}
	e := over(t, s)
	defer closed(t, e)
	there := map[string]bool{}
	for _, name := range []string{"work-0", "work-1", "work-2"} {
		for _, text := range textsOf(t, s, e.Queue(queue.Name{Account: account, Queue: name})) {
			words := strings.Fields(text)
			if len(words) < 2 || words[0] != name || strings.Trim(strings.Join(words[2:], ""), "x") != "" {
				t.Errorf("%s holds %q", name, text)
				continue
			}
			there[words[0]+" "+words[1]] = true
		}
	}
	for text, what := range l {
		switch {
		case what == '+' && !there[text]:
			t.Errorf("%s was accepted and is gone", text)
		case what == '-' && there[text]:
			t.Errorf("%s was deleted and is back", text)
		}
	}
}
