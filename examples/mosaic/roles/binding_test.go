package roles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/queue"
)

func TestAStoreHasOneID(t *testing.T) {
	dir, err := blob.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, store := range map[string]blob.Store{"memory": blob.Memory(), "directory": dir} {
		var wg sync.WaitGroup
		ids := make([]uuid.UUID, 8)
		for i := range ids {
			wg.Go(func() {
				var err error
				if ids[i], err = identify(t.Context(), store); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] || id == uuid.Nil {
				t.Errorf("%s: the ids are %v; want id %v, id not %v", name, ids, ids[0], uuid.Nil)
			}
		}
	}
	broken := blob.Memory()
	if err := broken.Put(t.Context(), storeRef, strings.NewReader("no id")); err != nil {
		t.Fatal(err)
	}
	if id, err := identify(t.Context(), broken); err == nil {
		t.Errorf("what is no id is taken for %v; want an error", id)
	}
}

// at opens a process whose blobs are in a store of its own, on the queues themselves.
func (w *world) at(store blob.Store, place string) (*process, error) {
	return w.atQueues(store, place, func(name string) (queue.Queue, error) { return w.queue(name), nil })
}

func (w *world) atQueues(store blob.Store, place string, open func(string) (queue.Queue, error)) (*process, error) {
	p := &process{log: &lockedBuffer{}}
	s, err := Open(w.t.Context(), open, store, &Options{
		Processors: 3, Grace: 2 * time.Second, Patience: 24 * time.Hour, Place: place,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	p.System = s
	return p, err
}

// isElsewhere holds that an error says where the blobs of both are.
func isElsewhere(t *testing.T, err error, here, there string, messages int64) {
	t.Helper()
	e := (*ElsewhereError)(nil)
	if !errors.As(err, &e) || *e != (ElsewhereError{here, there, messages}) {
		t.Errorf("got %v, want the blobs in %s and not in %s, with %d messages", err, there, here, messages)
		return
	}
	for _, place := range []string{here, there} {
		if !strings.Contains(err.Error(), place) {
			t.Errorf("it does not say %q: %v", place, err)
		}
	}
}

func TestAnAccountInUseWithOtherBlobsIsRefused(t *testing.T) {
	w := newWorld(t, 7)
	mine, theirs := blob.Memory(), blob.Memory()
	const a, b = "/dév/a b on x", "/b on y"
	if _, err := w.at(theirs, a); err != nil {
		t.Fatal(err)
	}
	if p, err := w.queue(imageRequests).Properties(t.Context()); err != nil || p.Metadata["PoisonThreshold"] != "7" || p.Metadata[boundStore] == "" {
		t.Errorf("metadata: got %v, %v; want PoisonThreshold 7, the binding of the store and no error", p.Metadata, err)
	}
	if _, err := w.at(mine, b); err != nil {
		t.Errorf("with no message left: %v; want no error", err)
	}
	first, err := w.at(theirs, a) // and back
	if err != nil {
		t.Fatal(err)
	}
	w.submit(first)
	_, err = w.at(mine, b)
	isElsewhere(t, err, b, a, 1)
	if _, err := w.at(theirs, a); err != nil {
		t.Errorf("with the same blobs: %v; want no error", err)
	}
	// A message that a worker has is left too.
	if _, err := w.queue(imageRequests).Dequeue(t.Context(), 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err = w.at(mine, b)
	isElsewhere(t, err, b, a, 1)
	if err := w.queue(imageRequests).Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.at(mine, b); err != nil {
		t.Errorf("after a clear: %v; want no error", err)
	}
}

// ordered is an order of a process, and how its Wait ended.
func (w *world) ordered(p *process) (*client, <-chan error) {
	c, ended := w.submit(p), make(chan error, 1)
	go func() { ended <- c.Wait(w.t.Context()) }()
	return c, ended
}

// untilMisled runs a process until it finds out that it looks in the wrong place, as
// millrace.Run would, and returns how it ended.
func (w *world) untilMisled(p *process) error {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runAll(ctx, p.Runners()) }()
	<-p.Broker.misled
	stop()
	return <-ended
}

// TestBlobsElsewhereAreFoundOutAtOnce has two programs that began at the same moment, before
// either had sent a message: the account is bound to the one that came last. The other ends,
// whether it meets a message of the one or only misses its own.
func TestBlobsElsewhereAreFoundOutAtOnce(t *testing.T) {
	for name, meets := range map[string]bool{"and meets": true, "and waits": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				loser, err := w.at(blob.Memory(), "/loser")
				if err != nil {
					t.Fatal(err)
				}
				winner, err := w.at(blob.Memory(), "/winner")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				var c *client
				if meets {
					c, _ = w.ordered(winner)
					isElsewhere(t, w.untilMisled(loser), "/loser", "/winner", 0)
					w.start(winner)
				} else {
					w.start(winner)
					_, lost := w.ordered(loser)
					isElsewhere(t, <-lost, "/loser", "/winner", 0)
					c, _ = w.ordered(winner)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("it was found out after %v; want at most %v", took, 10*time.Second)
				}
				<-c.finished
				w.check(c)
				winner.end()
				if log := winner.log.String(); strings.Count(log, "level=WARN") > 1 {
					t.Errorf("it is said more than once: %s; want at most 1", log)
				}
			})
		})
	}
}

