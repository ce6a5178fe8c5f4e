package claimcheck_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// childVariable, if set, makes the test binary a process that works in the directory of that name.
// The generation follows: the last one, -1, ends when all is done; the others are killed.
const childVariable = "MILLRACE_TEST_CLAIMS"

// Sizes of the processes.
const (
	childSlots = 4
	childJobs  = 12
)

// child is a process that sends jobs, works on them, redrives what is poison and sweeps, and prints
// a line before and after each of these.
type child struct {
	generation int
	queue      queue.Manager
	claims     *claimcheck.Claims
}

func runChild(where string) error {
	dir, generation, _ := strings.Cut(where, "|")
	engine, err := filequeue.Open(filepath.Join(dir, "queues"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }() // the parent sees what is missing
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	defer func() { _ = blobs.Close() }()
	c := &child{queue: engine.Queue(queue.Name{Account: "test", Queue: "jobs"})}
	if c.generation, err = strconv.Atoi(generation); err != nil {
		return err
	}
	if c.claims, err = claimcheck.New(blobs, container, &claimcheck.Options{Limit: limit, Retention: 100 * time.Millisecond}); err != nil {
		return err
	}
	for _, q := range []queue.Queue{c.queue, c.queue.Sibling(poison.Suffix)} {
		if err := q.Create(context.Background(), nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
			return err
		}
	}
	return c.live()
}

// say prints a line with one write.
func say(words ...any) { fmt.Println(words...) }

// live works until all is done, or until it is killed.
func (c *child) live() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- listener.New(c.queue, c.handle, c.options()).Run(ctx) }()
	if c.generation >= 0 {
		if err := c.send(ctx); err != nil {
			return err
		}
	}
	for empty := false; c.generation >= 0 || !empty; {
		if _, err := poison.Redrive(ctx, c.queue, &poison.Options{
			Lease: 2 * time.Second, Filter: poison.Filter{Reason: poison.ReasonRejected},
		}); err != nil {
			return err
		}
		say("redriven")
		if _, err := c.claims.Sweep(ctx); err != nil {
			return err
		}
		say("swept")
		if c.generation < 0 { // duplicates that came too late
			if _, err := poison.Purge(ctx, c.queue, &poison.Options{Filter: poison.Filter{Reason: poison.ReasonBlobGone}}); err != nil {
				return err
			}
		}
		jobs, err := c.queue.Properties(ctx)
		if err != nil {
			return err
		}
		rejected, err := c.queue.Sibling(poison.Suffix).Properties(ctx)
		if err != nil {
			return err
		}
		empty = jobs.Depth == 0 && rejected.Depth == 0
	}
	stop()
	return <-ended
}

func (c *child) send(ctx context.Context) error {
	p := producer.New(c.queue, &producer.Options[job]{Claims: c.claims})
	for n := range childJobs {
		name := fmt.Sprintf("%d-%d", c.generation, n)
		text := large
		if n%5 == 4 {
			text = ""
		}
		say("sending", name)
		if _, err := p.Send(ctx, job{name, text}, &producer.SendOptions{JobID: name}); err != nil {
			return err
		}
		say("sent", name)
	}
	return nil
}

// handle fails once, saves, or rejects some of the jobs. The last generation does all.
func (c *child) handle(ctx context.Context, m *listener.Message[job]) error {
	say("begins", m.Body.Name)
	_, number, _ := strings.Cut(m.Body.Name, "-")
	switch n, _ := strconv.Atoi(number); {
	case n%5 == 1 && m.Attempt == 1:
		return errors.New("broken")
	case n%5 == 2 && m.Body.Text == large:
		if err := m.Save(ctx, job{m.Body.Name, large + "!"}); err != nil {
			return err
		}
		say("saved", m.Body.Name)
	case n%5 == 3 && c.generation >= 0 && rand.IntN(2) == 0:
		return listener.Poison(errors.New("not now"))
	}
	say("done", m.Body.Name)
	return nil
}

func (c *child) options() *listener.Options[job] {
	o := options(c.claims)
	o.Concurrency, o.Lease.Visibility = childSlots, listener.FixedVisibility(3*time.Second)
	o.Fetch.Idle = listener.Idle{Min: time.Millisecond, Max: 20 * time.Millisecond}
	o.RetryDelay = func(int, error) time.Duration { return 0 }
	o.Poison = listener.PoisonPolicy{MaxAttempts: 100, MaxLost: 100}
	o.Observer.Poisoned = func(d listener.Delivery, reason listener.PoisonReason, err error) {
		if reason != poison.ReasonRejected {
			say("gone", d.Job, reason, err)
		}
	}
	o.OnError = func(err error) {
		if errors.Is(err, envelope.ErrClaimSettled) {
			say("duplicate")
		}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// books are what processes have said of the jobs.
type books struct {
	sent, done, perhaps map[string]bool
	duplicates, kills   int
}

// read reads the lines of a process, and kills it after so many; 0 for not.
func (l *books) read(t *testing.T, dir string, generation, lines int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), childVariable+"="+dir+"|"+strconv.Itoa(generation))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	for in := bufio.NewScanner(out); in.Scan(); {
		if lines--; lines == 0 {
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
			killed = true
			l.kills++
		}
		l.note(t, in.Text())
	}
	if err := c.Wait(); (err != nil) != killed {
		t.Fatalf("the process ended with %v, killed %v", err, killed)
	}
}

func (l *books) note(t *testing.T, line string) {
	t.Helper()
	what, about, _ := strings.Cut(line, " ")
	switch job, _, _ := strings.Cut(about, " "); what {
	case "sending":
		l.perhaps[job] = true
	case "sent":
		l.sent[job] = true
	case "done":
		l.done[job] = true
	case "duplicate":
		l.duplicates++
	case "gone": // a duplicate that comes after the retention is poison
		if !l.done[job] {
			t.Errorf("job %s lost its body before it was done: %s", job, line)
		}
	}
}

// Processes over files are killed again and again. Every job that was accepted is done in the end,
// none loses its body before, and what stays stored is what the dead had in hand.
func TestKilledProcessesTakeNoBodyThatAMessageNeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	generations := suitetest.Size(4, 12)
	dir := t.TempDir()
	l := &books{sent: map[string]bool{}, done: map[string]bool{}, perhaps: map[string]bool{}}
	for generation := range generations {
		l.read(t, dir, generation, 1+rand.IntN(120))
	}
	l.read(t, dir, -1, 0)
	for job := range l.sent {
		if !l.done[job] {
			t.Errorf("job %s was accepted and not done", job)
		}
	}
	for job := range l.done {
		if !l.perhaps[job] {
			t.Errorf("job %q was done and never sent", job)
		}
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blobs.Close() }()
	c, err := claimcheck.New(blobs, container, nil)
	if err != nil {
		t.Fatal(err)
	}
	orphans := 0
	for body, err := range c.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !body.Settled {
			orphans++
		}
	}
	// At a kill a body was stored and not sent, those of all slots were saved or deleted, and as many
	// settled.
	if most := l.kills * (1 + 3*childSlots); orphans > most || l.kills != generations || len(l.sent) == 0 {
		t.Errorf("got %d orphans after %d kills and %d jobs, want at most %d", orphans, l.kills, len(l.sent), most)
	}
	t.Logf("%d kills, %d jobs sent, %d done, %d duplicates, %d orphans", l.kills, len(l.sent), len(l.done), l.duplicates, orphans)
}
