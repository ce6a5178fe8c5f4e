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
				t.Errorf("%s: ids: got %v, want one id, not zero", name, ids)
			}
		}
	}
	broken := blob.Memory()
	if err := broken.Put(t.Context(), storeRef, strings.NewReader("no id")); err != nil {
		t.Fatal(err)
	}
	if id, err := identify(t.Context(), broken); err == nil {
		t.Errorf("invalid id in the store: got %v and no error, want an error", id)
	}
}

// at opens a process with another store on the queues of the world, without faults.
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

// isElsewhere checks that an error names the places of both stores.
func isElsewhere(t *testing.T, err error, here, there string, messages int64) {
	t.Helper()
	e := (*ElsewhereError)(nil)
	if !errors.As(err, &e) || *e != (ElsewhereError{here, there, messages}) {
		t.Errorf("got %v, want an ElsewhereError with the blobs in %s, not in %s, and %d messages", err, there, here, messages)
		return
	}
	for _, place := range []string{here, there} {
		if !strings.Contains(err.Error(), place) {
			t.Errorf("got error %v, want %q in it", err, place)
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
		t.Errorf("without messages left: got the error %v, want none", err)
	}
	first, err := w.at(theirs, a) // binds it back
	if err != nil {
		t.Fatal(err)
	}
	w.submit(first)
	_, err = w.at(mine, b)
	isElsewhere(t, err, b, a, 1)
	if _, err := w.at(theirs, a); err != nil {
		t.Errorf("with the same blobs: got the error %v, want none", err)
	}
	// A message that a worker has leased counts too.
	if _, err := w.queue(imageRequests).Dequeue(t.Context(), 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err = w.at(mine, b)
	isElsewhere(t, err, b, a, 1)
	if err := w.queue(imageRequests).Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.at(mine, b); err != nil {
		t.Errorf("after a clear: got the error %v, want none", err)
	}
}

// ordered is an order of a process, with the error of its Wait.
func (w *world) ordered(p *process) (*client, <-chan error) {
	c, ended := w.submit(p), make(chan error, 1)
	go func() { ended <- c.Wait(w.t.Context()) }()
	return c, ended
}

// untilMisled runs a process, as millrace.Run would, until it detects that it uses the wrong store,
// and returns its error.
func (w *world) untilMisled(p *process) error {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runAll(ctx, p.Runners()) }()
	<-p.Broker.misled
	stop()
	return <-ended
}

// TestADifferentStoreIsDetectedSoon starts two programs with different stores at the same moment,
// before either has sent a message. The account is bound to the later one. The other one ends, whether
// it receives a message of the later one or its own order makes no progress.
func TestADifferentStoreIsDetectedSoon(t *testing.T) {
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
					t.Errorf("time until the mismatch was detected: got %v, want at most %v", took, 10*time.Second)
				}
				<-c.finished
				w.check(c)
				winner.end()
				if log := winner.log.String(); strings.Count(log, "level=WARN") > 1 {
					t.Errorf("log: got %s, want at most one record", log)
				}
			})
		})
	}
}

// plainQueue hides that a queue is a [queue.Manager].
type plainQueue struct{ queue.Queue }

// An account that cannot be bound is used all the same. The messages show which store they use.
func TestAnAccountThatCannotBeBoundIsUsed(t *testing.T) {
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
			t.Errorf("log: got %s, want \"cannot be bound\" in it", log)
		}
		w.submit(one)
		isElsewhere(t, w.untilMisled(other), "/other", "", 0)
		if d := w.depth(); d != 1 {
			t.Errorf("messages left: got %d, want 1, of the other program", d)
		}
	})
}

// A program that is overtaken by another one while it binds an unbound account is refused.
func TestAnAccountThatAnotherProgramBindsMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t, 0)
	_, err := w.atQueues(blob.Memory(), "/slow", func(name string) (queue.Queue, error) { return overtakenQueue{w.queue(name)}, nil })
	isElsewhere(t, err, "/slow", "/quick", 0)
}

// overtakenQueue is a queue whose metadata another program sets right after this one.
type overtakenQueue struct{ queue.Manager }

func (q overtakenQueue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	if err := q.Manager.SetMetadata(ctx, metadata); err != nil {
		return err
	}
	return q.Manager.SetMetadata(ctx, map[string]string{boundStore: uuid.NewString(), boundPlace: "/quick"})
}

// deniedQueue is a queue that refuses to set its metadata.
type deniedQueue struct{ queue.Manager }

func (q deniedQueue) SetMetadata(context.Context, map[string]string) error {
	return &queue.Error{Op: "set metadata", Queue: q.Name(), Kind: queue.ErrUnauthorized}
}

// Messages of earlier releases have no store id and are handled.
func TestMessagesOfEarlierReleasesAreHandled(t *testing.T) {
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
