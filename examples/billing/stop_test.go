package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

// A signal at any moment ends the program soon, with one line, and nothing is left but what was there.
func TestASignalLeavesNothing(t *testing.T) {
	t.Parallel()
	for when, s := range map[string]os.Signal{"generating": os.Interrupt, "generated-2026-11-01.* in the books": syscall.SIGTERM, "generated-2026-11-09.* in the books": os.Interrupt} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			tmp, dir := t.TempDir(), t.TempDir()
			p := run(t, os.Args[0], []string{asBilling + "=1", "TMPDIR=" + tmp}, "-records", "100000", "-days", "20", "-out", filepath.Join(dir, "report"))
			p.until(when)
			p.signal(s)
			if status := p.wait(); status != cli.StatusFailed || !strings.HasSuffix(p.out.String(), "\nbilling: "+errStopped.Error()+"\n") {
				t.Errorf("got status %d, %q; want %d and %v", status, p.out.String(), cli.StatusFailed, errStopped)
			}
			names(t, tmp)
			names(t, dir)
		})
	}
}

// Each role says once that the server does not answer and once that it answers again, and goes on.
func TestAnOutageOfTheServerIsTwoLinesInEachRole(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server and kills it")
	}
	t.Parallel()
	s := newServer(t)
	blobs := filepath.Join(t.TempDir(), "blobs")
	var roles []*process
	for _, args := range [][]string{{"initiator"}, {"worker"}, {"controller", "-books", filepath.Join(t.TempDir(), "books.db")}} {
		p := start(t, append(args, "-account", s.location, "-blobs", blobs)...)
		p.until("stop it with Ctrl-C")
		roles = append(roles, p)
	}
	ship := start(t, "ship", "-records", "2000", "-days", "1", "-account", s.location, "-blobs", blobs)
	if status := ship.wait(); status != cli.StatusDone {
		t.Fatalf("ship: got status %d: %s", status, ship.out.String())
	}
	roles[2].until("2,000 records, in the books")
	s.process.kill()
	for _, p := range roles {
		p.until("the queue server does not answer, trying again")
	}
	s.start()
	for _, p := range roles {
		p.until("the queue server answers again")
		p.stop()
	}
}
