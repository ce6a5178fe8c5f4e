package web

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	// maxFields is how many parts a form of a job has at most.
	maxFields = 20

	// maxField is the longest text of a field, in bytes.
	maxField = 1000

	// uploadPatience is how long an upload may take, and slowest how many bytes a second give it more time: an honest client on a
	// slow line is not cut, and one that sends next to nothing does not hold a place for ever.
	uploadPatience = 10 * time.Minute
	slowest        = 20_000
)

// order is what a form asks for.
type order struct {
	settings
	name    string // of the picture
	picture string // the file below the root; "" for none
	builtin bool
}

// admitUpload takes one of the places of uploads, and bounds the upload. The caller calls the function it gets.
func (s *Server) admitUpload(w http.ResponseWriter, r *http.Request, limit int64) (*multipart.Reader, func(), error) {
	select {
	case s.uploads <- struct{}{}:
	default:
		return nil, nil, refuse(http.StatusServiceUnavailable, "%d uploads are in progress, which is the limit: try again soon", cap(s.uploads))
	}
	free := func() { <-s.uploads }
	const forms = 64 << 10 // what is around the files
	r.Body = http.MaxBytesReader(w, r.Body, limit+forms)
	if r.ContentLength > limit+forms {
		free()
		return nil, nil, &http.MaxBytesError{Limit: limit}
	}
	r.Body = newSlowWriter(w, r.Body)
	parts, err := r.MultipartReader()
	if err != nil {
		free()
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "the form must be sent as multipart/form-data")
	}
	return parts, free, nil
}

// slowWriter bounds the time of an upload by what has come of it.
type slowWriter struct {
	io.ReadCloser
	control *http.ResponseController
	begin   time.Time
	read    int64
}

func newSlowWriter(w http.ResponseWriter, body io.ReadCloser) *slowWriter {
	s := &slowWriter{ReadCloser: body, control: http.NewResponseController(w), begin: time.Now()}
	s.extend()
	return s
}

func (s *slowWriter) extend() {
	earned := time.Duration(s.read/slowest) * time.Second
	_ = s.control.SetReadDeadline(s.begin.Add(uploadPatience + earned)) // a recorder has none
}

// Read implements [io.Reader].
func (s *slowWriter) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.read += int64(n)
	s.extend()
	return n, err
}

// readOrder reads the form of a job. Its picture goes to a file of ours, which the caller removes.
func (s *Server) readOrder(parts *multipart.Reader) (o order, err error) {
	o.settings = settings{Library: generated, Tile: defaultTile, Scale: oneToOne, Reuse: defaultReuse}
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if err == io.EOF { //nolint:errorlint // a form that is cut short wraps it
			return o, o.check(s)
		}
		if err != nil {
			return o, badForm(err)
		}
		if n == maxFields {
			return o, refuse(http.StatusBadRequest, "the form has more than %d parts", maxFields)
		}
		if part.FormName() == "picture" {
			if err = s.readPicture(&o, part); err != nil {
				return o, err
			}
			continue
		}
		text, err := readField(part)
		if err == nil {
			err = o.set(part.FormName(), text)
		}
		if err != nil {
			return o, err
		}
	}
}

// readPicture stores an uploaded picture. A form whose file was left empty has a part without a name or content.
func (s *Server) readPicture(o *order, part *multipart.Part) error {
	if o.picture != "" {
		return refuse(http.StatusBadRequest, "the form has two pictures: send one")
	}
	name, n, err := s.receive(part, s.limits.Upload)
	if err != nil {
		return err
	}
	o.picture = name
	if n == 0 {
		_ = s.root.Remove(name) // removed again with the folder
		o.picture = ""
		return nil
	}
	o.name = displayName(part.FileName(), "picture")
	return nil
}

// receive stores an upload in a file of ours, of at most limit bytes. After an error there is none.
func (s *Server) receive(r io.Reader, limit int64) (name string, n int64, err error) {
	name = path.Join(incomingFolder, strings.ToLower(rand.Text()))
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = e
		}
		if err != nil {
			_ = s.root.Remove(name) // emptied at the next start
		}
	}()
	n, err = io.Copy(writeOnly{f}, io.LimitReader(r, limit+1))
	switch wrong := (*os.PathError)(nil); {
	case errors.As(err, &wrong):
		return name, n, err
	case err != nil:
		return name, n, badForm(err)
	case n > limit:
		return name, n, &http.MaxBytesError{Limit: limit}
	}
	return name, n, nil
}

// writeOnly hides what else a file can do, so that a copy goes through a small buffer.
type writeOnly struct{ io.Writer }

func readField(part *multipart.Part) (string, error) {
	text, err := io.ReadAll(io.LimitReader(part, maxField+1))
	switch {
	case err != nil:
		return "", badForm(err)
	case len(text) > maxField:
		return "", refuse(http.StatusBadRequest, "the field %.40q is too long", part.FormName())
	}
	return string(text), nil
}

