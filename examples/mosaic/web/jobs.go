package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// state is the progress of a job.
type state string

// The states of a job, in their order.
const (
	waiting   state = "waiting"   // for its turn, or for its tiles
	measuring state = "measuring" // the picture is measured and the tiles are chosen
	working   state = "working"   // slices are rendered
	composing state = "composing" // all slices are stored
	done      state = "done"
	failed    state = "failed"
)

// settings are a user's choices for a mosaic.
type settings struct {
	Tile   int     `json:"tile"`  // pixels
	Scale  float64 `json:"scale"` // of the mosaic, times the picture
	Tint   int     `json:"tint"`  // per cent
	Reuse  int     `json:"reuse"` // 0, every tile once, to 100, best match
	Slices int     `json:"sliceCount"`
}

// record is the file of a job on disk.
type record struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // of the picture, for people
	Created time.Time `json:"created"`
	settings
	Width    int           `json:"width"` // of the picture
	Height   int           `json:"height"`
	Cols     int           `json:"cols"`
	Rows     int           `json:"rows"`
	State    state         `json:"state"`
	Request  uuid.UUID     `json:"request,omitzero"` // once it is submitted
	Begun    time.Time     `json:"begun"`            // when it was last started
	Error    string        `json:"error,omitempty"`  // why it failed, for people
	Photos   string        `json:"photos,omitempty"` // the folder of its tiles
	Tiles    int           `json:"tiles,omitempty"`  // to choose from
	Distinct int           `json:"distinct,omitempty"`
	Took     time.Duration `json:"took,omitempty"`
}

func (r *record) plan() picture.Plan {
	return picture.Plan{Tile: r.Tile, Cols: r.Cols, Rows: r.Rows, Slices: r.Slices}
}

// job is one mosaic. Its goroutine in Server.work owns it, and update publishes changes.
type job struct {
	mu      sync.Mutex
	record                 // guarded by mu
	stored  []bool         // by slice; guarded by mu
	note    string         // the reason why it waits, for people; guarded by mu
	problem string         // why it does not get on, for people; guarded by mu
	order   *roles.Order   // while it is waited for; guarded by mu
	layout  *layout.Layout // once its tiles are chosen, if it was needed; guarded by mu
	changed chan struct{}  // closed at the next change; guarded by mu
	cancel  func()         // ends its work; guarded by mu
	idle    chan struct{}  // closed while nothing works on it; guarded by mu
	gone    bool           // it was deleted; guarded by mu
}

func newJob(r record) *job {
	idle := make(chan struct{})
	close(idle)
	return &job{record: r, stored: slices.Repeat([]bool{r.State == done}, r.Slices), changed: make(chan struct{}), cancel: func() {}, idle: idle}
}

// update changes a job and notifies its watchers.
func (j *job) update(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *job) current() record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record
}

// snapshot is the whole job for the page.
type snapshot struct {
	record
	Note    string  `json:"note,omitempty"`
	Problem string  `json:"problem"`
	Slices  []slice `json:"slices"`
	Stored  int     `json:"stored"` // how many slices are
	Seconds float64 `json:"seconds"`

	// The size of the mosaic.
	MosaicWidth  int `json:"mosaicWidth"`
	MosaicHeight int `json:"mosaicHeight"`
}

// slice is some rows of cells.
type slice struct {
	First  int  `json:"first"`
	End    int  `json:"end"` // the row after the last
	Stored bool `json:"stored"`
}

// look returns the job as it is, and a channel that is closed when it changes.
func (j *job) look() (snapshot, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.plan()
	s := snapshot{
		record: j.record, Note: j.note, Problem: j.problem, Slices: make([]slice, len(j.stored)),
		Seconds: j.Took.Seconds(), MosaicWidth: p.Size().X, MosaicHeight: p.Size().Y,
	}
	s.Photos = "" // a path of this machine
	for i, stored := range j.stored {
		first, end := p.SliceRows(i)
		s.Slices[i] = slice{first, end, stored}
		if stored {
			s.Stored++
		}
	}
	return s, j.changed
}

