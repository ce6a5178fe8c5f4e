package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/mosaic/roles"
)

func decodeJPEG(t *testing.T, r reply) image.Image {
	t.Helper()
	if got := r.header.Get("Content-Type"); got != "image/jpeg" {
		t.Fatalf("content type: got %q, want a JPEG", got)
	}
	img, err := jpeg.Decode(bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// different returns the mean difference of two pictures of the same size, 0 to 255 a channel.
func different(t *testing.T, a, b image.Image, r image.Rectangle, at image.Point) float64 {
	t.Helper()
	if a.Bounds().Size() != r.Size() {
		t.Fatalf("size: got %v, want %v", a.Bounds().Size(), r.Size())
	}
	sum, abs := 0, func(n int) int { return max(n, -n) }
	for y := range r.Dy() {
		for x := range r.Dx() {
			p := color.RGBAModel.Convert(a.At(a.Bounds().Min.X+x, a.Bounds().Min.Y+y)).(color.RGBA)
			q := color.RGBAModel.Convert(b.At(at.X+x, at.Y+y)).(color.RGBA)
			sum += abs(int(p.R)-int(q.R)) + abs(int(p.G)-int(q.G)) + abs(int(p.B)-int(q.B))
		}
	}
	return float64(sum) / float64(3*r.Dx()*r.Dy())
}

func TestAMosaicIsMadeAndShown(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	id := s.make(field{name: "picture", file: "Sünset.PNG", value: string(picturePNG(320, 200))}, field{name: "tile", value: "8"}, field{name: "scale", value: "1.5"}, field{name: "tint", value: "10"}, field{name: "reuse", value: "100"})
	end := s.until(id, done)
	if end.Tile != 8 || end.Scale != 1.5 || end.Tint != 10 || end.Reuse != 100 || end.MosaicWidth != end.Cols*8 || end.Distinct < 2 || end.Tiles != 12 || end.Seconds <= 0 || end.Photos != "" {
		t.Errorf("job: got %+v, want the chosen settings, and what was found and used", end)
	}

	// The mosaic.
	r := s.want(http.StatusOK, "/jobs/"+id+"/mosaic")
	mosaic, err := png.Decode(bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if got := mosaic.Bounds().Size(); got != image.Pt(end.MosaicWidth, end.MosaicHeight) {
		t.Errorf("mosaic: got %v, want %d×%d", got, end.MosaicWidth, end.MosaicHeight)
	}
	if got := r.header.Get("Content-Disposition"); got != `attachment; filename*=utf-8''S%C3%BCnset%20mosaic.png` {
		t.Errorf("disposition: got %q", got)
	}

	// All squares of the first level are the mosaic; the other levels are smaller.
	var zoom struct {
		Tile   int     `json:"tile"`
		Levels []level `json:"levels"`
	}
	if err := json.Unmarshal(s.want(http.StatusOK, "/jobs/"+id+"/zoom").body, &zoom); err != nil {
		t.Fatal(err)
	}
	if len(zoom.Levels) != 2 || zoom.Tile != side || zoom.Levels[0] != (level{Width: end.MosaicWidth, Height: end.MosaicHeight, Scale: 1}) || zoom.Levels[1] != (level{Width: end.MosaicWidth / 2, Height: end.MosaicHeight / 2, Scale: 0.5}) {
		t.Fatalf("zoom: got %+v, want the mosaic and one half as large, which fits into a square", zoom)
	}
	for n, l := range zoom.Levels {
		for y := 0; y*side < l.Height; y++ {
			for x := 0; x*side < l.Width; x++ {
				square := decodeJPEG(t, s.want(http.StatusOK, fmt.Sprintf("/jobs/%s/zoom/%d/%d/%d", id, n, x, y)))
				part := image.Rect(x*side, y*side, min((x+1)*side, l.Width), min((y+1)*side, l.Height))
				if square.Bounds().Size() != part.Size() {
					t.Errorf("level %d, square %d/%d: got %v, want %v", n, x, y, square.Bounds().Size(), part.Size())
				} else if n == 0 {
					if d := different(t, square, mosaic, part, part.Min); d > 20 {
						t.Errorf("square %d/%d: differs from the mosaic by %.1f", x, y, d)
					}
				}
			}
		}
	}

	// Slices are parts of the mosaic, and the original is the picture.
	for i, one := range end.Slices {
		part := image.Rect(0, one.First*8, end.MosaicWidth, one.End*8)
		if d := different(t, decodeJPEG(t, s.want(http.StatusOK, fmt.Sprintf("/jobs/%s/slices/%d", id, i))), mosaic, part, part.Min); d > 20 {
			t.Errorf("slice %d: differs from the mosaic by %.1f", i, d)
		}
	}
	if got := decodeJPEG(t, s.want(http.StatusOK, "/jobs/"+id+"/original")).Bounds().Size(); got != image.Pt(320, 200) {
		t.Errorf("original: got %v, want 320×200", got)
	}
	if end.Width != 320 || end.Height != 200 {
		t.Errorf("size of the picture: got %d×%d, want 320×200", end.Width, end.Height)
	}

	// The photograph in a cell.
	cell := s.want(http.StatusOK, fmt.Sprintf("/jobs/%s/cells/%d/%d", id, end.Cols-1, end.Rows-1)).json(t)
	preview := decodeJPEG(t, s.want(http.StatusOK, cell["preview"].(string)))
	if b := preview.Bounds(); !strings.HasSuffix(cell["name"].(string), ".png") || b.Dx() != 80 {
		t.Errorf("cell: got %v with a preview of %v, want the photograph of 80 pixels", cell, b)
	}
}

func TestAddressesBeyondAMosaicAreNotFound(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	id := s.make(s.small()...)
	end := s.until(id, done)
	for _, path := range []string{
		"/jobs/none", "/jobs/none/events", "/jobs/none/mosaic", "/jobs/none/original", "/jobs/none/zoom", "/jobs/none/slices/0",
		"/jobs/" + id + "/slices/-1", "/jobs/" + id + "/slices/+1", "/jobs/" + id + "/slices/00", "/jobs/" + id + fmt.Sprintf("/slices/%d", len(end.Slices)),
		"/jobs/" + id + "/zoom/9/0/0", "/jobs/" + id + "/zoom/0/1/0", "/jobs/" + id + "/zoom/0/0/99999999999999999999",
		"/jobs/" + id + "/cells/8/0", "/jobs/" + id + "/cells/0/6", "/jobs/" + id + "/cells/x/0",
		"/jobs/" + id + "/job.json", "/jobs/" + id + "/picture", "/jobs/" + id + "/../" + id + "/picture",
		"/jobs/..%2f..%2fetc", "/jobs/%2e%2e/mosaic", "/jobs/" + id + "%2f..%2f" + id + "/mosaic",
		"/jobs/" + id + "/tiles/12", "/jobs/none/tiles/0", "/static/none.css", "/static/", "/static/..%2fserver.go", "/static/%2e%2e/templates/index.html", "/templates/index.html", "/none",
	} {
		r := s.get(path)
		if r.status == http.StatusTemporaryRedirect || r.status == http.StatusMovedPermanently {
			r = s.get(r.header.Get("Location"))
		}
		if r.status != http.StatusNotFound || bytes.Contains(r.body, []byte(s.w.data)) {
			t.Errorf("GET %s: got %d %s, want 404", path, r.status, r.body)
		}
	}
}

func TestNoSliceIsLostOverAReconnection(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	for _, path := range []string{"/slices/0", "/mosaic", "/zoom"} {
		s.want(http.StatusNotFound, "/jobs/"+id+path)
	}
	pass(2)
	s.untilStored(id, 2)

	// A new stream begins with those two, and ends with all.
	begun := make(chan snapshot, 1)
	finished := make(chan []event)
	go func() {
		finished <- s.events("/jobs/"+id+"/events", func(e event) bool {
			select {
			case begun <- e.snapshot:
			default:
			}
			return e.State == done
		})
	}()
	if first := <-begun; first.Stored != 2 {
		t.Errorf("first event: got %d slices, want 2", first.Stored)
	}
	pass(-1)
	all := <-finished
	if last := all[len(all)-1]; last.Stored != len(last.snapshot.Slices) {
		t.Errorf("last event: got %d slices, want all", last.Stored)
	}
}

func TestAJobGoesOnAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts again and again")
	}
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(*site, string, func(int))
	}{
		{"in the middle", func(s *site, id string, pass func(int)) { pass(2); s.untilStored(id, 2) }},
		{"before a slice", func(s *site, id string, _ func(int)) { s.until(id, working) }},
		{"at once", func(*site, string, func(int)) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := setup(t)
			s := w.serve(nil)
			pass := w.store.hold()
			id := s.make(s.small()...)
			c.before(s, id, pass)
			s.stop()
			pass(-1)
			s = w.serve(nil)
			if end := s.until(id, done); end.Name != "small.png" || end.Distinct == 0 || end.Tiles == 0 {
				t.Errorf("job: got %+v, want what was known before", end)
			}
			s.want(http.StatusOK, "/jobs/"+id+"/mosaic")
			s.want(http.StatusOK, "/jobs/"+id+"/zoom/0/0/0")
			// And finished jobs are there after another one.
			s.stop()
			s = w.serve(nil)
			s.until(id, done)
			s.want(http.StatusOK, "/jobs/"+id+"/slices/0")
			if page := s.do(http.MethodGet, "/", nil, "Accept", "text/html"); !bytes.Contains(page.body, []byte(id)) {
				t.Error("the page does not list the job of an earlier run")
			}
		})
	}
}

