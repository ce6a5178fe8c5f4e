package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
)

// errDeleted is the cause that ends the work on a deleted job.
var errDeleted = errors.New("the job was deleted")

// work makes a mosaic when it is the job's turn, or continues after an earlier run has stopped.
func (s *Server) work(ctx context.Context, j *job) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := make(chan struct{})
	defer close(idle)
	gone := false
	j.update(func() { gone, j.cancel, j.idle = j.gone, func() { cancel(errDeleted) }, idle })
	if gone {
		return
	}
	free, err := take(ctx, s.running)
	if err != nil {
		return
	}
	defer free()
	err = s.make(ctx, j)
	deleted := errors.Is(context.Cause(ctx), errDeleted)
	if request := j.current().Request; request != uuid.Nil && (deleted || err != nil && ctx.Err() == nil) {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		if e := s.options.System.Broker.Resume(request, 0).Cancel(ending, "the mosaic is no longer needed"); e != nil {
			s.logger.Warn("cannot clean up after a job", "request", request, "error", e)
		}
		cancel()
	}
	if err != nil && ctx.Err() != nil {
		return // the next run continues
	}
	if err != nil {
		s.logger.Warn("a mosaic could not be made", "job", j.ID, "error", err)
	}
	j.update(func() {
		j.note, j.problem, j.order, j.Took = "", "", nil, time.Since(j.Begun)
		if err != nil {
			j.State, j.Error = failed, whyFailed(err)
			return
		}
		j.State, j.stored = done, slices.Repeat([]bool{true}, len(j.stored))
	})
	s.save(j)
}

// make requests the mosaic, follows its slices, and stores it in the folder of the job.
func (s *Server) make(ctx context.Context, j *job) error {
	if _, err := s.shelf.root.Stat(file(j.ID, mosaicFile)); err == nil {
		return nil // an earlier run was killed before it recorded that
	}
	order, err := s.order(ctx, j)
	if err != nil {
		return err
	}
	j.update(func() { j.order = order })
	err = s.persist(ctx, j, func() error {
		return order.Wait(ctx, func(p roles.Progress) error { return s.follow(ctx, j, order, p) })
	})
	if err != nil {
		return err
	}
	if err := s.keepLayout(ctx, j, order); err != nil {
		return err
	}
	return order.Deliver(ctx, func(mosaic io.Reader) error {
		return replace(s.shelf.root, file(j.ID, mosaicFile), func(w io.Writer) error {
			_, err := io.Copy(w, mosaic)
			return err
		})
	})
}