// The folders of the data, and the files of a job.
const (
	jobsFolder  = "jobs"
	tilesFolder = "tiles" // the libraries of jobs

	recordFile   = "job.json"
	pictureFile  = "picture"
	originalFile = "original.jpg"
	layoutFile   = "layout"
	mosaicFile   = "mosaic.png"
)

// shelf keeps the jobs, in memory and on disk.
type shelf struct {
	root *os.Root

	mu   sync.Mutex
	jobs []*job // oldest first; guarded by mu
}

// openShelf reads the jobs of earlier runs. It reports unreadable records, and leaves them alone.
func openShelf(root *os.Root, logger *slog.Logger) (*shelf, error) {
	for _, f := range []string{jobsFolder, tilesFolder} {
		if err := root.MkdirAll(f, 0o700); err != nil {
			return nil, err
		}
	}
	s := &shelf{root: root}
	entries, err := fs.ReadDir(root.FS(), jobsFolder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var r record
		text, err := root.ReadFile(file(e.Name(), recordFile))
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err == nil && (r.ID != e.Name() || r.Slices < 1 || r.Slices > r.Rows || r.Cols < 1 || r.Tile < 1) {
			err = errors.New("its record makes no sense")
		}
		if err != nil {
			logger.Warn("a job of an earlier run cannot be read and is left alone", "job", e.Name(), "error", err)
			continue
		}
		s.jobs = append(s.jobs, newJob(r))
	}
	slices.SortFunc(s.jobs, func(a, b *job) int { return a.Created.Compare(b.Created) })
	return s, nil
}

// file returns the path of a file of a job below the root.
func file(id, name string) string { return path.Join(jobsFolder, id, name) }

// store replaces the record of a job on disk, unless it was deleted.
func (s *shelf) store(j *job) error {
	j.mu.Lock() // during the write too, so that an older record never replaces a newer one
	defer j.mu.Unlock()
	if j.gone {
		return nil
	}
	text, err := json.MarshalIndent(j.record, "", "  ")
	if err != nil {
		return err
	}
	return replace(s.root, file(j.ID, recordFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// save is store for a job that continues without it: after a restart it is then as it was before.
func (s *Server) save(j *job) {
	if err := s.shelf.store(j); err != nil {
		s.logger.Error("the state of a job cannot be stored", "job", j.ID, "error", err)
	}
}

// replace replaces a file with the output of write, or leaves it unchanged.
func replace(root *os.Root, name string, write func(io.Writer) error) (err error) {
	partial := name + ".partial"
	f, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = root.Rename(partial, name)
	}
	if err != nil {
		_ = root.Remove(partial) // the first error is the cause
	}
	return err
}

// read opens a file, calls use, and closes it.
func read(root *os.Root, name string, use func(io.Reader) error) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return use(f)
}

func (s *shelf) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, j)
}

// all returns the jobs, the newest first.
func (s *shelf) all() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.jobs)
	slices.Reverse(all)
	return all
}

func (s *Server) job(r *http.Request) (*job, error) {
	for _, j := range s.shelf.all() {
		if j.ID == r.PathValue("id") { // never changes
			return j, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no such mosaic: it may have been deleted")
}

// watchJob is GET /jobs/{id}/events.
func (s *Server) watchJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	return s.stream(w, r, "snapshot", 15*time.Second, func() (any, <-chan struct{}) { return j.look() })
}

// deleteJob is POST /jobs/{id}/delete.
func (s *Server) deleteJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	var idle chan struct{}
	j.update(func() {
		j.gone, idle = true, j.idle
		j.cancel()
	})
	<-idle // soon, also if the client leaves: a job that is half deleted would come back at the next start
	s.shelf.mu.Lock()
	s.shelf.jobs = slices.DeleteFunc(s.shelf.jobs, func(other *job) bool { return other == j })
	s.shelf.mu.Unlock()
	if err := s.shelf.root.RemoveAll(path.Join(jobsFolder, j.ID)); err != nil {
		return fmt.Errorf("delete job %s: %w", j.ID, err)
	}
	answer(w, r, http.StatusOK, map[string]string{"deleted": j.ID}, "/")
	return nil
}
