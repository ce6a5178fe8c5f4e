package filequeue

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// childTask is the variable that makes this program do one of the tasks below instead
// of its tests, for a parent that kills it or limits it.
const childTask = "MILLRACE_FILEQUEUE_TASK"

func childIfAsked() {
	task := os.Getenv(childTask)
	if task == "" {
		return
	}
	name, dir, _ := strings.Cut(task, " ")
	var err error
	switch name {
	case "work":
		err = workUntilKilled(dir)
	case "fill":
		err = fillTheDisk(dir)
	case "open":
		err = sayWhetherItOpens(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child starts a task in a process of its own.
func child(t *testing.T, task, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), childTask+"="+task+" "+dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	return c, bufio.NewScanner(out)
}

// workUntilKilled has several callers put messages in and take them out, and says what
// it was answered, a line each: "+ text" for one that was accepted, "? text" before it
// is deleted, "- text" when that was answered. A line is one write, so that whoever
// kills sees all of it or none.
func workUntilKilled(dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	if found := s.Found(); found.Damaged > 0 {
		return fmt.Errorf("there is damage: %v", found.Damage)
	}
	e, err := localqueue.Open(s, &localqueue.Options{DeletingFor: 1})
	if err != nil {
		return err
	}
	ctx := context.Background()
	failed := make(chan error)
	run := time.Now().UnixNano()
	for w := range 8 {
		q := e.Queue(queue.Name{Account: account, Queue: fmt.Sprint("work-", w%3)})
		if err := q.Create(ctx, nil); err != nil {
			return err
		}
		go func() { failed <- putAndTake(ctx, q, fmt.Sprintf("%d/%d", run, w)) }()
	}
	return <-failed
}

func putAndTake(ctx context.Context, q *localqueue.Queue, who string) error {
	say := func(what, text string) { _, _ = io.WriteString(os.Stdout, what+" "+text+"\n") }
	for n := 0; ; n++ {
		text := fmt.Sprintf("%s %s/%d", q.Name().Queue, who, n)
		long := text + " " + strings.Repeat("x", n%7*900) // pages split and merge
		m, err := q.Enqueue(ctx, long, nil)
		if err != nil {
			return err
		}
		say("+", text)
		if n%5 == 0 {
			if _, err := q.Update(ctx, m.Lease, long, 0); err != nil && !errors.Is(err, queue.ErrReceiptMismatch) && !errors.Is(err, queue.ErrMessageGone) {
				return err
			}
		}
		batch, err := q.Dequeue(ctx, 1+n%3, time.Second)
		if err != nil {
			return err
		}
		for i, m := range batch {
			if (n+i)%3 == 0 {
				continue // it comes back
			}
			which := strings.Join(strings.Fields(m.Text)[:2], " ")
			say("?", which)
			err := q.Delete(ctx, m.Lease)
			if err == nil {
				say("-", which)
			} else if !errors.Is(err, queue.ErrReceiptMismatch) && !errors.Is(err, queue.ErrMessageGone) {
				return err
			}
		}
	}
}

// sayWhetherItOpens says what came of opening a directory.
func sayWhetherItOpens(dir string) error {
	s, err := Open(dir)
	switch {
	case errors.Is(err, ErrLocked):
		fmt.Println("locked")
	case err != nil:
		return err
	default:
		fmt.Println("opened")
		return s.Close()
	}
	return nil
}
