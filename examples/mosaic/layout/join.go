package layout

import "fmt"

// Join puts windows that lie below each other together again, from top to bottom. It keeps none of the slices. It fails if
// there is none, if they differ in width, sub-cells, library or tint, or if there are more than [MaxCells].
func Join(parts []*Layout) (*Layout, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("joining the layout: %w: it has no parts", ErrBadLayout)
	}
	first := parts[0]
	whole, cells := *first, Cells{Cols: first.Cells.Cols, Sub: first.Cells.Sub}
	for i, p := range parts {
		if p.Cells.Cols != cells.Cols || p.Cells.Sub != cells.Sub || p.Library != whole.Library || p.Tint != whole.Tint {
			return nil, fmt.Errorf("joining the layout: %w: part %d of %d is of another layout", ErrBadLayout, i+1, len(parts))
		}
		cells.Rows += p.Cells.Rows
	}
	if cells.Rows > MaxCells/cells.Cols {
		return nil, fmt.Errorf("joining the layout: %w: it has %d×%d cells", ErrBadLayout, cells.Cols, cells.Rows)
	}
	n := cells.Cols * cells.Rows
	cells.Colours = make([]Colour, 0, n*cells.Sub*cells.Sub)
	whole.Tiles = make([]int32, 0, n)
	for _, p := range parts {
		whole.Tiles = append(whole.Tiles, p.Tiles...)
		cells.Colours = append(cells.Colours, p.Cells.Colours...)
	}
	whole.Cells = &cells
	return &whole, nil
}
