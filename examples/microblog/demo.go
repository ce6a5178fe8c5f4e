package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/table"
)

const demoHelp = `Usage: microblog demo [flags]

Makes a channel with many posts, deletes it, and kills the worker again and again meanwhile: with
SIGKILL, in a process of its own. Then it says what became of the channel, and of another one that was
made under the same name before the deletion was over. It takes half a minute, because the message of a
worker that was killed comes back after 5 seconds. It leaves nothing behind.

Flags:

  -posts N           how many posts the channel has, 2000 to 100000 (default 5000)
`

var errStopped = errors.New("stopped before the demonstration was over; nothing is left of it")

// Bounds of the demonstration's posts. The worker deletes pages of 1,000, and is killed on the second.
const (
	minPosts = 2000
	maxPosts = 100_000
)

func demoCommand() cli.Command {
	return cli.Command{Name: "demo", Does: "delete a channel while the worker is killed again and again", Help: demoHelp,
		Run: func(ctx context.Context, args []string, stdout, _ io.Writer) error {
			d := &demo{deaths: allDeaths, stdout: stdout}
			f := cli.NewFlags("microblog demo")
			f.IntVar(&d.posts, "posts", 5000, "")
			if _, err := cli.ParseFlags(f, args); err != nil {
				return err
			}
			if d.posts < minPosts || d.posts > maxPosts {
				return cli.UsageErrorf("-posts %d is outside %d…%d", d.posts, minPosts, maxPosts)
			}
			return millrace.Run(ctx, d)
		}}
}

// demo deletes a channel while the worker is killed. It is a [millrace.Runner].
type demo struct {
	posts  int
	deaths []death // of workers, one after the other
	stdout io.Writer
	folder string
}

// death is a step after which a worker is killed, and what is said then.
type death struct{ after, story string }

// allDeaths are those of the demonstration.
var allDeaths = []death{
	{markStep + ":1", "killed when the channel was marked"},
	{groupStep + ":15", "killed halfway through the second page"},
	{saveStep + ":1", "killed when it had put the place of the next page into the message"},
	{channelStep + ":1", "killed when the channel was deleted and the message was not"},
}

const (
	demoChannel = "Doomed"
	anew        = "The second life of this channel"
)

// Halt does nothing: Run returns soon after its context ends.
func (*demo) Halt() {}

// Run shows the demonstration.
func (d *demo) Run(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "microblog-demo-"); err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	err = d.play(ctx)
	if err != nil && ctx.Err() != nil { // errors after the interruption are its consequences
		err = errStopped
	}
	return errors.Join(err, os.RemoveAll(d.folder))
}

func (d *demo) say(format string, args ...any) { cli.Say(d.stdout, format+"\n", args...) }

func (d *demo) play(ctx context.Context) error {
	if err := d.with(func(s *store) error { return d.begin(ctx, s) }); err != nil {
		return err
	}
	for i, death := range d.deaths {
		if err := d.worker(ctx, "-after", death.after); err != nil {
			return err
		}
		err := d.with(func(s *store) error { return d.look(ctx, s, fmt.Sprintf("Worker %d, %s", i+1, death.story)) })
		if err != nil {
			return err
		}
	}
	if err := d.with(func(s *store) error { return d.makeAnew(ctx, s) }); err != nil {
		return err
	}
	if err := d.worker(ctx); err != nil {
		return err
	}
	return d.with(func(s *store) error { return d.verify(ctx, s) })
}

// with opens the data while no worker has it.
func (d *demo) with(work func(*store) error) error {
	s, err := openFolder(d.folder)
	if err != nil {
		return err
	}
	return errors.Join(work(s), s.close())
}

// writers is how many posts are written at once: they share the waits for the disk.
const writers = 64

// begin makes the channel and asks for its deletion.
func (d *demo) begin(ctx context.Context, s *store) error {
	c, err := s.site.Create(ctx, demoChannel, "Demo")
	if err != nil {
		return err
	}
	if err := writeMany(ctx, s.site, c, d.posts); err != nil {
		return err
	}
	d.say("The channel %q has %s", c.Name, cli.Plural(d.posts, "post"))
	if err := roles.NewRequester(s.deletions, nil).Delete(ctx, c); err != nil {
		return err
	}
	d.say("The web role has put its deletion on the queue %s", roles.QueueName)
	return nil
}

// writeMany writes posts, many at a time.
func writeMany(ctx context.Context, site *channels.Site, c channels.Channel, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for i := range numbers {
				if _, err := site.Write(ctx, c, "Ann", fmt.Sprintf("Post %d", i+1), "It will not be read for long."); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		numbers <- i
	}
	close(numbers)
	all.Wait()
	return context.Cause(ctx)
}

// worker runs a worker until it is killed, or until the message is deleted.
func (d *demo) worker(ctx context.Context, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{victim, "-data", d.folder}, args...)...)
	cmd.WaitDelay = 10 * time.Second
	var said, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	err = cmd.Run()
	died := strings.TrimSpace(said.String()) == dying
	switch expected := len(args) > 0; {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case expected && !died:
		return fmt.Errorf("a worker ended before it was killed: %w, %s", err, complaint.String())
	case !expected && err != nil:
		return fmt.Errorf("the last worker failed: %w, %s", err, complaint.String())
	}
	return nil
}

// look says what is left, and that readers see nothing.
func (d *demo) look(ctx context.Context, s *store, story string) error {
	if _, _, _, err := s.site.Page(ctx, demoChannel, "", 1); !errors.Is(err, channels.ErrNoChannel) {
		return fmt.Errorf("readers still see the channel: %w", err)
	}
	left, err := count(ctx, s)
	if err != nil {
		return err
	}
	d.say("%s: %s left, readers see none of them", story, cli.Plural(left, "post"))
	return nil
}

// count returns how many posts are in the table.
func count(ctx context.Context, s *store) (n int, err error) {
	for _, err := range table.All(ctx, s.site.Posts, table.Query{}) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// makeAnew makes a channel under the name of the one that is being deleted.
func (d *demo) makeAnew(ctx context.Context, s *store) error {
	c, err := s.site.Create(ctx, demoChannel, "Demo")
	if err != nil {
		return err
	}
	if _, err := s.site.Write(ctx, c, "Ann", anew, "Nothing of this is lost."); err != nil {
		return err
	}
	d.say("A new channel %q is made, with one post", c.Name)
	return nil
}

// verify checks what must be true in the end.
func (d *demo) verify(ctx context.Context, s *store) error {
	_, posts, next, err := s.site.Page(ctx, demoChannel, "", 10)
	if err != nil {
		return fmt.Errorf("the new channel: %w", err)
	}
	all, err := count(ctx, s)
	if err != nil {
		return err
	}
	if all != 1 || len(posts) != 1 || posts[0].Title != anew || next != "" {
		return fmt.Errorf("the new channel shows %d posts of %d in the table, want its one", len(posts), all)
	}
	d.say("Worker %d, not killed: the message comes again, finds nothing to do, and is deleted", len(d.deaths)+1)
	d.say("Of %s none is left. The new channel has its one post", cli.Plural(d.posts, "post"))
	return nil
}
