package tiles

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"net/url"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// A library is written as a tar archive of two files: index.json, and then tiles.png with all tiles side
// by side. So people can inspect it with common tools, and programs can read it as a stream.
const (
	indexName = "index.json"
	sheetName = "tiles.png"

	// maxIndex bounds the index: a tile takes some 100 bytes and its name.
	maxIndex = 64 << 20
	// maxSheet bounds the sheet: a PNG is hardly ever larger than its pixels.
	maxSheet = MaxBytes + MaxBytes/8
)

// ErrBadLibrary means that a stream is not a library as [Library.Write] writes
// it, or that it was damaged.
var ErrBadLibrary = errors.New("not a tile library")

type index struct {
	Version int          `json:"version"`
	ID      string       `json:"id"`
	Size    int          `json:"size"`
	Tiles   indexedTiles `json:"tiles"`
}

// indexedTiles stops reading at the limit of a library: an index full of {}
// would otherwise cost many times its own size.
type indexedTiles []indexedTile

func (t *indexedTiles) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return errors.New("tiles is not a list")
	}
	for d.More() {
		if len(*t) == MaxTiles {
			return fmt.Errorf("it lists more than %d tiles", MaxTiles)
		}
		var one indexedTile
		if err := d.Decode(&one); err != nil {
			return err
		}
		*t = append(*t, one)
	}
	return nil
}

// indexedTile has the name escaped as in a URL, because a file name may be any
// bytes and JSON only holds Unicode. JSON numbers hold a float64 exactly.
type indexedTile struct {
	Name string     `json:"name"`
	Mean [3]float64 `json:"mean"`
}

// sheet is the layout of the picture with all tiles.
type sheet struct{ size, n, cols int }

func newSheet(size, n int) sheet {
	return sheet{size, n, int(math.Ceil(math.Sqrt(float64(n))))}
}

func (s sheet) bounds() image.Rectangle {
	rows := (s.n + s.cols - 1) / s.cols
	return image.Rect(0, 0, s.cols*s.size, rows*s.size)
}

// each calls do with every row of pixels of tile i in a sheet.
func (s sheet) each(img *image.RGBA, i int, do func(row []byte)) {
	at := img.PixOffset(i%s.cols*s.size, i/s.cols*s.size)
	for range s.size {
		do(img.Pix[at : at+4*s.size])
		at += img.Stride
	}
}

// Write writes the library to a stream from which [Read] gets it back exactly.
// The same library always gives the same bytes.
func (l *Library) Write(w io.Writer) error {
	if err := l.write(w); err != nil {
		return fmt.Errorf("writing the tile library: %w", err)
	}
	return nil
}

