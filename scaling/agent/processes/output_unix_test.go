//go:build unix

package processes

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// Output comes line by line with the number of its instance; a long line comes in parts, and one without an end when the instance has ended.
func TestOutputComesInLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	output := &shown{}
	p := w.open(func(o *Options) { o.Output = output })
	w.scale(p, 2)
	kids := w.next(2)
	say := func(k *kid, text, want string) {
		t.Helper()
		before := output.String()
		k.order("print %s", text)
		k.hears()
		azuritetest.Until(t, "the output is shown", func() bool { return len(output.String()) >= len(before)+len(want) })
		if got := strings.TrimPrefix(output.String(), before); got != want {
			t.Errorf("%.50q: got %.200q, want %.200q", text, got, want)
		}
	}
	say(kids[1], "one|two|", "[1] one\n[1] two\n")
	say(kids[2], "begun", "")
	say(kids[1], "|three|", "[1] \n[1] three\n")
	say(kids[2], " and ended|", "[2] begun and ended\n")
	for _, n := range []int{longestLine - 1, longestLine, longestLine + 1, 2 * longestLine, 2*longestLine + 1} {
		want := ""
		for rest := n; rest > 0; rest -= longestLine {
			want += "[1] " + strings.Repeat("x", min(rest, longestLine)) + "\n"
		}
		say(kids[1], strings.Repeat("x", n)+"|", want)
	}
	kids[2].order("print the last words")
	kids[2].hears()
	before := output.String()
	w.scale(p, 1)
	kids[2].end(0)
	azuritetest.Until(t, "the last words are shown", func() bool { return len(output.String()) > len(before) })
	if got, want := strings.TrimPrefix(output.String(), before), "[2] the last words\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// heldUp is a terminal that is held up until it is released.
type heldUp struct {
	shown
	begun   sync.Once
	writing chan struct{} // closed when the first write has begun
	release chan struct{}
}

func (h *heldUp) Write(p []byte) (int, error) {
	h.begun.Do(func() { close(h.writing) })
	<-h.release
	return h.shown.Write(p)
}

// Output that nobody takes stops neither the instances nor the supervision, and none of it is lost. The disk has only what was not shown.
func TestOutputThatIsHeldUp(t *testing.T) {
	t.Parallel()
	const lines = 60_000 // more than what is given back to the disk at once
	w := newWorld(t)
	output := &heldUp{writing: make(chan struct{}), release: make(chan struct{})}
	p := w.open(func(o *Options) { o.Output = output })
	w.scale(p, 1)
	k := w.one()
	k.order("flood %d", lines)
	if got := k.hears(); got != "printed" { // while nothing was shown
		t.Fatalf("got %q, want printed", got)
	}
	<-output.writing
	w.scale(p, 2)
	other := w.one()
	other.end(1)
	w.one() // the supervision goes on
	close(output.release)
	last := fmt.Sprintf("[1] line %d of", lines-1)
	azuritetest.Until(t, "all is shown", func() bool { return strings.Contains(output.String(), last) })
	n := 0
	for line := range strings.Lines(output.String()) {
		if strings.HasPrefix(line, "[1] ") {
			if want := fmt.Sprintf("[1] line %d of", n); !strings.HasPrefix(line, want) {
				t.Fatalf("got %q, want %q", line, want)
			}
			n++
		}
	}
	if n != lines {
		t.Errorf("got %d lines, want %d", n, lines)
	}
	info, err := os.Stat(w.folder + "/" + outputName(1))
	if err != nil {
		t.Fatal(err)
	}
	if used := onDisk(info); used > 2*reclaimAt {
		t.Errorf("room on the disk: got %d bytes of %d, want at most %d", used, info.Size(), 2*reclaimAt)
	}
}

// Close does not wait for long for output that is held up.
func TestCloseGivesUpOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	output := &heldUp{writing: make(chan struct{}), release: make(chan struct{})}
	p := w.open(func(o *Options) { o.Output = output })
	w.scale(p, 1)
	k := w.one()
	k.order("flood 60000")
	k.hears()
	<-output.writing
	p.patience = time.Millisecond
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	close(output.release) // and the writer ends, see TestMain
	w.open()
}

// failing is an output that fails or panics.
type failing struct{ how func() error }

func (f failing) Write([]byte) (int, error) { return 0, f.how() }

func TestAFailingOutputStopsNothing(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func() error{
		"error": func() error { return errors.New("the pipe is broken") },
		"panic": func() error { panic("the pipe is broken") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.open(func(o *Options) { o.Output = failing{how} })
			w.scale(p, 1)
			k := w.one()
			k.order("flood 5000")
			k.hears()
			azuritetest.Until(t, "it is reported", func() bool { return strings.Contains(w.log.String(), "the pipe is broken") })
			k.end(0)
			w.one()
			if n := strings.Count(w.log.String(), "the pipe is broken"); n != 1 {
				t.Errorf("got %d reports, want 1", n)
			}
		})
	}
}
