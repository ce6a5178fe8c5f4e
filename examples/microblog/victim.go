package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// victim is the command of the worker that microblog demo starts, and that is killed.
const victim = "victim"

// Steps of a worker, as a victim counts them.
const (
	markStep    = "mark"    // the channel is marked
	groupStep   = "group"   // a group of posts is deleted
	saveStep    = "save"    // the place of the next page is in the message
	channelStep = "channel" // the channel is deleted
	messageStep = "message" // the message is deleted
)

// dying is what a victim says right before it is killed.
const dying = "dying"

func victimCommand() cli.Command {
	return cli.Command{Name: victim, Does: "a worker that is killed; microblog demo starts it",
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			f := cli.NewFlags("microblog " + victim)
			data := f.String("data", "", "")
			after := f.String("after", "", "")
			if _, err := cli.ParseFlags(f, args, "data"); err != nil {
				return err
			}
			s := &steps{stdout: stdout}
			if *after != "" {
				name, count, found := strings.Cut(*after, ":")
				n, err := strconv.Atoi(count)
				if !found || err != nil || n < 1 {
					return cli.UsageErrorf("-after %s is not STEP:COUNT", *after)
				}
				s.last, s.left = name, n
			}
			return runVictim(ctx, *data, s, stderr)
		}}
}

// runVictim works on a deletion until its message is deleted, or until it is killed.
func runVictim(ctx context.Context, folder string, s *steps, stderr io.Writer) (err error) {
	data, err := openFolder(folder)
	if err != nil {
		return err
	}
	defer func() {
		if closing := data.close(); err == nil {
			err = closing
		}
	}()
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	data.site.Channels = &steppedTable{data.site.Channels, s, markStep, channelStep}
	data.site.Posts = &steppedTable{data.site.Posts, s, "", groupStep}
	q := &steppedQueue{data.deletions, s}
	return millrace.Run(ctx, roles.NewWorkerWithVisibility(q, data.site, data.wakeups, plainlog.New(stderr), dispatcher.MinVisibility))
}

// steps counts the steps of a worker, kills the process after the last one, and stops the worker after a deletion. It is
// safe for concurrent use.
type steps struct {
	stdout io.Writer
	stop   context.CancelFunc

	last string // the step after which the process is killed; "" for none

	mu      sync.Mutex
	left    int  // how many of the last steps are left; guarded by mu
	deleted bool // posts were deleted since the last save; guarded by mu
}

// done counts a step that was taken. After the last one it does not return.
func (s *steps) done(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case step == groupStep:
		s.deleted = true
	case step == saveStep && !s.deleted: // the listener notes in the message that a worker had it
		return
	case step == saveStep:
		s.deleted = false
	case step == messageStep:
		s.stop()
	}
	if step != s.last {
		return
	}
	if s.left--; s.left == 0 {
		s.die()
	}
}

// die ends the process as kill -9 does: nothing is closed, nothing is given back.
func (s *steps) die() {
	_, _ = fmt.Fprintln(s.stdout, dying) // nobody may be listening
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		os.Exit(cli.StatusFailed)
	}
	select {} // until the system has done it
}

// steppedTable is a table whose changes are steps.
type steppedTable struct {
	table.Store
	steps              *steps
	onUpdate, onDelete string // the names of the steps
}

// Update implements [table.Store].
func (t *steppedTable) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	etag, err := t.Store.Update(ctx, e)
	if err == nil {
		t.steps.done(t.onUpdate)
	}
	return etag, err
}

// Delete implements [table.Store].
func (t *steppedTable) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	err := t.Store.Delete(ctx, k, etag)
	if err == nil {
		t.steps.done(t.onDelete)
	}
	return err
}

// Apply implements [table.Store].
func (t *steppedTable) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	etags, err := t.Store.Apply(ctx, changes)
	if err == nil {
		t.steps.done(t.onDelete)
	}
	return etags, err
}

// steppedQueue is a queue whose changes are steps.
type steppedQueue struct {
	queue.Queue
	steps *steps
}

// Update implements [queue.Queue].
func (q *steppedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	lease, err := q.Queue.Update(ctx, l, text, visibility)
	if err == nil {
		q.steps.done(saveStep)
	}
	return lease, err
}

// Delete implements [queue.Queue].
func (q *steppedQueue) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Queue.Delete(ctx, l)
	if err == nil {
		q.steps.done(messageStep)
	}
	return err
}
