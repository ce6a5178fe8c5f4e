package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	defaultTile  = 16
	defaultScale = picture.Scale(100)

	// defaultSlices are enough to see a mosaic grow.
	defaultSlices = 24
	maxSlices     = 500

	// maxPreview is the longest side of the previews of a picture and of slices.
	maxPreview = 2048
)

// form64k bounds what a form has besides its picture.
const form64k = 64 << 10

// upload is what a form asks for.
type upload struct {
	settings
	name    string // of the picture
	file    string // below the root; "" if there is none
	builtin bool
}

// newJob is POST /jobs.
func (s *Server) newJob(w http.ResponseWriter, r *http.Request) error {
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		w.Header().Set("Retry-After", "5")
		return refuse(http.StatusServiceUnavailable, "%d uploads are in progress, which is the limit: try again soon", maxUploads)
	}
	if r.ContentLength > maxUpload+form64k {
		return &http.MaxBytesError{Limit: maxUpload}
	}
	control := http.NewResponseController(w)
	size := r.ContentLength
	if size < 0 {
		size = maxUpload
	}
	_ = control.SetReadDeadline(timeFor(size)) // a recorder has none
	_ = control.SetWriteDeadline(timeFor(size))
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload+form64k)
	parts, err := r.MultipartReader()
	if err != nil {
		return refuse(http.StatusUnsupportedMediaType, "the form must be sent as multipart/form-data")
	}
	o, err := s.readForm(parts)
	defer func() {
		if o.file != "" {
			_ = s.shelf.root.Remove(o.file) // it has moved, or the folder is emptied at the next start
		}
	}()
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{}) // a recorder has none
	j, err := s.admit(r.Context(), &o)
	if err != nil {
		return err
	}
	s.start(j)
	url := "/jobs/" + j.ID
	answer(w, r, http.StatusCreated, map[string]string{"id": j.ID, "url": url}, url)
	return nil
}

// readForm reads the form of a job. Its picture goes to a file, which the caller removes.
func (s *Server) readForm(parts *multipart.Reader) (o upload, err error) {
	o.settings = settings{Tile: defaultTile, Scale: defaultScale, Tint: layout.DefaultTint, Reuse: layout.DefaultReuse}
	for range 20 {
		part, err := parts.NextPart()
		if err == io.EOF { //nolint:errorlint // a form that is cut short wraps it
			return o, o.check()
		}
		if err != nil {
			return o, badForm(err)
		}
		if part.FormName() == "picture" {
			if err := s.receive(&o, part); err != nil {
				return o, err
			}
			continue
		}
		const longest = 100
		text, err := io.ReadAll(io.LimitReader(part, longest))
		if err != nil {
			return o, badForm(err)
		}
		if err := o.set(part.FormName(), strings.TrimSpace(string(text))); err != nil {
			return o, err
		}
	}
	return o, refuse(http.StatusBadRequest, "the form has too many parts")
}

// receive stores an uploaded picture. A form whose file was left empty has a part without content.
func (s *Server) receive(o *upload, part *multipart.Part) error {
	if o.file != "" {
		return refuse(http.StatusBadRequest, "the form has two pictures: send one")
	}
	name := path.Join(incomingFolder, strings.ToLower(rand.Text()))
	f, err := s.shelf.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	o.file, o.name = name, displayName(part.FileName())
	n, err := io.Copy(f, part)
	if e := f.Close(); err == nil && e != nil {
		return e
	}
	if err != nil {
		return badForm(err)
	}
	if n == 0 {
		_ = s.shelf.root.Remove(name) // removed again with the folder
		o.file = ""
	}
	return nil
}

