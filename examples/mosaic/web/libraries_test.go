package web

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// photographs are the fields of a form with n pictures of one colour each.
func photographs(n int) (all []field) {
	for i := range n {
		all = append(all, field{name: "pictures", file: fmt.Sprintf("../../%d.png", i), value: string(plainPNG(color.RGBA{uint8(i * 90), 0, 200, 255}))})
	}
	return all
}

// upload sends a library and returns its key.
func (s *site) upload(n int) string {
	s.t.Helper()
	r := s.post("/libraries", append(photographs(n), field{name: "name", value: "../Holiday"})...)
	if r.status != http.StatusCreated {
		s.t.Fatalf("POST /libraries: got %d %s, want 201", r.status, r.body)
	}
	if v := r.json(s.t); v["name"] != "Holiday" || v["pictures"] != float64(n) {
		s.t.Errorf("library: got %v, want its name without a path, and %d pictures", v, n)
	}
	return r.json(s.t)["key"].(string)
}

// with is the form of a small job with another library.
func (s *site) with(library string) []field {
	return append([]field{{name: "library", value: library}}, s.small()[0], s.small()[2])
}

func TestAnUploadedLibraryIsUsedAndSurvivesARestart(t *testing.T) {
	w := setup(t)
	s := w.serve(nil)
	key := s.upload(3)
	s.stop()
	s = w.serve(nil)
	id := s.make(s.with(key)...)
	if end := s.until(id, done); end.Tiles != 3 || end.Library != key {
		t.Errorf("job: got %d tiles of %s, want the 3 of %s", end.Tiles, end.Library, key)
	}
	if cell := s.want(http.StatusOK, "/jobs/"+id+"/cells/0/0").json(t); strings.ContainsAny(cell["name"].(string), "/\\") {
		t.Errorf("cell: got the name %q", cell["name"])
	}
	// The job keeps its tiles when the library is deleted.
	if r := s.post("/libraries/" + key + "/delete"); r.status != http.StatusOK {
		t.Fatalf("delete: got %d %s", r.status, r.body)
	}
	if got := w.entries(librariesFolder); len(got) != 0 {
		t.Errorf("libraries: got %q, want none", got)
	}
	s.want(http.StatusOK, "/jobs/"+id+"/zoom/0/0/0")
	decodeJPEG(t, s.want(http.StatusOK, s.want(http.StatusOK, "/jobs/"+id+"/cells/1/1").json(t)["preview"].(string)))
	for _, other := range []string{key, generated, folderKey(w.tiles), "..", "none"} {
		if r := s.post("/libraries/" + other + "/delete"); r.status < 300 {
			t.Errorf("delete of %q: got %d, want it refused", other, r.status)
		}
	}
}

// A job that waits for its turn has not read its library yet.
func TestALibraryThatAJobWaitsForIsNotDeleted(t *testing.T) {
	w := setup(t)
	s := w.serve(func(o *Options) { o.Limits.Running = 1 })
	key := s.upload(2)
	pass := w.store.hold()
	first := s.make(s.small()...)
	s.until(first, working)
	second := s.make(s.with(key)...)
	if r := s.post("/libraries/" + key + "/delete"); r.status != http.StatusConflict {
		t.Errorf("delete: got %d %s, want 409", r.status, r.body)
	}
	pass(-1)
	s.until(second, done)
	if r := s.post("/libraries/" + key + "/delete"); r.status != http.StatusOK {
		t.Errorf("delete after the job: got %d %s, want 200", r.status, r.body)
	}
}

func TestLibrariesAreLimited(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		status int
	}{
		{"pictures", Limits{Pictures: 2}, http.StatusRequestEntityTooLarge},
		{"a picture", Limits{Upload: 50}, http.StatusRequestEntityTooLarge},
		{"bytes", Limits{Collected: 1}, http.StatusCreated}, // three small ones are within what is around the files
		{"disk", Limits{Disk: 300}, http.StatusInsufficientStorage},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup(t).serve(func(o *Options) { o.Limits = c.limits })
			r := s.post("/libraries", photographs(3)...)
			if r.status != c.status {
				t.Errorf("got %d %s, want %d", r.status, r.body, c.status)
			}
			if c.limits.Disk > 0 && !strings.Contains(r.failure(t), "so many pictures") {
				t.Errorf("got %s, want it refused before all is read", r.body)
			}
			if c.status != http.StatusCreated {
				s.clean()
			}
		})
	}
	t.Run("number", func(t *testing.T) {
		s := setup(t).serve(func(o *Options) { o.Limits.Libraries = 1 })
		s.upload(1)
		if r := s.post("/libraries", photographs(1)...); r.status != http.StatusConflict {
			t.Errorf("second library: got %d %s, want 409", r.status, r.body)
		}
	})
}

