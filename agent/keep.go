package agent

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/scaling"
)

// ErrInUse means that another agent keeps the history of the same pool in the same folder. Where files cannot be locked, as on
// Windows, it is not noticed.
var ErrInUse = errors.New("another agent uses it: stop that one, or choose another folder")

// open prepares the pool for its run: it locks and reads its history. Only what cannot be mended by going on is an error.
func (p *pool) open() error {
	folder := p.agent.options.Folder
	if folder == "" {
		return nil
	}
	s, err := openStore(folder, p.Name)
	if err != nil {
		return err
	}
	p.store = s
	h, errs := s.read(time.Now())
	for _, err := range errs {
		p.fail(&Error{Doing: readingHistory, once: true, Err: err, Consequence: "the agent starts without it, and removes nothing until it has seen enough"})
	}
	for _, sample := range h {
		p.history.restore(sample)
		p.hold.last = scaling.Known(sample.Instances) // the agent before may have added some after it was written
	}
	return nil
}

// close releases what open has taken.
func (p *pool) close() {
	if p.store == nil {
		return
	}
	p.store.close()
	p.store = nil
}

// keep writes the history, if there is a folder and it is time, or at the end.
func (p *pool) keep(ctx context.Context, end bool) {
	if p.store == nil || len(p.history.samples) == 0 || !end && !p.store.due() {
		return
	}
	if err := p.store.write(ctx, p.history.samples, end); err != nil {
		p.fail(&Error{
			Doing: keepingHistory, Err: err, Consequence: "an agent that is started now has an older one, or none",
			Hint: "see whether the disk is full and the folder writable",
		})
	}
}

// left waits for calls that hang until end is closed, and returns an error for each that is left behind.
func (p *pool) left(end <-chan struct{}) (errs []error) {
	add := func(ok bool, e *Error) {
		if !ok {
			e.Pool, e.Err, e.Consequence = p.Name, errHangs, "it is left behind"
			errs = append(errs, e)
		}
	}
	for _, q := range p.queues {
		add(q.properties.wait(end), &Error{Doing: readingDepth, Queue: q.queue.Name()})
		add(q.peek.wait(end), &Error{Doing: peeking, Queue: q.queue.Name()})
	}
	for _, c := range p.controls {
		add(c.view.wait(end), &Error{Doing: readingReports, Queue: c.queue.Name()})
	}
	if p.store != nil {
		add(p.store.writing.wait(end), &Error{Doing: keepingHistory})
	}
	add(p.actuator.wait(end), &Error{Doing: "end a call of the actuator"})
	return errs
}