// The mosaic was stored, and the program was killed before it recorded that.
func TestAJobWhoseEndWasNotRecordedIsDone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	j := s.find(id)
	s.stop()
	j.State = composing
	if err := s.shelfAt(t).store(j); err != nil {
		t.Fatal(err)
	}
	s = w.serve(nil)
	s.until(id, done)
	s.want(http.StatusOK, "/jobs/"+id+"/mosaic")
}

func TestARecordThatMakesNoSenseIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	s.stop()
	shelf := s.shelfAt(t)
	for name, text := range map[string]string{
		"broken": "{", "empty": "", "other": `{"id":"../x","slices":1,"rows":1,"cols":1,"tile":1}`, "huge": `{"id":"huge","slices":1000000000,"rows":1,"cols":1,"tile":1}`,
	} {
		if err := shelf.root.Mkdir("jobs/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := shelf.root.WriteFile(file(name, recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = w.serve(nil)
	if all := s.shelf.all(); len(all) != 1 || all[0].current().ID != id {
		t.Errorf("jobs: got %d, want the good one", len(all))
	}
	if got := w.entries("jobs"); len(got) != 5 {
		t.Errorf("folders: got %q, want all of them", got)
	}
}

func TestJobsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	var ids []string
	for range maxRunning {
		ids = append(ids, s.make(s.small()...))
		s.until(ids[len(ids)-1], working)
	}
	ids = append(ids, s.make(s.small()...))
	if got := s.until(ids[maxRunning], waiting); got.State != waiting {
		t.Errorf("last job: got %s, want it to wait", got.State)
	}
	pass(-1)
	for _, id := range ids {
		s.until(id, done)
	}
}

func TestTwoJobsAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	ids := []string{s.make(s.small()...), s.make(append(s.small(), field{name: "scale", value: "2"})...)}
	for _, id := range ids {
		s.until(id, working)
	}
	pass(-1)
	for _, id := range ids {
		s.until(id, done)
	}
}

func TestADeletedJobEndsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, when := range []state{working, done} {
		t.Run(string(when), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			s := w.serve(nil)
			pass := w.store.hold()
			id := s.make(s.small()...)
			s.until(id, working)
			if when == done {
				pass(-1)
				s.until(id, done)
			}
			other := s.make(s.small()...)
			if r := s.post("/jobs/" + id + "/delete"); r.status != http.StatusOK {
				t.Fatalf("delete: got %d %s", r.status, r.body)
			}
			s.want(http.StatusNotFound, "/jobs/"+id)
			if r := s.post("/jobs/" + id + "/delete"); r.status != http.StatusNotFound {
				t.Errorf("second delete: got %d, want 404", r.status)
			}
			if when != done {
				pass(-1)
			}
			s.until(other, done)
			if got := w.entries("jobs"); !slices.Equal(got, []string{other}) {
				t.Errorf("folders: got %q, want that of the other job", got)
			}
			s.stop()
			for _, name := range roles.QueueNames() {
				if p, err := w.queue(name).Sibling("-poison").Properties(t.Context()); err == nil && p.Depth > 0 {
					t.Errorf("%s: got %d poison messages, want none", name, p.Depth)
				}
			}
		})
	}
}