// plainQueue is a queue that is no [queue.Manager].
type plainQueue struct{ queue.Queue }

// TestAnAccountThatCannotBeBound is worked on, and messages tell whose blobs are elsewhere.
func TestAnAccountThatCannotBeBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		plain := func(name string) (queue.Queue, error) { return plainQueue{w.queue(name)}, nil }
		one, err := w.atQueues(blob.Memory(), "/one", plain)
		if err != nil {
			t.Fatal(err)
		}
		denied := func(name string) (queue.Queue, error) { return deniedQueue{w.queue(name)}, nil }
		other, err := w.atQueues(blob.Memory(), "/other", denied)
		if err != nil {
			t.Fatal(err)
		}
		if log := other.log.String(); !strings.Contains(log, "cannot be bound") {
			t.Errorf("nothing is said of it: %s; want log with \"cannot be bound\"", log)
		}
		w.submit(one)
		isElsewhere(t, w.untilMisled(other), "/other", "", 0)
		if d := w.depth(); d != 1 {
			t.Errorf("%d messages are left, want the one of the other program", d)
		}
	})
}

// TestAnAccountThatAnotherBindsMeanwhile is not ours, though nobody was there before.
func TestAnAccountThatAnotherBindsMeanwhile(t *testing.T) {
	w := newWorld(t, 0)
	_, err := w.atQueues(blob.Memory(), "/slow", func(name string) (queue.Queue, error) { return overtakenQueue{w.queue(name)}, nil })
	isElsewhere(t, err, "/slow", "/quick", 0)
}

// overtakenQueue is one whose metadata another program sets right after this one.
type overtakenQueue struct{ queue.Manager }

func (q overtakenQueue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	if err := q.Manager.SetMetadata(ctx, metadata); err != nil {
		return err
	}
	return q.Manager.SetMetadata(ctx, map[string]string{boundStore: uuid.NewString(), boundPlace: "/quick"})
}

// deniedQueue is one whose metadata may not be set.
type deniedQueue struct{ queue.Manager }

func (q deniedQueue) SetMetadata(context.Context, map[string]string) error {
	return &queue.Error{Op: "set metadata", Queue: q.Name(), Kind: queue.ErrUnauthorized}
}

// TestMessagesOfEarlierReleases do not say where their blobs are, and are worked on.
func TestMessagesOfEarlierReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p, err := w.at(w.store, "/here")
		if err != nil {
			t.Fatal(err)
		}
		id, library := uuid.New(), testLibrary(t)
		var img bytes.Buffer
		if err := picture.Encode(&img, testPicture(), testPicture().Bounds(), picture.PNG); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Put(t.Context(), inputRef(id), &img); err != nil {
			t.Fatal(err)
		}
		if err := p.Broker.putLibrary(t.Context(), libraryRef(library.ID()), library); err != nil {
			t.Fatal(err)
		}
		head := p.Broker.queues.imageRequests.Head("x", id)
		head.Blobs = uuid.Nil
		err = p.Broker.queues.imageRequests.Submit(t.Context(), ImageRequest{Head: head, ImageURI: inputRef(id), ImageLibraryURI: libraryRef(library.ID()), TileSize: testTile, Slices: testSlices, OutputFormat: "PNG"})
		if err != nil {
			t.Fatal(err)
		}
		w.start(p)
		w.settle()
		p.end()
		r, err := w.store.Open(t.Context(), outputRef(id, picture.PNG))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Error(err)
		}
	})
}