// set takes one field of the form.
func (o *upload) set(name, text string) (err error) {
	if text == "" {
		return nil // its default
	}
	switch name {
	case "builtin":
		o.builtin = text != "0"
	case "tile":
		o.Tile, err = strconv.Atoi(text)
	case "slices":
		o.Slices, err = strconv.Atoi(text)
	case "tint":
		o.Tint, err = strconv.Atoi(text)
	case "reuse":
		o.Reuse, err = strconv.Atoi(text)
	case "scale":
		o.Scale, err = picture.ParseScale(text)
	default:
		return refuse(http.StatusBadRequest, "the form has an unknown field %.40q", name)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "%s: %.40q is not a possible number", name, text)
	}
	return nil
}

// check refuses settings that are out of bounds.
func (o *upload) check() error {
	bad := func(what string, n, low, high int) error {
		return refuse(http.StatusBadRequest, "%s %d is outside %d…%d", what, n, low, high)
	}
	switch {
	case o.file == "" && !o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture, or the built-in one")
	case o.file != "" && o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture or the built-in one, not both")
	case !slices.Contains(tileSizes, o.Tile):
		return refuse(http.StatusBadRequest, "tile %d is not possible: choose one of %v", o.Tile, tileSizes)
	case o.Slices < 0 || o.Slices > maxSlices:
		return bad("slices", o.Slices, 1, maxSlices)
	case o.Tint < 0 || o.Tint > layout.MaxTint:
		return bad("tint", o.Tint, 0, layout.MaxTint)
	case o.Reuse < 0 || o.Reuse > 100:
		return bad("reuse", o.Reuse, 0, 100)
	}
	return nil
}

// admit decodes the picture, so that a broken one is refused immediately, and stores the job. One picture at a time is
// decoded, because a large one takes hundreds of megabytes.
func (s *Server) admit(ctx context.Context, o *upload) (*job, error) {
	free, err := take(ctx, s.decoding)
	if err != nil {
		return nil, err
	}
	defer free()
	if o.builtin {
		o.name, o.file = "Built-in picture", path.Join(incomingFolder, strings.ToLower(rand.Text()))
		img := picture.Sample()
		err := replace(s.shelf.root, o.file, func(w io.Writer) error { return picture.Encode(w, img) })
		if err != nil {
			return nil, err
		}
	}
	f, err := s.shelf.root.Open(o.file)
	if err != nil {
		return nil, err
	}
	img, err := picture.Decode(f)
	_ = f.Close() // nothing was written
	if err != nil {
		return nil, unusable(o.name, err)
	}
	size := img.Bounds().Size()
	plan, err := picture.NewPlan(size.X, size.Y, o.Tile, &picture.PlanOptions{Scale: o.Scale})
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "the picture cannot be divided into tiles: %s", strings.TrimPrefix(err.Error(), "dividing the picture: "))
	}
	if o.Slices == 0 {
		o.Slices = max(plan.Slices, defaultSlices)
	}
	o.Slices = min(o.Slices, plan.Rows)
	preview, err := encodeJPEG(picture.Fit(picture.OverWhite(img), maxPreview))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	j := newJob(record{
		ID: strings.ToLower(rand.Text()), Name: o.name, Created: now, Begun: now, settings: o.settings,
		Width: size.X, Height: size.Y, Cols: plan.Cols, Rows: plan.Rows, State: waiting,
	})
	if err := s.keep(j, o.file, preview); err != nil {
		_ = s.shelf.root.RemoveAll(path.Join(jobsFolder, j.ID)) // the first error is the cause
		return nil, fmt.Errorf("store the picture: %w", err)
	}
	s.shelf.add(j)
	return j, nil
}

// keep stores a new job: its record last, because a folder without a record is not a job.
func (s *Server) keep(j *job, uploaded string, preview []byte) error {
	root := s.shelf.root
	err := root.Mkdir(path.Join(jobsFolder, j.ID), 0o700)
	if err == nil {
		err = root.Rename(uploaded, file(j.ID, pictureFile))
	}
	if err == nil {
		err = root.WriteFile(file(j.ID, originalFile), preview, 0o600)
	}
	if err == nil {
		err = s.shelf.store(j)
	}
	return err
}

func encodeJPEG(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 85})
	return b.Bytes(), err
}
