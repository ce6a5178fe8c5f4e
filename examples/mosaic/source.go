package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// source is the input picture: a file or the sample.
type source struct {
	name   string // for people
	path   string // of the file
	sample []byte // a PNG, if there is no file
}

func newSource(path string) (*source, error) {
	if path != "" {
		return &source{name: path, path: path}, nil
	}
	var b bytes.Buffer
	img := picture.Sample()
	if err := picture.Encode(&b, img, img.Bounds(), picture.PNG); err != nil {
		return nil, err
	}
	return &source{name: "sample picture", sample: b.Bytes()}, nil
}

func (s *source) open() (io.ReadCloser, error) {
	if s.path == "" {
		return io.NopCloser(bytes.NewReader(s.sample)), nil
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, s.failure(err)
	}
	// It is read twice, which a pipe does not allow; opening one may block for ever.
	if !info.Mode().IsRegular() {
		return nil, s.failure(errors.New("it is not a file"))
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil, s.failure(err)
	}
	return f, nil
}

// header reads the header, and refuses a picture that cannot be decoded.
func (s *source) header() (picture.Header, error) {
	r, err := s.open()
	if err != nil {
		return picture.Header{}, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	h, err := picture.Inspect(r)
	if err != nil {
		return h, s.failure(err)
	}
	return h, nil
}

func (s *source) failure(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("cannot read %s: %w", s.name, err)
}