// persist repeats a step while the queue server or the blob store do not answer, and says so on the page.
func (s *Server) persist(ctx context.Context, j *job, step func() error) error {
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		err := step()
		if !queue.Transient(err) && !blob.Transient(err) {
			return err
		}
		s.logger.Warn("a mosaic has to wait", "job", j.ID, "error", err, "next_try_in", wait)
		j.update(func() { j.note = "The queue server or the roles do not answer. Trying again." })
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// order requests the mosaic, unless an earlier run did.
func (s *Server) order(ctx context.Context, j *job) (*roles.Order, error) {
	now := j.current()
	broker := s.options.System.Broker
	if now.Request != uuid.Nil {
		return broker.Resume(now.Request, now.Slices), nil
	}
	library, err := s.library(ctx, now.Tile, func(note string) { j.update(func() { j.note = note }) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTiles, err)
	}
	if err := s.libs.store(library); err != nil {
		return nil, err
	}
	var order *roles.Order
	submit := func(in io.Reader) (err error) {
		j.update(func() { j.State, j.note = measuring, "" })
		order, err = broker.Submit(ctx, roles.Request{
			ClientID: "web", Picture: in, Library: library, Slices: now.Slices,
			Scale: now.Scale, Tint: now.Tint, Reuse: now.Reuse,
		})
		return err
	}
	err = s.persist(ctx, j, func() error { return read(s.shelf.root, file(j.ID, pictureFile), submit) })
	if err != nil {
		return nil, err
	}
	j.update(func() { j.Request, j.Tiles, j.Photos = order.ID, library.Len(), s.options.Tiles })
	s.save(j)
	return order, nil
}

func (s *Server) follow(ctx context.Context, j *job, order *roles.Order, p roles.Progress) error {
	if p.Requested || len(p.Stored) > 0 {
		if err := s.keepLayout(ctx, j, order); err != nil {
			return err
		}
	}
	problem := ""
	if p.Poison != "" {
		problem = whyFailed(errors.New(p.Poison))
	}
	j.mu.Lock()
	had := 0
	for _, stored := range j.stored {
		if stored {
			had++
		}
	}
	same := had == len(p.Stored) && j.problem == problem && j.note == "" && (j.State != measuring || !p.Requested)
	j.mu.Unlock()
	if same {
		return nil
	}
	j.update(func() {
		j.note, j.problem = "", problem
		for _, i := range p.Stored {
			j.stored[i] = true
		}
		switch {
		case len(p.Stored) == p.Slices:
			j.State = composing
		case p.Requested || len(p.Stored) > 0:
			j.State = working
		}
	})
	return nil
}

// keepLayout stores the layout of a job, once.
func (s *Server) keepLayout(ctx context.Context, j *job, order *roles.Order) error {
	if _, err := s.shelf.root.Stat(file(j.ID, layoutFile)); err == nil {
		return nil
	}
	whole, err := order.Layout(ctx)
	if err != nil {
		return err
	}
	if err := replace(s.shelf.root, file(j.ID, layoutFile), whole.Write); err != nil {
		return err
	}
	j.update(func() { j.Distinct = whole.Distinct() })
	s.save(j)
	return nil
}

// tileSizes are the sizes of tiles that the page offers. They are few, because a library of each stays in memory.
var tileSizes = []int{8, 12, 16, 24, 32, 48, tiles.MaxSize}

// library returns the tiles of a size. The photographs are read once, and then shrunk.
func (s *Server) library(ctx context.Context, size int, say func(string)) (*tiles.Library, error) {
	p := &s.photos
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.whole == nil {
		say("Making the tiles.")
		var err error
		if p.folder == "" {
			p.whole, err = tiles.Generate(tiles.MaxSize)
		} else {
			p.whole, _, err = tiles.FromDir(ctx, p.folder, tiles.MaxSize, func(read, all int) {
				say(fmt.Sprintf("Reading photographs for the tiles: %s of %s.", cli.Grouped(int64(read)), cli.Grouped(int64(all))))
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return p.whole.Shrink(size)
}

// photos are the pictures of the tiles.
type photos struct {
	folder string

	mu    sync.Mutex // held while photographs are read
	whole *tiles.Library
}

// libraries are the tiles of the jobs: on disk, because the next run may have other photographs, and some of them in memory.
type libraries struct {
	root *os.Root

	mu    sync.Mutex // held while a library is read or shrunk
	drawn map[drawn]*tiles.Library
}

// drawn names a library with tiles of a size. The size 0 is its own.
type drawn struct {
	id   string
	size int
}

func tilesFile(id string) string { return path.Join(tilesFolder, id+".tiles") }

// store keeps a library for the zoom.
func (l *libraries) store(library *tiles.Library) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.root.Stat(tilesFile(library.ID())); err == nil {
		return nil
	}
	return replace(l.root, tilesFile(library.ID()), library.Write)
}

// get returns a library with tiles of a size, or of its own size for 0.
func (l *libraries) get(id string, size int) (*tiles.Library, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if library := l.drawn[drawn{id, size}]; library != nil {
		return library, nil
	}
	const most = 16
	if len(l.drawn) >= most || l.drawn == nil {
		l.drawn = make(map[drawn]*tiles.Library)
	}
	whole := l.drawn[drawn{id, 0}]
	if whole == nil {
		err := read(l.root, tilesFile(id), func(r io.Reader) (err error) {
			whole, err = tiles.Read(r)
			return err
		})
		if err != nil {
			return nil, err
		}
		l.drawn[drawn{id, 0}] = whole
	}
	if size == 0 {
		return whole, nil
	}
	small, err := whole.Shrink(size)
	if err == nil {
		l.drawn[drawn{id, size}] = small
	}
	return small, err
}
