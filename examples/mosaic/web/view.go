package web

import (
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// original is GET /jobs/{id}/original.
func (s *Server) original(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, max-age=86400, immutable")
	return s.sendFile(w, r, file(j.ID, originalFile), "image/jpeg")
}

// mosaic is GET /jobs/{id}/mosaic.
func (s *Server) mosaic(w http.ResponseWriter, r *http.Request) error {
	j, err := s.finished(r)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(j.Name, path.Ext(j.Name)) + " mosaic.png"
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	w.Header().Set("Cache-Control", "private, no-cache")
	return s.sendFile(w, r, file(j.ID, mosaicFile), "image/png")
}

// sendFile sends a file of a job, or a part of it.
func (s *Server) sendFile(w http.ResponseWriter, r *http.Request, name, kind string) error {
	f, err := s.shelf.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(timeFor(info.Size())) // a recorder has no deadline
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// finished returns a job that has a mosaic.
func (s *Server) finished(r *http.Request) (record, error) {
	j, err := s.job(r)
	if err != nil {
		return record{}, err
	}
	now := j.current()
	if now.State != done {
		return now, refuse(http.StatusNotFound, "this mosaic is not finished")
	}
	return now, nil
}

// side is the side of a square of the zoom, in pixels.
const side = 256

// level is one magnification of a mosaic: tiles of some size.
type level struct {
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Scale  float64 `json:"scale"` // of the mosaic
	size   int     // of a tile, in pixels
}

// levelsOf returns the levels of a job, the largest first: each has tiles of half the size, down to one pixel a tile, or
// to a mosaic that fits in one square.
func levelsOf(r *record) []level {
	var all []level
	for size := r.Tile; size >= 1; size /= 2 {
		all = append(all, level{r.Cols * size, r.Rows * size, float64(size) / float64(r.Tile), size})
		if max(r.Cols, r.Rows)*size <= side {
			break
		}
	}
	return all
}

// zoomLevels is GET /jobs/{id}/zoom.
func (s *Server) zoomLevels(w http.ResponseWriter, r *http.Request) error {
	j, err := s.finished(r)
	if err != nil {
		return err
	}
	respond(w, http.StatusOK, map[string]any{"tile": side, "levels": levelsOf(&j)})
	return nil
}

// zoomSquare is GET /jobs/{id}/zoom/{level}/{x}/{y}.
func (s *Server) zoomSquare(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	now := j.current()
	levels := levelsOf(&now)
	n, err := number(r, "level", len(levels))
	if err != nil {
		return err
	}
	l := levels[n]
	x, errX := number(r, "x", (l.Width+side-1)/side)
	y, errY := number(r, "y", (l.Height+side-1)/side)
	if errX != nil || errY != nil {
		return errNotFound
	}
	return s.draw(w, r, j, l.size, image.Rect(x*side, y*side, min((x+1)*side, l.Width), min((y+1)*side, l.Height)))
}

// slicePreview is GET /jobs/{id}/slices/{i}.
func (s *Server) slicePreview(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	snap, _ := j.look()
	i, err := number(r, "i", len(snap.Slices))
	if err != nil {
		return err
	}
	if !snap.Slices[i].Stored {
		return refuse(http.StatusNotFound, "this slice is not stored yet")
	}
	first, end := snap.Slices[i].First, snap.Slices[i].End
	size := snap.Tile
	for size > 1 && max(snap.Cols, end-first)*size > maxPreview {
		size /= 2
	}
	return s.draw(w, r, j, size, image.Rect(0, first*size, snap.Cols*size, end*size))
}

// draw sends a part of a mosaic with tiles of a size. Only the cells that the part touches are laid, and few
// parts at a time are drawn, because each takes a CPU. Browsers keep them.
func (s *Server) draw(w http.ResponseWriter, r *http.Request, j *job, size int, part image.Rectangle) error {
	l, err := s.layoutOf(j)
	if err != nil {
		return err
	}
	free, err := take(r.Context(), s.drawing)
	if err != nil {
		return err
	}
	defer free()
	library, err := s.libs.get(l.Library, size)
	if err != nil {
		return err
	}
	cells := image.Rect(part.Min.X/size, part.Min.Y/size, (part.Max.X+size-1)/size, (part.Max.Y+size-1)/size)
	img, err := l.Window(cells).Lay(library)
	if err != nil {
		return err
	}
	return sendJPEG(w, img.SubImage(part.Sub(cells.Min.Mul(size))))
}

// layoutOf returns the layout of a job. It fails before the tiles are chosen.
func (s *Server) layoutOf(j *job) (*layout.Layout, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.layout != nil {
		return j.layout, nil
	}
	err := read(s.shelf.root, file(j.ID, layoutFile), func(r io.Reader) (err error) {
		j.layout, err = layout.Read(r)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(http.StatusNotFound, "the tiles of this mosaic are not chosen yet")
	}
	return j.layout, err
}

func (s *Server) tilesOf(r *http.Request) (*job, *tiles.Library, *layout.Layout, error) {
	j, err := s.job(r)
	if err != nil {
		return nil, nil, nil, err
	}
	l, err := s.layoutOf(j)
	if err != nil {
		return nil, nil, nil, err
	}
	library, err := s.libs.get(l.Library, 0)
	return j, library, l, err
}

// cell is GET /jobs/{id}/cells/{x}/{y}.
func (s *Server) cell(w http.ResponseWriter, r *http.Request) error {
	j, library, l, err := s.tilesOf(r)
	if err != nil {
		return err
	}
	x, errX := number(r, "x", j.Cols) // never changes
	y, errY := number(r, "y", j.Rows)
	if errX != nil || errY != nil {
		return errNotFound
	}
	n := int(l.Tiles[y*j.Cols+x])
	respond(w, http.StatusOK, map[string]any{"name": library.Tile(n).Name, "preview": fmt.Sprintf("/jobs/%s/tiles/%d", j.ID, n), "tile": n})
	return nil
}

// tile is GET /jobs/{id}/tiles/{n}: the photograph of a tile, at most 512 pixels a side. If the photograph is not there
// any more, it is the tile.
func (s *Server) tile(w http.ResponseWriter, r *http.Request) error {
	j, library, _, err := s.tilesOf(r)
	if err != nil {
		return err
	}
	n, err := number(r, "n", library.Len())
	if err != nil {
		return err
	}
	name := library.Tile(n).Name
	free, err := take(r.Context(), s.drawing)
	if err != nil {
		return err
	}
	defer free()
	if j.current().Photos == s.options.Tiles {
		if img, err := decodeIn(s.options.Tiles, name); err == nil {
			return sendJPEG(w, picture.Fit(picture.OverWhite(img), 512))
		}
		large, err := s.library(r.Context(), tiles.MaxSize, func(string) {})
		if err == nil && n < large.Len() && large.Tile(n).Name == name {
			library = large
		}
	}
	size := library.Size()
	return sendJPEG(w, &image.RGBA{Pix: library.Tile(n).Pix, Stride: 4 * size, Rect: image.Rect(0, 0, size, size)})
}

// decodeIn decodes a picture in a folder. It refuses names that lead out of the folder.
func decodeIn(folder, name string) (image.Image, error) {
	if folder == "" {
		return nil, fs.ErrNotExist // generated tiles
	}
	f, err := os.OpenInRoot(folder, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return picture.Decode(f)
}

// sendJPEG sends a picture that never changes.
func sendJPEG(w http.ResponseWriter, img image.Image) error {
	text, err := encodeJPEG(img)
	if err != nil {
		return fmt.Errorf("encode a preview: %w", err)
	}
	w.Header().Set("Content-Type", "image/jpeg")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Header().Set("Cache-Control", "private, max-age=86400, immutable")
	_, _ = w.Write(text) // the client has left
	return nil
}
