package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
)

// errDeleted is the cause with which the work on a job ends when it is deleted.
var errDeleted = errors.New("the job was deleted")

// work makes a mosaic, when it is the job's turn, or goes on where an earlier run has stopped.
func (s *Server) work(ctx context.Context, j *job) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := make(chan struct{})
	defer close(idle)
	j.mu.Lock()
	gone := j.gone
	j.cancel, j.idle = func() { cancel(errDeleted) }, idle
	j.mu.Unlock()
	if gone {
		return
	}
	free, err := take(ctx, s.running)
	if err != nil {
		return
	}
	defer free()
	m := &making{server: s, job: j, begin: time.Now(), first: s.options.Requests(), before: j.current()}
	err = m.run(ctx)
	j.update(m.count)
	s.ended(ctx, j, err)
}

// ended records how a job has ended. One that was only interrupted goes on in the next run.
func (s *Server) ended(ctx context.Context, j *job, err error) {
	if ctx.Err() != nil {
		if !errors.Is(context.Cause(ctx), errDeleted) {
			s.save(j) // what it took so far
		}
		return
	}
	if err != nil {
		s.logger.Warn("a mosaic could not be made", "job", j.current().ID, "error", err)
	}
	size := s.shelf.size(file(j.current().ID, ""))
	j.update(func() {
		j.note, j.Bytes = "", size
		if err != nil {
			j.State, j.Error, j.Detail = failed, whyFailed(j.Name, err), withoutPaths(err.Error())
			return
		}
		j.State = done
		for i := range j.stored {
			j.stored[i] = true
		}
	})
	s.save(j)
}

// save stores the record of a job as it is now. One that is stored later is never older: a user may start a job again while its
// failure is being stored. If saving fails, the job is after a restart what it was before.
func (s *Server) save(j *job) {
	j.filing.Lock()
	defer j.filing.Unlock()
	if s.shelf.find(j.ID) != j {
		return // it was deleted
	}
	if err := s.shelf.save(j.current()); err != nil {
		s.logger.Error("the state of a job cannot be stored", "job", j.ID, "error", err)
	}
}

// making is the work on one job in this run of the program.
type making struct {
	server  *Server
	job     *job
	begin   time.Time
	first   int64         // requests that had been sent
	before  record        // of the job
	request roles.Request // what is asked for
	chosen  atomic.Pointer[chosen]
}

// chosen is how the layout was kept.
type chosen struct {
	done chan struct{} // closed when it is stored, or cannot be
	err  error         // why it cannot be; set before done is closed
}

// count updates the time and the requests of the job, whose lock is held.
func (m *making) count() {
	m.job.Took = m.before.Took + time.Since(m.begin)
	m.job.Requests = m.before.Requests + m.server.options.Requests() - m.first
}

// run makes the mosaic within the time that the job has.
func (m *making) run(ctx context.Context) error {
	s := m.server
	if s.complete(m.before.ID) {
		return nil // an earlier run was killed before it recorded that
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Time-m.before.Took, outOfTime(s.limits.Time))
	defer cancel()
	m.request = roles.Request{
		ClientID: "web", Slices: m.before.Slices, Format: picture.PNG, Scale: m.before.Scale, Tint: m.before.Tint, Reuse: layout.ReusePercent(m.before.Reuse),
		Deliver:  func(mosaic io.Reader) error { return m.deliver(ctx, mosaic) },
		Progress: func(stored []int, _ int) { m.job.storedSlices(stored, m.count) },
	}
	m.chosen.Store(&chosen{done: make(chan struct{})}) // before the request: the mosaic may come at once
	order, err := m.order(ctx)
	for wait := minWait; err == nil; wait = min(2*wait, maxWait) {
		m.job.update(func() { m.job.order = order })
		err = m.follow(ctx, order)
		if err == nil || ctx.Err() != nil || final(err) {
			break
		}
		// Nothing answered for a long time, or nobody worked on it. The request is still there.
		if err = m.pause(ctx, err, wait); err == nil {
			m.chosen.Store(&chosen{done: make(chan struct{})})
			order = s.options.System.Broker.Resume(order.ID, m.request)
		}
	}
	m.job.update(func() { m.job.order = nil })
	if order == nil {
		return causeOr(ctx, err)
	}
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		m.cancel(ctx, order)
	}
	order.Forget()
	return causeOr(ctx, err)
}

// The waits after an error that may pass.
const (
	minWait = time.Second
	maxWait = 10 * time.Second
)

