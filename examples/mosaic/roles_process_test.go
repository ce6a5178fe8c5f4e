package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
)

// expected makes the mosaic of work without processes.
func expected(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	out := filepath.Join(dir, "expected.png")
	args := work(t, dir, flags...)
	args = append(args, "-out", out) // the last flag counts
	if r := mosaic(t, args...); r.status != cli.StatusDone {
		t.Fatalf("embedded: %+v", r)
	}
	return out
}

// sameMosaic compares two files pixel by pixel.
func sameMosaic(t *testing.T, got, want string) {
	t.Helper()
	a, b := read(t, got), read(t, want)
	if a.Bounds() != b.Bounds() {
		t.Fatalf("bounds of %s: got %v, want %v", got, a.Bounds(), b.Bounds())
	}
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			ar, ag, ab, _ := a.At(x, y).RGBA()
			br, bg, bb, _ := b.At(x, y).RGBA()
			if ar != br || ag != bg || ab != bb {
				t.Fatalf("%s: pixel %d,%d differs from that of the mosaic made in one process", got, x, y)
			}
		}
	}
}

// site is an account with processes of the roles.
type site struct {
	t      *testing.T
	server *server
	dir    string
	tiles  []string // flags with the library, the same for all clients
	want   string   // the mosaic
}

func newSite(t *testing.T) *site {
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := &site{t: t, server: newServer(t), dir: t.TempDir()}
	s.tiles = []string{"-tiles", fewTiles(t)}
	s.want = expected(t, s.dir, s.tiles...)
	return s
}

// role starts a controller or a processor, and waits until it is ready.
func (s *site) role(name string, flags ...string) *program {
	s.t.Helper()
	p := start(s.t, append([]string{name, "-account", s.server.location}, flags...)...)
	p.until(name + ": queues at")
	return p
}

// client starts a client. There are so many slices because it looks only now and then how many are finished.
func (s *site) client(flags ...string) *program {
	s.t.Helper()
	flags = slices.Concat(s.tiles, []string{"-account", s.server.location, "-slices", "200"}, flags)
	return start(s.t, work(s.t, s.dir, flags...)...)
}

func (s *site) kill(p *program) {
	s.t.Helper()
	p.signal(syscall.SIGKILL)
	if status := p.wait(); status != -1 {
		s.t.Fatalf("status: got %d, want -1: it ended before it was killed", status)
	}
}

// finished checks that a client succeeds with the right mosaic.
func (s *site) finished(p *program) {
	s.t.Helper()
	if status := p.wait(); status != cli.StatusDone {
		s.t.Fatalf("client: got status %d, want %d: %s", status, cli.StatusDone, p.stderr.String())
	}
	sameMosaic(s.t, filepath.Join(s.dir, "out.png"), s.want)
}

// stopped checks that a role ends well after Ctrl-C, without a word.
func (s *site) stop(p *program) {
	s.t.Helper()
	p.signal(os.Interrupt)
	if status := p.wait(); status != cli.StatusDone || p.stderr.Len() > 0 {
		s.t.Errorf("after Ctrl-C: got status %d, stderr %q; want %d and none", status, p.stderr.String(), cli.StatusDone)
	}
}

func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	controller, one, other := s.role("controller"), s.role("processor", "-slices-at-once", "1"), s.role("processor", "-slices-at-once", "2")
	c := s.client()
	one.until("is rendered")
	other.until("is rendered")
	s.finished(c)
	if c.stderr.Len() > 0 {
		t.Errorf("stderr of the client: got %q, want none", c.stderr.String())
	}
	for _, p := range []*program{controller, one, other} {
		s.stop(p)
	}
	// All of them used the folder of the account, and nothing else.
	host := strings.Replace(s.server.address, ":", "-", 1)
	if _, err := os.Stat(filepath.Join(dataHome, "millrace-mosaic", "accounts", "devstoreaccount1@"+host, "jobs")); err != nil {
		t.Error(err)
	}
}

