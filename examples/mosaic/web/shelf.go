package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// The folders of the data, and the files of a job.
const (
	jobsFolder      = "jobs"
	incomingFolder  = "incoming"  // uploads that are not complete
	librariesFolder = "libraries" // that were uploaded
	tilesFolder     = "tiles"     // of the libraries of jobs
	cacheFolder     = "cache"     // of tiles and previews

	recordFile   = "job.json"
	pictureFile  = "picture"
	originalFile = "original.jpg"
	layoutFile   = "layout"
	mosaicFile   = "mosaic.png"
)

// shelf keeps the jobs, in memory and on disk.
type shelf struct {
	root   *os.Root
	logger *slog.Logger

	mu   sync.Mutex
	jobs map[string]*job // guarded by mu
	list []string        // ids, oldest first; guarded by mu
}

// openShelf reads the jobs of earlier runs. One whose record cannot be read is left alone and reported.
func openShelf(root *os.Root, logger *slog.Logger) (*shelf, error) {
	if err := root.RemoveAll(incomingFolder); err != nil {
		return nil, err
	}
	for _, f := range []string{jobsFolder, incomingFolder, librariesFolder, tilesFolder, cacheFolder} {
		if err := root.Mkdir(f, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	s := &shelf{root: root, logger: logger, jobs: make(map[string]*job)}
	entries, err := fs.ReadDir(root.FS(), jobsFolder)
	if err != nil {
		return nil, err
	}
	var records []record
	for _, e := range entries {
		r, err := readRecord(root, e.Name())
		if err != nil {
			logger.Warn("a job of an earlier run cannot be read and is left alone", "job", e.Name(), "error", err)
			continue
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b record) int { return a.Created.Compare(b.Created) })
	for _, r := range records {
		s.jobs[r.ID] = newJob(r)
		s.list = append(s.list, r.ID)
	}
	return s, nil
}

func readRecord(root *os.Root, id string) (r record, err error) {
	text, err := root.ReadFile(path.Join(jobsFolder, id, recordFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.ID != id || r.Slices < 1 || r.Slices > r.Rows || r.Cols < 1 || r.Tile < 1 {
		return r, errors.New("its record makes no sense")
	}
	return r, nil
}

// file returns the path of a file of a job below the root.
func file(id, name string) string { return path.Join(jobsFolder, id, name) }

// save replaces the record of a job on disk.
func (s *shelf) save(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return s.replace(file(r.ID, recordFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replace replaces a file with what write writes, or leaves it unchanged.
func (s *shelf) replace(name string, write func(io.Writer) error) (err error) {
	partial := name + ".partial"
	f, err := s.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
		err = s.root.Rename(partial, name)
	}
	if err != nil {
		_ = s.root.Remove(partial) // the first error is the cause
	}
	return err
}

// add keeps a new job.
func (s *shelf) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[j.ID] = j
	s.list = append(s.list, j.ID)
}

func (s *shelf) find(id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

// all returns the jobs, the newest first.
func (s *shelf) all() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*job, 0, len(s.list))
	for _, id := range slices.Backward(s.list) {
		all = append(all, s.jobs[id])
	}
	return all
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// drop forgets a job and deletes its files.
func (s *shelf) drop(id string) error {
	s.mu.Lock()
	delete(s.jobs, id)
	s.list = slices.DeleteFunc(s.list, func(other string) bool { return other == id })
	s.mu.Unlock()
	return s.root.RemoveAll(path.Join(jobsFolder, id))
}

// size returns the bytes of the files in a folder.
func (s *shelf) size(folder string) int64 { return filesSize(s.root.FS(), folder) }

// madeOf counts the jobs with tiles of a source: those that have them, and those that failed. It names one that has yet to read
// the photographs, "" if there is none.
func (s *shelf) madeOf(source string) (made, broken int, waits string) {
	for _, j := range s.all() {
		switch now := j.current(); {
		case now.Library != source:
		case now.State == failed:
			broken++
		case now.Request == uuid.Nil && !now.State.ended():
			waits = now.Name
		default:
			made++
		}
	}
	return made, broken, waits
}

// open opens a file of a job. It must be closed.
func (s *shelf) open(id, name string) (*os.File, error) {
	f, err := s.root.Open(file(id, name))
	if err != nil {
		return nil, fmt.Errorf("open %s of job %s: %w", name, id, err)
	}
	return f, nil
}

// uses reports whether a job uses the library of this id.
func (s *shelf) uses(id string) bool {
	for _, j := range s.all() {
		if j.current().LibraryID == id {
			return true
		}
	}
	return false
}
