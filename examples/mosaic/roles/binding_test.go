package roles

import (
	"bytes"
	"context"
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
	if err := broken.Put(t.Context(), storeRef, strings.NewReader("no id"), nil); err != nil {
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
		Processors: 3, Grace: 2 * time.Second, Patience: 10 * time.Minute, Place: place,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	p.System = s
	return p, err
}

// told counts the warnings of a process that others use other blobs, and checks that they name both places.
func told(t *testing.T, p *process, here, there string) (n int) {
	t.Helper()
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, "with other blobs") {
			t.Errorf("log: got %s, want nothing else", line)
			continue
		}
		n++
		for _, place := range []string{here, there} {
			if !strings.Contains(line, place) {
				t.Errorf("log: got %s, want %q in it", line, place)
			}
		}
	}
	return n
}

func TestAProgramSaysThatAnAccountIsInUseWithOtherBlobs(t *testing.T) {
	w := newWorld(t, 7)
	mine, theirs := blob.Memory(), blob.Memory()
	const a, b = "/dév/a b on x", "/b on y"
	opened := func(store blob.Store, place string, warnings int) *process {
		t.Helper()
		p, err := w.at(store, place)
		if err != nil {
			t.Fatal(err)
		}
		other := map[string]string{a: b, b: a}[place]
		if n := told(t, p, place, other); n != warnings {
			t.Errorf("warnings of the program with %s: got %d, want %d", place, n, warnings)
		}
		return p
	}
	opened(theirs, a, 0)
	if p, err := w.queue(imageRequests).Properties(t.Context()); err != nil || p.Metadata["PoisonThreshold"] != "7" || p.Metadata[boundStore] == "" {
		t.Errorf("metadata: got %v, %v; want PoisonThreshold 7, the binding of the store and no error", p.Metadata, err)
	}
	opened(mine, b, 0) // no messages are left
	first := opened(theirs, a, 0)
	w.submit(first)
	opened(mine, b, 1)
	opened(theirs, a, 0)
	// A message that a worker has leased counts too.
	if _, err := w.queue(imageRequests).Dequeue(t.Context(), 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	opened(mine, b, 1)
	if err := w.queue(imageRequests).Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened(mine, b, 0)
}

// Two programs with different stores work on the same queues at the same time. Each makes its own mosaics,
// says once that there is another program, and makes nothing of the other poison.
func TestProgramsWithDifferentBlobsDoNotDisturbEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		places := []string{"/one", "/other"}
		var processes []*process
		for _, place := range places {
			p, err := w.at(blob.Memory(), place)
			if err != nil {
				t.Fatal(err)
			}
			processes = append(processes, p)
			w.start(p)
		}
		var orders []*client
		for range 3 {
			for _, p := range processes {
				c, _ := w.ordered(p)
				orders = append(orders, c)
			}
		}
		for _, c := range orders {
			<-c.finished
			if _, err := c.Finished(); err != nil {
				t.Fatalf("order: got the error %v, want none; %d left, %d poison; logs: %s %s", err, w.depth(), w.poisoned(), processes[0].log, processes[1].log)
			}
			w.check(c)
		}
		w.settle()
		if n := w.poisoned(); n != 0 {
			t.Errorf("poison messages: got %d, want 0", n)
		}
		for i, p := range processes {
			p.end()
			// The place of the other one is known only to the program that did not bind the account last.
			if n := told(t, p, places[i], ""); n != 1 {
				t.Errorf("warnings of %s: got %d, want 1", places[i], n)
			}
		}
	})
}

// A program leaves the messages of a program that does not run, however long, and that one finishes its
// request when it comes back.
func TestMessagesOfAnAbsentProgramAreLeftToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		store := blob.Memory()
		absent, err := w.at(store, "/absent")
		if err != nil {
			t.Fatal(err)
		}
		c := w.submit(absent)
		present, err := w.at(blob.Memory(), "/present")
		if err != nil {
			t.Fatal(err)
		}
		w.start(present)
		time.Sleep(24 * time.Hour)
		own, _ := w.ordered(present)
		<-own.finished
		w.check(own)
		present.end()
		if n := told(t, present, "/present", "/absent"); n != 1 {
			t.Errorf("warnings: got %d, want 1", n)
		}
		if d, p := w.depth(), w.poisoned(); d != 1 || p != 0 {
			t.Errorf("messages left and poison: got %d and %d, want 1 and 0", d, p)
		}
		w.start(absent)
		go func() { _ = c.Wait(t.Context()) }()
		<-c.finished
		w.check(c)
		absent.end()
	})
}

// ordered is an order of a process, with the error of its Wait.
func (w *world) ordered(p *process) (*client, <-chan error) {
	c, ended := w.submit(p), make(chan error, 1)
	go func() { ended <- c.Wait(w.t.Context()) }()
	return c, ended
}

// plainQueue hides that a queue is a [queue.Manager].
type plainQueue struct{ queue.Queue }

// An account that cannot be bound is used all the same. The messages show which store they use.
func TestAnAccountThatCannotBeBoundIsUsed(t *testing.T) {
	for name, limit := range map[string]func(q queue.Manager) queue.Queue{
		"no manager": func(q queue.Manager) queue.Queue { return plainQueue{q} },
		"denied":     func(q queue.Manager) queue.Queue { return deniedQueue{q} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				open := func(name string) (queue.Queue, error) { return limit(w.queue(name)), nil }
				one, err := w.atQueues(blob.Memory(), "/one", open)
				if err != nil {
					t.Fatal(err)
				}
				other, err := w.atQueues(blob.Memory(), "/other", open)
				if err != nil {
					t.Fatal(err)
				}
				w.start(one)
				w.start(other)
				c, _ := w.ordered(one)
				<-c.finished
				w.check(c)
				one.end()
				other.end()
				if n := told(t, other, "/other", "another place"); n > 1 {
					t.Errorf("warnings: got %d, want at most 1", n)
				}
			})
		})
	}
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
		if err := w.store.Put(t.Context(), inputRef(id), &img, nil); err != nil {
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
