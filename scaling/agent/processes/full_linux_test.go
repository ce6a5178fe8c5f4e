package processes

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/smalldisktest"
)

// On a full disk nothing is started that the next agent would not find, and what runs works on, though nobody can keep what it says. With room it all comes.
func TestAFullDisk(t *testing.T) {
	w := newWorld(t)
	disk := smalldisktest.Mount(t, 1)
	w.folder = filepath.Join(disk, "pool")
	p := w.open()
	w.scale(p, 1)
	one := w.one()
	full := filepath.Join(disk, "full")
	if err := os.WriteFile(full, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: got %v, want ENOSPC", err)
	}
	one.order("print this goes nowhere|")
	one.hears()
	w.scale(p, 2)
	w.until(p, "the second one has been tried twice", func(s State) bool { return s.Running+s.Waiting == 2 && s.Restarts >= 2 })
	if log := w.log.String(); !strings.Contains(log, "its id could not be written into the folder") {
		t.Errorf("log: got %s, want why", log)
	}
	w.noneBegan()
	record := filepath.Join(w.folder, lockName(1))
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	w.until(p, "it cannot be made again", func(State) bool { return strings.Contains(w.log.String(), "cannot be made again") })
	if !one.alive() {
		t.Error("the first instance has ended")
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	two := w.one()
	if two.number != 2 {
		t.Errorf("number: got %d, want 2", two.number)
	}
	if text, err := os.ReadFile(record); err != nil || !strings.HasPrefix(string(text), strconv.Itoa(one.pid)+" ") {
		t.Errorf("the file of instance 1: got %q, %v; want its process", text, err)
	}
	w.until(p, "both run", func(s State) bool { return s.Running == 2 })
	closed := make(chan error)
	go func() { closed <- p.Drain(t.Context()) }()
	one.end(0)
	two.end(0)
	if err := <-closed; err != nil { // and the disk is not in use any more
		t.Error(err)
	}
}