// What came of an upload that ends early is not kept until the next start.
func TestALibraryThatIsCutShortLeavesNothing(t *testing.T) {
	s := setup(t).serve(nil)
	body, kind := multipartForm(photographs(3)...)
	for _, n := range []int{bytes.Index(body.Bytes(), []byte("PNG")) + 20, bytes.LastIndex(body.Bytes(), []byte("PNG")) + 20, body.Len() - 4} {
		if r := s.do(http.MethodPost, "/libraries", bytes.NewReader(body.Bytes()[:n]), "Content-Type", kind); r.status != http.StatusBadRequest {
			t.Errorf("the first %d bytes: got %d %s, want 400", n, r.status, r.body)
		}
	}
	s.clean()
}

// The limit is for what jobs will take, not only for what they have.
func TestTheDiskIsPromisedOnce(t *testing.T) {
	w := setup(t)
	s := w.serve(func(o *Options) { o.Limits.Disk = 100_000_000 })
	w.store.hold()
	large := func() []field { return append(s.small(), field{name: "scale", value: "4"}) }
	s.limits.Disk = s.used() + 3*128*96*3/2 + 5_000 // for one and a half of them
	s.make(large()...)
	if r := s.post("/jobs", large()...); r.status != http.StatusInsufficientStorage {
		t.Errorf("second job: got %d %s, want 507", r.status, r.body)
	}
}

// The last job of a library is deleted while another one takes its tiles: they must be there for it.
func TestTilesAreNotDeletedThatAJobJustTakes(t *testing.T) {
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	j := s.shelf.find(id)
	library, err := s.libraryOf(j.current().LibraryID, 0)
	if err != nil {
		t.Fatal(err)
	}
	j.update(func() { j.LibraryID = "" }) // as if another job had used it before
	s.admission.Lock()
	begun, dropped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(dropped)
		close(begun)
		s.dropTiles(library.ID())
	}()
	<-begun
	for range 10_000 {
		runtime.Gosched() // it must not delete anything now
	}
	_, err = s.root.Stat(tilesFile(library.ID()))
	j.update(func() { j.LibraryID = library.ID() })
	s.admission.Unlock()
	<-dropped
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{tilesFile(library.ID()), sourceFile(library.ID())} {
		if _, err := s.root.Stat(name); err != nil {
			t.Errorf("after both: got %v, want the tiles of the job", err)
		}
	}
}

// Blobs and queues in the folder of the data are on the same disk.
func TestTheDiskLimitCountsBlobsAndQueues(t *testing.T) {
	w := setup(t)
	blobs, queues := t.TempDir(), t.TempDir()
	fill := func(folder string) string {
		name := filepath.Join(folder, "deeper", "file")
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, make([]byte, 1_000_000), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var unused []string // what reclaiming removes
	s := w.serve(func(o *Options) {
		o.Blobs, o.Queues, o.Limits.Disk = blobs, queues, 1_000_000
		o.Reclaim = func(context.Context) error {
			for _, name := range unused {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
			unused = nil
			return nil
		}
	})
	for _, folder := range []string{blobs, queues} {
		name := fill(folder)
		r := s.post("/jobs", s.small()...)
		if r.status != http.StatusInsufficientStorage || !strings.Contains(r.failure(t), "1 MB are used") {
			t.Errorf("job: got %d %s, want 507 with what is used", r.status, r.body)
		}
		if r := s.post("/libraries", photographs(1)...); r.status != http.StatusInsufficientStorage {
			t.Errorf("library: got %d %s, want 507", r.status, r.body)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	// What nobody needs and what can be made again gives way.
	unused = []string{fill(blobs)}
	if err := os.WriteFile(filepath.Join(w.data, cacheFolder, "tile"), make([]byte, 1_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.make(s.small()...)
	s.until(id, done)
	// Its tiles are stored twice.
	s.limits.Disk = s.used() + 12*8*8*4
	larger := append(s.small(), field{name: "tile", value: "8"})
	forPeople(t, "no room for tiles", s.until(s.make(larger...), failed).Error, "Delete some")
}
