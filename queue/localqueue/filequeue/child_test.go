package filequeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// A child process runs the task "work" until it is killed.
func init() {
	tasks["work"] = func(dir, generation string) error {
		fmt.Println("opening")
		return work(dir, generation)
	}
}

// workers is the number of workers in a child, which share its commits. Each has a queue of
// its own, so that its lines are in the order of events.
const workers = 8

func work(dir, generation string) error {
	s, err := openWith(dir, 16<<10) // so that there are many checkpoints
	if err != nil {
		return err
	}
	e, err := engineOver(s, nil)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failures := make([]error, workers)
	for i := range workers {
		name := fmt.Sprintf("kept-%d", i)
		if i == 0 {
			name = "cleared-" + generation
		}
		w := worker{q: e.Queue(queue.Name{Account: account, Queue: name}), name: fmt.Sprintf("%s.%d", generation, i), clears: i == 0}
		all.Go(func() { failures[i] = w.forever(context.Background()) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// worker prints what it is about to do and what was acknowledged, one line each:
//
//	"+ text"      enqueued
//	"? text"      about to be deleted, or cleared
//	"- text"      deleted, or cleared
//	"> old new"   about to be replaced
//	"= old new"   replaced
type worker struct {
	q      queue.Manager
	name   string
	clears bool     // clears its queue, which no other generation uses
	left   []string // texts in that queue
	number int
}

func (w *worker) text() string {
	w.number++
	return fmt.Sprintf("%s.%d", w.name, w.number)
}

// printLine prints a line in one write, which a pipe keeps whole among concurrent writers.
func printLine(format string, args ...any) {
	if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
		os.Exit(0) // the test has ended
	}
}

func (w *worker) forever(ctx context.Context) error {
	if err := w.q.Create(ctx, nil); err != nil {
		return err
	}
	for round := 1; ; round++ {
		texts, err := w.enqueue(ctx)
		if err != nil {
			return err
		}
		if w.clears {
			w.left = append(w.left, texts...)
			err = w.clear(ctx, round%3 == 0)
		} else {
			err = w.settle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (w *worker) enqueue(ctx context.Context) (texts []string, err error) {
	for range 6 {
		text := w.text()
		if _, err := w.q.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever}); err != nil {
			return nil, err
		}
		printLine("+ %s", text)
		texts = append(texts, text)
	}
	return texts, nil
}

// settle deletes most of a batch, replaces the text of some and leaves some.
func (w *worker) settle(ctx context.Context) error {
	batch, err := w.q.Dequeue(ctx, 5, time.Hour)
	if err != nil {
		return err
	}
	for i, m := range batch {
		switch i {
		case 0:
			text := w.text()
			printLine("> %s %s", m.Text, text)
			if _, err := w.q.Update(ctx, m.Lease, text, 0); err != nil {
				return err
			}
			printLine("= %s %s", m.Text, text)
		case 1: // left
		default:
			printLine("? %s", m.Text)
			if err := w.q.Delete(ctx, m.Lease); err != nil {
				return err
			}
			printLine("- %s", m.Text)
		}
	}
	return nil
}

// clear clears the queue.
func (w *worker) clear(ctx context.Context, now bool) error {
	if !now {
		return nil
	}
	for _, text := range w.left {
		printLine("? %s", text)
	}
	if err := w.q.Clear(ctx); err != nil {
		return err
	}
	for _, text := range w.left {
		printLine("- %s", text)
	}
	w.left = nil
	return nil
}
