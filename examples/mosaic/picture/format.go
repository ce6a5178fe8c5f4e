package picture

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Format is a file format that this package can write. The zero value is
// [PNG].
type Format int

// The formats.
const (
	PNG  Format = iota // lossless
	JPEG               // quality 92, 4:2:0
)

// jpegQuality keeps the fine texture of tiles: at Go's default of 75 the edges
// between tiles ring visibly.
const jpegQuality = 92

// maxJPEGSide is the maximum that a JPEG header can declare (ITU-T T.81, B.2.2).
const maxJPEGSide = 1<<16 - 1

// FormatOf chooses the format to write from the extension of a file name: .png,
// .jpg or .jpeg, in upper or lower case. Any other gives an error that is
// [ErrFormat].
func FormatOf(name string) (Format, error) {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png":
		return PNG, nil
	case ".jpg", ".jpeg":
		return JPEG, nil
	}
	return 0, fmt.Errorf("%w: choosing a format for %q: give the file a name ending in .png, .jpg or .jpeg", ErrFormat, name)
}

// String names the format: "PNG" or "JPEG".
func (f Format) String() string {
	switch f {
	case PNG:
		return "PNG"
	case JPEG:
		return "JPEG"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}
