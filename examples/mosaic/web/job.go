package web

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// state is what a job is doing.
type state string

// The states of a job, in their order.
const (
	waiting   state = "waiting"   // for its turn, or for its tiles
	measuring state = "measuring" // the picture is measured and the tiles are chosen
	working   state = "working"   // slices are laid
	composing state = "composing" // all slices are stored
	done      state = "done"
	failed    state = "failed"
)

func (s state) ended() bool { return s == done || s == failed }

// settings are what a user chooses for a mosaic.
type settings struct {
	Library string        `json:"library"`
	Tile    int           `json:"tile"`  // pixels
	Scale   picture.Scale `json:"scale"` // of the mosaic, times the picture
	Tint    int           `json:"tint"`  // per cent
	Reuse   int           `json:"reuse"` // 0, every tile once, to 100, best match
}

// record is what is kept of a job on disk.
type record struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // of the picture, for people
	Created time.Time `json:"created"`
	settings
	Width     int           `json:"width"` // of the picture
	Height    int           `json:"height"`
	Cols      int           `json:"cols"`
	Rows      int           `json:"rows"`
	Slices    int           `json:"slices"`
	State     state         `json:"state"`
	Request   uuid.UUID     `json:"request,omitzero"` // once it is submitted
	Begun     time.Time     `json:"begun,omitzero"`
	Error     string        `json:"error,omitempty"`  // why it failed, for people
	Detail    string        `json:"detail,omitempty"` // why it failed, for whoever runs the program
	LibraryID string        `json:"libraryId,omitempty"`
	Tiles     int           `json:"tiles,omitempty"`    // to choose from
	Distinct  int           `json:"distinct,omitempty"` // used
	Requests  int64         `json:"requests,omitempty"` // that were sent while the job ran
	Took      time.Duration `json:"took,omitempty"`     // while the program ran
	Bytes     int64         `json:"bytes,omitempty"`    // of its files
}

func (r *record) plan() picture.Plan {
	return picture.Plan{Tile: r.Tile, Cols: r.Cols, Rows: r.Rows, Slices: r.Slices}
}

// job is one mosaic.
type job struct {
	mu      sync.Mutex
	record                // guarded by mu
	stored  []bool        // by slice; guarded by mu
	order   *roles.Order  // that is waited for; nil if there is none; guarded by mu
	note    string        // what it waits for, for people; guarded by mu
	changed chan struct{} // closed at the next change; guarded by mu
	gone    bool          // it was deleted; guarded by mu
	cancel  func()        // ends its work; nil while it does not run; guarded by mu
	idle    chan struct{} // closed while nothing works on it; guarded by mu

	filing sync.Mutex // held while its record is stored or its files are deleted; taken before mu
}

func newJob(r record) *job {
	idle := make(chan struct{})
	close(idle)
	j := &job{record: r, stored: make([]bool, r.Slices), changed: make(chan struct{}), idle: idle}
	for i := range j.stored {
		j.stored[i] = r.State == done
	}
	return j
}

// update changes a job and tells those who watch it. It returns the new record.
func (j *job) update(change func()) record {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
	return j.record
}

func (j *job) current() record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record
}

// storedSlices adds finished slices, and calls count. It ignores numbers that no slice has.
func (j *job) storedSlices(numbers []int, count func()) {
	j.update(func() {
		count()
		for _, i := range numbers {
			if i >= 0 && i < len(j.stored) {
				j.stored[i] = true
			}
		}
		if j.allStored() && j.State == working {
			j.State = composing
		}
	})
}

func (j *job) allStored() bool {
	for _, s := range j.stored {
		if !s {
			return false
		}
	}
	return true
}

// snapshot is the whole job for the page.
type snapshot struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	State    state         `json:"state"`
	Note     string        `json:"note,omitempty"` // what it waits for
	Cols     int           `json:"cols"`
	Rows     int           `json:"rows"`
	Tile     int           `json:"tile"`
	Scale    picture.Scale `json:"scale"`
	Tint     int           `json:"tint"`
	Reuse    int           `json:"reuse"`
	Library  string        `json:"library"`
	Width    int           `json:"width"` // of the mosaic
	Height   int           `json:"height"`
	Slices   []slice       `json:"slices"`
	Stored   int           `json:"stored"` // how many slices are
	Error    string        `json:"error"`
	Detail   string        `json:"detail"`
	Tiles    int           `json:"tiles"`
	Distinct int           `json:"distinct"`
	Cost     string        `json:"cost"`
	Requests int64         `json:"requests"`
	Took     float64       `json:"took"` // seconds
	Bytes    int64         `json:"bytes"`
	Created  string        `json:"created"` // RFC 3339

	// The size of the picture, of which /original may be a smaller preview.
	PictureWidth  int `json:"pictureWidth"`
	PictureHeight int `json:"pictureHeight"`
}

// slice is some rows of cells.
type slice struct {
	First  int  `json:"first"`
	End    int  `json:"end"` // the row after the last
	Stored bool `json:"stored"`
}

// look returns the job as it is, and a channel that is closed when it changes.
func (j *job) look(price Price) (snapshot, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.plan()
	s := snapshot{
		ID: j.ID, Name: j.Name, State: j.State, Note: j.note, Cols: j.Cols, Rows: j.Rows, Tile: j.Tile, Scale: j.Scale, Tint: j.Tint, Reuse: j.Reuse,
		Library: j.Library, Width: p.Size().X, Height: p.Size().Y, Slices: make([]slice, j.record.Slices), Error: j.Error, Detail: j.Detail,
		Tiles: j.Tiles, Distinct: j.Distinct, Cost: price.of(j.Requests), Requests: j.Requests, Took: j.Took.Seconds(), Bytes: j.Bytes,
		Created: j.Created.Format(time.RFC3339), PictureWidth: j.record.Width, PictureHeight: j.record.Height,
	}
	for i := range s.Slices {
		first, end := p.SliceRows(i)
		s.Slices[i] = slice{first, end, j.stored[i]}
		if j.stored[i] {
			s.Stored++
		}
	}
	return s, j.changed
}
