package roles

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
)

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

func TestCleanDeletesWhatIsOldAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		id, young := uuid.New(), uuid.New()
		for i, ref := range []blob.Ref{
			libraryRef("lib"), inputRef(id), cutRef(id, 0), laidRef(id, 0), endRef(id), stateRef(id, factPlan), outputRef(id),
		} {
			w.put(ref, strings.Repeat("x", 1<<i))
		}
		foreign := []blob.Ref{{Container: imageInput, Name: "notes.txt"}, {Container: imageLibrary, Name: "books.txt"}, {Container: "elsewhere", Name: id.String()}}
		for _, ref := range foreign {
			w.put(ref, "not ours")
		}
		time.Sleep(CleanAge)
		w.put(inputRef(young), "x")
		for _, want := range []int{7, 0} {
			blobs, bytes, err := Clean(t.Context(), w.store)
			if err != nil || blobs != want || bytes != 1<<want-1 {
				t.Errorf("got %d blobs of %d bytes, %v; want %d of %d", blobs, bytes, err, want, 1<<want-1)
			}
			w.has(foreign[0], foreign[1], inputRef(young))
			if there, err := blob.Exists(t.Context(), w.store, foreign[2]); err != nil || !there {
				t.Errorf("blob of another container: got %v, %v; want it kept", there, err)
			}
		}
	})
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