func badForm(err error) error {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(http.StatusRequestTimeout, "the upload was too slow: send less, or use a faster line")
	}
	return refuse(http.StatusBadRequest, "the form ends early or is not what a browser sends")
}

// set takes one field of the form.
func (o *order) set(name, text string) (err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil // its default
	}
	switch name {
	case "builtin":
		o.builtin = text != "0" && text != "false"
	case "library":
		o.Library = text
	case "tile":
		o.Tile, err = strconv.Atoi(text)
	case "tint":
		o.Tint, err = strconv.Atoi(strings.TrimSuffix(text, "%"))
	case "reuse":
		o.Reuse, err = strconv.Atoi(text)
	case "scale":
		o.Scale, err = picture.ParseScale(text)
	default:
		return refuse(http.StatusBadRequest, "the form has an unknown field %.40q", name)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "%s: %.40q is not a number that is possible here", name, text)
	}
	return nil
}

// check refuses settings that are out of bounds.
func (o *order) check(s *Server) error {
	f := s.form()
	bad := func(what string, n, low, high int) error {
		return refuse(http.StatusBadRequest, "%s %d is outside %d…%d", what, n, low, high)
	}
	switch {
	case o.picture == "" && !o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture, or the built-in one")
	case o.picture != "" && o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture or the built-in one, not both")
	case !s.libraries.known(o.Library):
		return refuse(http.StatusBadRequest, "there is no library %.40q: choose one of the list", o.Library)
	case o.Tile < 1 || o.Tile > f.MaxTile:
		return bad("tile", o.Tile, 1, f.MaxTile)
	case o.Tint < 0 || o.Tint > f.MaxTint:
		return bad("tint", o.Tint, 0, f.MaxTint)
	case o.Reuse < 0 || o.Reuse > 100:
		return bad("reuse", o.Reuse, 0, 100)
	}
	return nil
}

// displayName makes a name of an upload fit to be shown and to be suggested for a download: never to be a path.
func displayName(name, instead string) string {
	name = strings.ReplaceAll(name, `\`, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(`<>:"|?*`, r) {
			return -1
		}
		return r
	}, name)
	clean = strings.TrimSpace(strings.TrimLeft(clean, ". "))
	for len(clean) > 100 {
		_, n := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-n]
	}
	if clean == "" {
		return instead
	}
	return clean
}

// newJob is POST /jobs.
func (s *Server) newJob(w http.ResponseWriter, r *http.Request) error {
	parts, free, err := s.admitUpload(w, r, s.limits.Upload)
	if err != nil {
		return err
	}
	defer free()
	o, err := s.readOrder(parts)
	defer func() {
		if o.picture != "" {
			_ = s.root.Remove(o.picture) // it has moved, or the folder is emptied at the next start
		}
	}()
	if err != nil {
		return err
	}
	j, err := s.admit(r.Context(), &o)
	if err != nil {
		return err
	}
	s.start(j)
	url := "/jobs/" + j.ID
	answer(w, r, http.StatusCreated, map[string]string{"id": j.ID, "url": url}, url)
	return nil
}

// admit checks the picture and keeps the job.
func (s *Server) admit(ctx context.Context, o *order) (*job, error) {
	if err := s.makeRoom(ctx, 0); err != nil {
		return nil, err
	}
	if o.builtin {
		if err := s.sample(o); err != nil {
			return nil, err
		}
	}
	original, header, err := s.inspect(ctx, o)
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(header.Width, header.Height, o.settings)
	if err != nil {
		return nil, err
	}
	bytes := s.takes(plan)
	if err := s.makeRoom(ctx, bytes); err != nil { // without the lock: it may take a while
		return nil, err
	}
	s.admission.Lock()
	defer s.admission.Unlock()
	if !s.libraries.known(o.Library) { // deleted meanwhile
		return nil, refuse(http.StatusConflict, "the library was deleted: choose another")
	}
	if err := s.room(bytes); err != nil {
		return nil, err
	}
	return s.keep(o, record{
		ID: strings.ToLower(rand.Text()), Name: o.name, Created: time.Now(), settings: o.settings,
		Width: header.Width, Height: header.Height, Cols: plan.Cols, Rows: plan.Rows, Slices: plan.Slices, State: waiting,
	}, original)
}

// keep stores a new job: its record last, because a folder without one is no job.
func (s *Server) keep(o *order, r record, original []byte) (*job, error) {
	dir := path.Join(jobsFolder, r.ID)
	err := s.root.Mkdir(dir, 0o700)
	if err == nil {
		err = s.root.Rename(o.picture, file(r.ID, pictureFile))
	}
	if err == nil {
		err = s.root.WriteFile(file(r.ID, originalFile), original, 0o600)
	}
	if err == nil {
		err = s.shelf.save(r)
	}
	if err != nil {
		_ = s.root.RemoveAll(dir) // the first error is the cause
		return nil, err
	}
	j := newJob(r)
	s.shelf.add(j)
	return j, nil
}