// One job lives through the deaths of a processor, of the controller, of the server, and of all at once. The processor says
// when to kill. A client hears of slices every half a second, and the mosaic may be finished before.
func TestAMosaicIsFinishedAfterAKillInEachRole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	controller, processor := s.role("controller"), s.role("processor", "-slices-at-once", "1")
	client := s.client()

	processor.until("is rendered")
	s.kill(processor)
	processor = s.role("processor", "-slices-at-once", "1")

	processor.until("is rendered")
	s.kill(controller)
	controller = s.role("controller")

	processor.until("is rendered")
	s.server.kill()
	s.server.start()

	processor.until("is rendered")
	s.server.kill()
	s.kill(controller)
	s.kill(processor)
	s.server.start()
	s.role("controller")
	s.role("processor")
	s.finished(client)
}

// The mosaic of a client that was killed is kept among the blobs.
func TestTheMosaicOfAKilledClientIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	blobs := filepath.Join(s.dir, "blobs")
	s.role("controller", "-blobs", blobs)
	processor := s.role("processor", "-slices-at-once", "1", "-blobs", blobs)
	victim := s.client("-blobs", blobs, "-slices", "100")
	processor.until("is rendered")
	s.kill(victim)
	processor.until("slice 100 of 100 is rendered")
	var kept []string
	for range 20 { // the first mosaic may be composed only while a later client runs
		s.finished(s.client("-blobs", blobs, "-slices", "2"))
		if kept, _ = filepath.Glob(filepath.Join(blobs, "imageoutput", "*.png")); len(kept) > 0 {
			break
		}
	}
	if len(kept) != 1 {
		t.Fatalf("blobs in %s: got %q, want a kept mosaic", blobs, kept)
	}
	sameMosaic(t, kept[0], s.want)
}

// Each role says once that the server does not answer and once that it answers again, and nothing else.
func TestAnOutageOfTheServerIsTwoLinesInEachRole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	controller, processor := s.role("controller"), s.role("processor", "-slices-at-once", "1")
	c := s.client()
	c.until("slices are finished")
	s.server.kill()
	for _, p := range []*program{controller, processor, c} {
		p.untilErr("the queue server does not answer, trying again")
	}
	s.server.start()
	for _, p := range []*program{controller, processor, c} {
		p.untilErr("the queue server answers again")
	}
	s.finished(c)
	for _, p := range []*program{controller, processor} {
		p.signal(os.Interrupt)
		if status := p.wait(); status != cli.StatusDone {
			t.Errorf("status: got %d, want %d", status, cli.StatusDone)
		}
	}
	for _, p := range []*program{controller, processor, c} {
		if got, want := p.stderr.String(), "the queue server does not answer, trying again\nthe queue server answers again\n"; got != want {
			t.Errorf("stderr of %v: got %q, want %q", p.cmd.Args[1], got, want)
		}
	}
}

func TestAClientAloneSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.client("-slices", "2")
	c.until("Start mosaic controller and mosaic processor")
	s.role("controller")
	s.role("processor")
	s.finished(c)
}

func TestWithoutAServerCommandsNameTheOneToStart(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	location := e.ConnectionString()
	if err := e.Close(); err != nil { // now nothing listens on its port
		t.Fatal(err)
	}
	dir := t.TempDir()
	photo(t, filepath.Join(dir, "in.png"), 40, 40)
	for _, args := range [][]string{{"controller"}, {"processor"}, {"render", "-in", filepath.Join(dir, "in.png"), "-out", filepath.Join(dir, "out.png")}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			r := mosaic(t, append(args, "-account", location)...)
			// The time for all attempts may end in the middle of one.
			reason := strings.Contains(r.stderr, "refused") || strings.Contains(r.stderr, "deadline exceeded")
			if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "millrace serve") || !reason {
				t.Errorf("got %+v; want status %d and one line with millrace serve", r, cli.StatusFailed)
			}
		})
	}
}
