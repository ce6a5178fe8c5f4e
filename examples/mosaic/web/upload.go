package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	defaultTile = 16

	// defaultSlices are enough to see a mosaic grow.
	defaultSlices = 24
	maxSlices     = 500

	// maxPreview is the longest side of the previews of a picture and of slices.
	maxPreview = 2048
)

// form64k bounds a form without its picture.
const form64k = 64 << 10

// upload is the content of a form.
type upload struct {
	settings
	name    string                // of the picture
	file    *multipart.FileHeader // nil without a file
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
	control, by := http.NewResponseController(w), timeFor(cmp.Or(max(r.ContentLength, 0), maxUpload))
	_ = control.SetReadDeadline(by) // a recorder has no deadline
	_ = control.SetWriteDeadline(by)
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload+form64k)
	err := r.ParseMultipartForm(form64k) // the picture goes to a temporary file
	if r.MultipartForm != nil {
		defer func() { _ = r.MultipartForm.RemoveAll() }() // the system removes the rest
	}
	switch {
	case errors.Is(err, http.ErrNotMultipart):
		return refuse(http.StatusUnsupportedMediaType, "the form must be sent as multipart/form-data")
	case err != nil:
		return badForm(err)
	}
	o, err := readForm(r.MultipartForm)
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{}) // a recorder has no deadline
	j, err := s.admit(r.Context(), &o)
	if err != nil {
		return err
	}
	s.start(j)
	url := "/jobs/" + j.ID
	answer(w, r, http.StatusCreated, map[string]string{"id": j.ID, "url": url}, url)
	return nil
}

// readForm reads the form of a job. If no file was chosen, the form has a file without a name.
func readForm(form *multipart.Form) (o upload, err error) {
	o.settings = settings{Tile: defaultTile, Scale: 1, Tint: layout.DefaultTint, Reuse: layout.DefaultReuse}
	for name, texts := range form.Value {
		if len(texts) > 1 {
			return o, refuse(http.StatusBadRequest, "the form has %.40q twice", name)
		}
		if err := o.set(name, strings.TrimSpace(texts[0])); err != nil {
			return o, err
		}
	}
	if files := form.File["picture"]; len(files) > 1 {
		return o, refuse(http.StatusBadRequest, "the form has two pictures: send one")
	} else if len(files) == 1 && files[0].Size > 0 {
		o.file, o.name = files[0], displayName(files[0].Filename)
	}
	return o, o.check()
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
		o.Scale, err = strconv.ParseFloat(text, 64)
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
	switch {
	case o.file == nil && !o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture, or the built-in one")
	case o.file != nil && o.builtin:
		return refuse(http.StatusBadRequest, "choose a picture or the built-in one, not both")
	case !slices.Contains(tileSizes, o.Tile):
		return refuse(http.StatusBadRequest, "tile %d is not possible: choose one of %v", o.Tile, tileSizes)
	case o.Slices < 0 || o.Slices > maxSlices:
		return refuse(http.StatusBadRequest, "slices %d is outside 1…%d", o.Slices, maxSlices)
	}
	if err := errors.Join(picture.CheckScale(o.Scale), (layout.Options{Reuse: o.Reuse, Tint: o.Tint}).Validate()); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
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
	var img *image.RGBA
	store := func(w io.Writer) error { return picture.Encode(w, img) }
	if o.builtin {
		o.name, img = "Built-in picture", picture.Sample()
	} else {
		f, err := o.file.Open()
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written
		if img, err = picture.Decode(f); err != nil {
			return nil, unusable(o.name, err)
		}
		store = func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(f, 0, o.file.Size))
			return err
		}
	}
	size := img.Bounds().Size()
	plan, err := picture.NewPlan(size.X, size.Y, o.Tile, picture.PlanOptions{Scale: o.Scale})
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
	if err := s.keep(j, store, preview); err != nil {
		_ = s.shelf.root.RemoveAll(path.Join(jobsFolder, j.ID)) // the first error is the cause
		return nil, fmt.Errorf("store the picture: %w", err)
	}
	s.shelf.add(j)
	return j, nil
}

// keep stores a new job: its record last, because a folder without a record is not a job.
func (s *Server) keep(j *job, picture func(io.Writer) error, preview []byte) error {
	root := s.shelf.root
	err := root.Mkdir(path.Join(jobsFolder, j.ID), 0o700)
	if err == nil {
		err = replace(root, file(j.ID, pictureFile), picture)
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
