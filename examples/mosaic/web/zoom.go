package web

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

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

// drawn is what is needed to draw parts of a mosaic.
type drawn struct {
	layout  *layout.Layout
	library *tiles.Library
}

// libraryOf returns the library of a layout with tiles of this size.
func (s *Server) libraryOf(id string, size int) (*tiles.Library, error) {
	if l, ok := s.shrunk.get(shrunkKey{id, size}); ok {
		return l, nil
	}
	s.shrunk.turn.Lock()
	defer s.shrunk.turn.Unlock()
	if l, ok := s.shrunk.get(shrunkKey{id, size}); ok { // made meanwhile
		return l, nil
	}
	whole, ok := s.shrunk.get(shrunkKey{id, 0})
	if !ok {
		f, err := s.root.Open(tilesFile(id))
		if err != nil {
			return nil, err
		}
		whole, err = tiles.Read(f)
		_ = f.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		s.shrunk.put(shrunkKey{id, 0}, whole, libraryBytes(whole))
	}
	if size == 0 || size == whole.Size() {
		return whole, nil
	}
	small, err := whole.Shrink(size)
	if err != nil {
		return nil, err
	}
	s.shrunk.put(shrunkKey{id, size}, small, libraryBytes(small))
	return small, nil
}

// layoutOf returns the layout of a job, of which nothing is known before its tiles were chosen.
func (s *Server) layoutOf(r *record) (*layout.Layout, error) {
	if l, ok := s.layouts.get(r.ID); ok {
		return l, nil
	}
	if r.LibraryID == "" || r.State == waiting || r.State == measuring {
		return nil, refuse(http.StatusNotFound, "the tiles of this mosaic are not chosen yet")
	}
	l, err := s.storedLayout(r.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotFound // the job failed before
	}
	if err != nil {
		return nil, err
	}
	s.layouts.put(r.ID, l, layoutBytes(l))
	return l, nil
}

func layoutBytes(l *layout.Layout) int64 { return int64(4*len(l.Tiles) + 3*len(l.Cells.Colours)) }

// drawingOf returns the layout of a job, and its library with tiles of this size.
func (s *Server) drawingOf(r *record, size int) (drawn, error) {
	l, err := s.layoutOf(r)
	if err != nil {
		return drawn{}, err
	}
	library, err := s.libraryOf(l.Library, size)
	return drawn{l, library}, err
}

// part draws a rectangle of pixels of a mosaic. Only the cells that it touches are laid.
func (d drawn) part(r image.Rectangle) (image.Image, error) {
	size := d.library.Size()
	cells := image.Rect(r.Min.X/size, r.Min.Y/size, (r.Max.X+size-1)/size, (r.Max.Y+size-1)/size)
	img, err := d.layout.Window(cells).Lay(d.library)
	if err != nil {
		return nil, err
	}
	return img.SubImage(r.Sub(cells.Min.Mul(size))), nil
}

// draw draws a part of a mosaic as a JPEG. Few are drawn at a time, because each takes a processor.
func (s *Server) draw(ctx context.Context, d drawn, r image.Rectangle) ([]byte, error) {
	free, err := take(ctx, s.drawing)
	if err != nil {
		return nil, err
	}
	defer free()
	img, err := d.part(r)
	if err == nil {
		img, err = fit(img, maxPreview)
	}
	if err != nil {
		return nil, err
	}
	return encodeJPEG(img)
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

// zoomSquare is GET /jobs/{id}/zoom/{level}/{x}/{y}.
func (s *Server) zoomSquare(w http.ResponseWriter, r *http.Request) error {
	j, err := s.finished(r)
	if err != nil {
		return err
	}
	levels := levelsOf(&j)
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
	key := squareKey{j.ID, n, x, y}
	text, ok := s.squares.get(key)
	if !ok {
		d, err := s.drawingOf(&j, l.size)
		if err != nil {
			return err
		}
		part := image.Rect(x*side, y*side, min((x+1)*side, l.Width), min((y+1)*side, l.Height))
		if text, err = s.draw(r.Context(), d, part); err != nil {
			return err
		}
		s.squares.put(key, text, int64(len(text)))
	}
	sendJPEG(w, text)
	return nil
}

// slicePreview is GET /jobs/{id}/slices/{i}.
func (s *Server) slicePreview(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	snap, _ := j.look(s.options.Price)
	i, err := number(r, "i", len(snap.Slices))
	if err != nil {
		return err
	}
	if !snap.Slices[i].Stored {
		return refuse(http.StatusNotFound, "this slice is not stored yet")
	}
	key := squareKey{snap.ID, -1, i, 0}
	text, ok := s.squares.get(key)
	if !ok {
		now := j.current()
		rows := snap.Slices[i].End - snap.Slices[i].First
		size := now.Tile
		for size > 1 && max(now.Cols, rows)*size > maxPreview {
			size /= 2
		}
		d, err := s.drawingOf(&now, size)
		if err != nil {
			return err
		}
		part := image.Rect(0, snap.Slices[i].First*size, now.Cols*size, snap.Slices[i].End*size)
		if text, err = s.draw(r.Context(), d, part); err != nil {
			return err
		}
		s.squares.put(key, text, int64(len(text)))
	}
	sendJPEG(w, text)
	return nil
}

// cell is GET /jobs/{id}/cells/{x}/{y}.
func (s *Server) cell(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	now := j.current()
	x, errX := number(r, "x", now.Cols)
	y, errY := number(r, "y", now.Rows)
	if errX != nil || errY != nil {
		return errNotFound
	}
	d, err := s.drawingOf(&now, 0)
	if err != nil {
		return err
	}
	n := int(d.layout.Tiles[y*now.Cols+x])
	respond(w, http.StatusOK, map[string]any{
		"name": d.library.Tile(n).Name, "preview": fmt.Sprintf("/previews/%s/%d", d.layout.Library, n), "tile": n,
	})
	return nil
}

// preview is GET /previews/{library}/{n}.
func (s *Server) preview(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("library")
	if !s.shelf.uses(id) {
		return errNotFound
	}
	library, err := s.libraryOf(id, 0)
	if err != nil {
		return err
	}
	n, err := number(r, "n", library.Len())
	if err != nil {
		return err
	}
	text, err := s.previewOf(r.Context(), library, n)
	if err != nil {
		return err
	}
	sendJPEG(w, text)
	return nil
}

// previewOf returns what is kept of the photograph of a tile, or the tile itself if that is all there is.
func (s *Server) previewOf(ctx context.Context, library *tiles.Library, n int) ([]byte, error) {
	tile := library.Tile(n)
	if p := s.libraries.previews(library.ID()); p != nil {
		free, err := take(ctx, s.drawing)
		if err != nil {
			return nil, err
		}
		defer free()
		text, err := p.Open(ctx, tile.Name)
		if err == nil || ctx.Err() != nil {
			return text, err
		}
	}
	size := library.Size()
	return encodeJPEG(&image.RGBA{Pix: tile.Pix, Stride: 4 * size, Rect: image.Rect(0, 0, size, size)})
}

// sendJPEG sends a picture that never changes.
func sendJPEG(w http.ResponseWriter, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "image/jpeg")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "private, max-age=86400, immutable")
	_, _ = w.Write(text) // nobody is left to tell
}