// pause waits after an error that may pass, and says so on the page.
func (m *making) pause(ctx context.Context, err error, wait time.Duration) error {
	m.server.logger.Warn("a mosaic has to wait", "job", m.before.ID, "error", err, "next_try_in", wait)
	m.job.update(func() { m.job.note = "The queue server or the roles do not answer. Trying again." })
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// final reports whether trying again does not help.
func final(err error) bool {
	return errors.As(err, new(*roles.FailedError)) || errors.As(err, new(*roles.KeptError)) || errors.Is(err, blob.ErrMissing)
}

// causeOr returns the cause of ctx if it has ended, because the error is then its consequence.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cancel ends a request that nobody waits for any more.
func (m *making) cancel(ctx context.Context, order *roles.Order) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := order.Cancel(ctx, "nobody waits for it any more"); err != nil {
		m.server.logger.Warn("cannot clean up after a job", "request", order.ID, "error", err)
	}
}

// complete reports whether the mosaic and the layout of a job are stored.
func (s *Server) complete(id string) bool {
	for _, name := range []string{mosaicFile, layoutFile} {
		if _, err := s.root.Stat(file(id, name)); err != nil {
			return false
		}
	}
	return true
}

// order requests the mosaic, unless an earlier run did. While the queue server does not answer, it tries again.
func (m *making) order(ctx context.Context) (*roles.Order, error) {
	s, j := m.server, m.job
	if m.before.Request != uuid.Nil {
		return s.options.System.Broker.Resume(m.before.Request, m.request), nil
	}
	library, err := s.libraries.get(ctx, m.before.Library, m.before.Tile, func(note string) { j.update(func() { j.note = note }) })
	if err != nil {
		return nil, err
	}
	if err := s.useLibrary(j, library); err != nil {
		return nil, err
	}
	m.request.Library = library
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		order, err := m.submit(ctx)
		if err == nil {
			j.update(func() {
				j.Request, j.note = order.ID, ""
				m.count()
			})
			s.save(j)
			return order, nil
		}
		if !queue.Transient(err) && !blob.Transient(err) {
			return nil, fmt.Errorf("the picture cannot be sent to the roles: %w", err)
		}
		if err := m.pause(ctx, err, wait); err != nil {
			return nil, err
		}
	}
}

// useLibrary makes a job keep the tiles of a library, which another one may just be about to delete.
func (s *Server) useLibrary(j *job, library *tiles.Library) error {
	s.admission.Lock()
	defer s.admission.Unlock()
	if err := s.roomForTiles(library); err != nil {
		return err
	}
	j.update(func() { j.LibraryID, j.Tiles = library.ID(), library.Len() })
	return s.libraries.store(library, j.current().Library)
}

// submit requests the mosaic once.
func (m *making) submit(ctx context.Context) (*roles.Order, error) {
	in, err := m.server.shelf.open(m.before.ID, pictureFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	m.request.Picture = in
	m.job.update(func() { m.job.State = measuring })
	return m.server.options.System.Broker.Submit(ctx, m.request)
}

// follow waits until the mosaic is delivered, and keeps the layout as soon as it is chosen.
func (m *making) follow(ctx context.Context, order *roles.Order) error {
	ctx, cancel := context.WithCancel(ctx)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		c := m.chosen.Load()
		c.err = m.keepLayout(ctx, order)
		close(c.done)
	})
	err := order.Wait(ctx)
	cancel()
	fetching.Wait()
	return err
}

// keepLayout stores the layout when the tiles are chosen.
func (m *making) keepLayout(ctx context.Context, order *roles.Order) error {
	s, j := m.server, m.job
	whole, err := s.storedLayout(m.before.ID)
	if err != nil {
		if whole, err = order.Layout(ctx); err != nil {
			return err
		}
		if whole.Cells.Cols != m.before.Cols || whole.Cells.Rows != m.before.Rows {
			return fmt.Errorf("the layout has %d×%d cells instead of %d×%d", whole.Cells.Cols, whole.Cells.Rows, m.before.Cols, m.before.Rows)
		}
		if err := s.shelf.replace(file(m.before.ID, layoutFile), whole.Write); err != nil {
			return err
		}
	}
	s.layouts.put(m.before.ID, whole, layoutBytes(whole))
	distinct := whole.Distinct()
	j.update(func() {
		m.count()
		j.State, j.Distinct, j.note = working, distinct, ""
		if j.allStored() {
			j.State = composing
		}
	})
	s.save(j)
	return nil
}

// storedLayout reads the layout of a job from its folder.
func (s *Server) storedLayout(id string) (*layout.Layout, error) {
	f, err := s.shelf.open(id, layoutFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return layout.Read(f)
}

// deliver stores the mosaic. The layout can only be read until it returns.
func (m *making) deliver(ctx context.Context, mosaic io.Reader) error {
	c := m.chosen.Load()
	select {
	case <-c.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.err != nil {
		return fmt.Errorf("the layout of the mosaic cannot be kept: %w", c.err)
	}
	return m.server.shelf.replace(file(m.before.ID, mosaicFile), func(w io.Writer) error {
		_, err := io.Copy(writeOnly{w}, mosaic)
		return err
	})
}
