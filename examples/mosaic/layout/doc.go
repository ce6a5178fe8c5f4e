// Package layout says which tile lies in which cell of a mosaic.
//
// [Measure] takes the colours of the picture, nine for each cell, so that edges
// within a cell are seen. [Choose] chooses a tile for every cell of the whole
// picture at once, because the choice for one cell depends on those around it.
// Cells are given their tiles in a random order, the same each time. What a tile
// costs is how far its sub-cells are from those of the cell in OKLab, how little
// it makes up for the errors of the cells around, how often it was used, and
// whether it is used nearby. [Reuse] sets the prices.
//
// The result, a [Layout], is small. It is cut into slices of whole rows with
// [Layout.Window], stored with [Layout.Write], and read with [Read] by whoever
// lays the tiles with [Layout.Lay]. The choice does not depend on how the
// layout is cut, nor on the machine.
package layout
