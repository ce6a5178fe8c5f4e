package roles

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// clean runs Clean on the world.
func (w *world) clean(dry bool) Cleaned {
	w.t.Helper()
	done, err := Clean(w.t.Context(), func(name string) (queue.Queue, error) { return w.queue(name), nil }, w.store, dry)
	if err != nil {
		w.t.Fatal(err)
	}
	return done
}

// put stores a blob.
func (w *world) put(ref blob.Ref, text string) {
	w.t.Helper()
	if err := w.store.Put(w.t.Context(), ref, strings.NewReader(text), nil); err != nil {
		w.t.Fatal(err)
	}
}

// has checks which blobs of requests and libraries are left.
func (w *world) has(want ...blob.Ref) {
	w.t.Helper()
	got := w.blobs()
	for b, err := range w.store.List(w.t.Context(), imageLibrary, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		got = append(got, b.Ref.Container+"/"+b.Ref.Name)
	}
	var names []string
	for _, ref := range want {
		names = append(names, ref.Container+"/"+ref.Name)
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		w.t.Errorf("blobs: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(names, "\n"))
	}
}

func TestCleanKeepsWhatMayBeUsedAndRemovesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		ended, killed, young, kept, library := uuid.New(), uuid.New(), uuid.New(), uuid.New(), libraryRef("lib")
		w.put(library, "tiles")
		w.put(inputRef(ended), "late")
		w.put(endRef(ended), "{}")
		w.put(inputRef(killed), "12345")
		w.put(cutRef(killed, 0), "x")
		w.put(stateRef(killed, factPlan), "{}")
		output := outputRef(kept)
		w.put(output, "mosaic")
		w.put(endRef(kept), `{"output":"`+output.String()+`"}`)
		time.Sleep(CleanAge + time.Minute)
		w.put(inputRef(young), "x")
		foreign := blob.Ref{Container: imageInput, Name: "notes.txt"}
		w.put(foreign, "not ours")

		all := []blob.Ref{library, inputRef(ended), endRef(ended), inputRef(killed), cutRef(killed, 0), stateRef(killed, factPlan), output, endRef(kept), inputRef(young), foreign}
		dry := w.clean(true)
		w.has(all...)
		done := w.clean(false)
		w.has(output, endRef(kept), inputRef(young), foreign)
		for name, c := range map[string]Cleaned{"dry run": dry, "run": done} {
			if c.Requests != 2 || c.Blobs != 6 || c.Bytes != 4+2+5+1+2+5 || len(c.Kept) != 2 {
				t.Errorf("%s: got %+v; want two requests and a library, with 6 blobs of 19 bytes, and 2 kept", name, c)
			}
		}
		if why := strings.Join(done.Kept, "\n"); !strings.Contains(why, output.String()) || !strings.Contains(why, young.String()) {
			t.Errorf("kept: got %s, want where the mosaic is, and the young request", why)
		}
		time.Sleep(CleanAge + time.Minute)
		if last := w.clean(false); last.Requests != 1 {
			t.Errorf("an hour later: got %+v, want one request", last)
		}
		w.has(output, endRef(kept), foreign)
		if again := w.clean(false); again.Blobs != 0 {
			t.Errorf("again: got %+v, want nothing removed", again)
		}
	})
}

// A request that has a message is kept, whichever queue it is in and whether the message can be seen or not.
func TestCleanKeepsRequestsOfMessages(t *testing.T) {
	for _, name := range allQueues {
		for kind, hide := range map[string]time.Duration{"visible": 0, "hidden": 24 * time.Hour} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 0)
					id := uuid.New()
					w.put(inputRef(id), "x")
					w.put(libraryRef("lib"), "tiles")
					ended := endRef(uuid.New())
					w.put(ended, "{}")
					if _, err := w.queue(name).Enqueue(t.Context(), `{"requestId":"`+id.String()+`"}`, &queue.EnqueueOptions{Delay: hide}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * CleanAge)
					done := w.clean(false)
					w.has(inputRef(id), libraryRef("lib"), ended) // the message may be of any request
					if len(done.Kept) != 1 || !strings.Contains(done.Kept[0], id.String()) {
						t.Errorf("kept: got %+v, want the request of the message", done.Kept)
					}
					if err := w.queue(name).Clear(t.Context()); err != nil {
						t.Fatal(err)
					}
					w.clean(false)
					w.has()
				})
			})
		}
	}
}

// A library that was stored long ago is stored again for a new request, so that Clean does not take it for
// abandoned while the request is submitted.
func TestALibraryThatIsUsedAgainIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.submit(p)
		time.Sleep(2 * CleanAge)
		w.submit(p)
		info, err := w.store.Stat(t.Context(), libraryRef(testLibrary(t).ID()))
		if err != nil || time.Since(info.Modified) > CleanAge/2 {
			t.Errorf("library: got age %v, %v; want it stored again", time.Since(info.Modified), err)
		}
	})
}