func (l *Library) write(w io.Writer) error {
	ix := index{Version: 1, ID: l.id, Size: l.size, Tiles: make([]indexedTile, len(l.tiles))}
	s := newSheet(l.size, len(l.tiles))
	img := image.NewRGBA(s.bounds())
	for i := 3; i < len(img.Pix); i += 4 {
		img.Pix[i] = 0xff
	}
	for i, t := range l.tiles {
		ix.Tiles[i] = indexedTile{Name: url.PathEscape(t.Name), Mean: [3]float64{t.Mean.R, t.Mean.G, t.Mean.B}}
		pix := t.Pix
		s.each(img, i, func(row []byte) { pix = pix[copy(row, pix):] })
	}
	text, err := json.Marshal(ix)
	if err != nil {
		return err
	}
	if len(text) > maxIndex {
		return fmt.Errorf("the names of its %d tiles are too long", len(l.tiles))
	}
	var pixels bytes.Buffer
	if err := png.Encode(&pixels, img); err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{indexName, text}, {sheetName, pixels.Bytes()}} {
		if err := tw.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := tw.Write(f.data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// Read reads a library that [Library.Write] wrote. It trusts nothing: numbers
// and sizes are compared with the limits of a library before memory is allocated,
// and the content must have the declared ID. The error is [ErrBadLibrary] for an
// invalid stream, or the error of r.
func Read(r io.Reader) (*Library, error) {
	src := &sourceReader{r: r}
	l, err := read(src)
	switch {
	case src.err != nil:
		return nil, fmt.Errorf("reading the tile library: %w", src.err)
	case err != nil:
		return nil, fmt.Errorf("reading the tile library: %w: %w", ErrBadLibrary, err)
	}
	return l, nil
}

// sourceReader records the error of its reader, to distinguish it from invalid content.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func read(r io.Reader) (*Library, error) {
	tr := tar.NewReader(bufio.NewReader(r))
	ix, err := readIndex(tr)
	if err != nil {
		return nil, err
	}
	tiles := make([]Tile, len(ix.Tiles))
	for i, t := range ix.Tiles {
		name, err := url.PathUnescape(t.Name)
		if err != nil {
			return nil, fmt.Errorf("tile %d has a name that cannot be read", i)
		}
		tiles[i] = Tile{Name: name, Mean: picture.Linear{R: t.Mean[0], G: t.Mean[1], B: t.Mean[2]}}
	}
	if err := readSheet(tr, newSheet(ix.Size, len(tiles)), tiles); err != nil {
		return nil, err
	}
	l, err := New(ix.Size, tiles)
	if err != nil {
		return nil, err
	}
	if l.id != ix.ID {
		return nil, errors.New("its content does not match its ID: it was damaged or changed")
	}
	return l, nil
}

// entry opens the next file of the archive.
func entry(tr *tar.Reader, name string, limit int64) (io.Reader, error) {
	h, err := tr.Next()
	switch {
	case err == io.EOF:
		return nil, fmt.Errorf("it ends before %s", name)
	case err != nil:
		return nil, err
	case h.Name != name:
		return nil, fmt.Errorf("it has %.40q where %s should be", h.Name, name)
	case h.Size > limit:
		return nil, fmt.Errorf("its %s has %d bytes and the limit is %d", name, h.Size, limit)
	}
	return io.LimitReader(tr, limit), nil
}

func readIndex(tr *tar.Reader) (index, error) {
	r, err := entry(tr, indexName, maxIndex)
	if err != nil {
		return index{}, err
	}
	var ix index
	if err := json.NewDecoder(r).Decode(&ix); err != nil {
		return index{}, fmt.Errorf("its %s: %w", indexName, err)
	}
	if ix.Version != 1 {
		return index{}, fmt.Errorf("it is of version %d and this program reads version 1", ix.Version)
	}
	return ix, checkBounds(ix.Size, len(ix.Tiles))
}

var errOtherSheet = errors.New("its " + sheetName + " is not an opaque picture of 8 bits a channel")

// readSheet fills in the pixels of the tiles.
func readSheet(tr *tar.Reader, s sheet, tiles []Tile) error {
	r, err := entry(tr, sheetName, maxSheet)
	if err != nil {
		return err
	}
	// The first kilobyte has the size. Only a sheet of exactly the expected size is decoded, so that a
	// few bytes cannot make it allocate gigabytes.
	br := bufio.NewReaderSize(r, 1024)
	head, _ := br.Peek(1024) // a shorter file is left to DecodeConfig
	cfg, err := png.DecodeConfig(bytes.NewReader(head))
	if err != nil {
		return fmt.Errorf("its %s: %w", sheetName, err)
	}
	if size := s.bounds().Size(); cfg.Width != size.X || cfg.Height != size.Y {
		return fmt.Errorf("its %s has %d×%d pixels instead of %d×%d", sheetName, cfg.Width, cfg.Height, size.X, size.Y)
	}
	if cfg.ColorModel != color.RGBAModel { // 16 bits a channel would take twice the memory
		return errOtherSheet
	}
	decoded, err := png.Decode(br)
	if err != nil {
		return fmt.Errorf("its %s: %w", sheetName, err)
	}
	img, ok := decoded.(*image.RGBA)
	if !ok {
		return errOtherSheet
	}
	for i := range tiles {
		tiles[i].Pix = make([]byte, 0, s.size*s.size*4)
		s.each(img, i, func(row []byte) { tiles[i].Pix = append(tiles[i].Pix, row...) })
	}
	return nil
}