// The producer tries for half a minute, so this takes minutes, in a bubble.
func TestAnOutageDelaysAJob(t *testing.T) {
	if testing.Short() {
		t.Skip("plays an outage")
	}
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		s := w.serve(func(o *Options) { o.Data += "/page" }, withoutSocket)
		w.down.Store(true)
		body, kind := multipartForm(s.small()...)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/jobs", body)
		r.Header.Set("Content-Type", kind)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if answer.Code != http.StatusCreated {
			t.Fatalf("POST /jobs: got %d %s, want 201", answer.Code, answer.Body)
		}
		j := s.shelf.all()[0]
		waitFor := func(what string, ok func(snapshot) bool) {
			for {
				now, changed := j.look()
				if ok(now) {
					return
				}
				if now.State == failed {
					t.Fatalf("job: got %s %s, want %s", now.State, now.Error, what)
				}
				<-changed
			}
		}
		waitFor("a note", func(now snapshot) bool { return strings.Contains(now.Note, "do not answer") })
		time.Sleep(10 * time.Minute)
		w.down.Store(false)
		waitFor("its end", func(now snapshot) bool { return now.State == done && now.Note == "" })
	})
}

func TestAFullDiskElsewhereFailsTheJobWithTheReason(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	request := s.find(id).current().Request
	if err := s.options.System.Broker.Resume(request, 0).Cancel(t.Context(), "no space left on device"); err != nil {
		t.Fatal(err)
	}
	if end := s.until(id, failed); !strings.Contains(end.Error, "disk is full") {
		t.Errorf("error: got %q, want the reason", end.Error)
	}
	pass(-1)
}

// find returns a job.
func (s *site) find(id string) *job {
	for _, j := range s.shelf.all() {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// shelfAt reads the jobs of a server that was stopped.
func (s *site) shelfAt(t *testing.T) *shelf {
	t.Helper()
	again, err := Open(s.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	return again.shelf
}

// A job whose page was left while it was deleted must not come back at the next start.
func TestAJobIsDeletedAlsoIfTheClientLeaves(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	j := s.find(id)
	busy := make(chan struct{})
	j.update(func() { j.idle = busy }) // something is still at work on it
	left, leave := context.WithCancel(t.Context())
	leave()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(left, http.MethodPost, "http://localhost/jobs/"+id+"/delete", nil)
		s.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for gone := false; !gone; {
		_, changed := j.look()
		j.mu.Lock()
		gone = j.gone
		j.mu.Unlock()
		if !gone {
			<-changed
		}
	}
	close(busy)
	<-ended
	if got := w.entries("jobs"); len(got) != 0 {
		t.Errorf("folders: got %q, want none", got)
	}
}

// A failure is stored while the user starts the job again: what is on disk then must be the newer of the two.
func TestARecordIsNeverReplacedByAnOlderOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	id := s.make(s.small()...)
	s.until(id, done)
	j := s.find(id)
	var saving sync.WaitGroup
	for i := range 50 {
		saving.Go(func() {
			j.update(func() { j.Distinct = i })
			s.save(j)
		})
	}
	saving.Wait()
	var r record
	text, err := s.shelf.root.ReadFile(file(id, recordFile))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.Distinct != j.current().Distinct {
		t.Errorf("record: got %d, %v; want the last, %d", r.Distinct, err, j.current().Distinct)
	}
	// And one that was deleted leaves no file.
	if r := s.post("/jobs/" + id + "/delete"); r.status != http.StatusOK {
		t.Fatalf("delete: got %d %s", r.status, r.body)
	}
	s.save(j)
	if got := w.entries("jobs"); len(got) != 0 || strings.Contains(w.log.String(), "cannot be stored") {
		t.Errorf("folders: got %q, want none and no error; log: %s", got, w.log)
	}
}

// A job that is posted before Run begins is not also one of an earlier run.
func TestAJobThatComesBeforeRunBeginsRunsOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	posted := make(chan struct{})
	s := w.serve(nil)
	s.stop()
	before, err := Open(s.options)
	if err != nil {
		t.Fatal(err)
	}
	body, kind := multipartForm(s.small()...)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/jobs", body)
	r.Header.Set("Content-Type", kind)
	go func() {
		defer close(posted)
		before.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for len(before.shelf.all()) == 0 {
		runtime.Gosched()
	}
	if len(before.earlier) != 0 {
		t.Errorf("jobs of earlier runs: got %d, want 0", len(before.earlier))
	}
	before.Stop()
	<-posted
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	s = w.serve(nil)
	s.until(s.shelf.all()[0].ID, done)
	if got := w.asked.Load(); got != 1 {
		t.Errorf("requests of mosaics: got %d, want 1", got)
	}
}
