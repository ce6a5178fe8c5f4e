package web

import (
	"context"
	"crypto/rand"
	"sync"
)

// maxRemembered is how many forms that succeeded are remembered.
const maxRemembered = 1000

// once does what a form asks for only once, however often the form comes. It is safe for concurrent use.
type once struct {
	mu       sync.Mutex
	forms    map[string]*outcome // by id; guarded by mu
	finished []string            // ids of those that succeeded, the oldest first; guarded by mu
}

// outcome is what became of a form.
type outcome struct {
	done chan struct{} // closed when the rest is set
	next string        // the address to go to
	err  error
}

func newForm() string { return rand.Text() }

// do calls work unless a form with this id succeeded before; if one is at work it waits for that. It returns the result
// of work. A form that failed may be sent again.
func (o *once) do(ctx context.Context, id string, work func() (next string, err error)) (string, error) {
	form, first := o.begin(id)
	if first {
		defer o.end(id, form)
		form.err = errUnfinished // unless work returns
		form.next, form.err = work()
		return form.next, form.err
	}
	select {
	case <-form.done:
		return form.next, form.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// begin returns the outcome of a form, and whether the caller is the first and must call end.
func (o *once) begin(id string) (form *outcome, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if form, found := o.forms[id]; found {
		return form, false
	}
	form = &outcome{done: make(chan struct{})}
	if o.forms == nil {
		o.forms = make(map[string]*outcome)
	}
	o.forms[id] = form
	return form, true
}

func (o *once) end(id string, form *outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(form.done)
	if form.err != nil {
		delete(o.forms, id)
		return
	}
	if o.finished = append(o.finished, id); len(o.finished) > maxRemembered {
		delete(o.forms, o.finished[0])
		o.finished = o.finished[1:]
	}
}
