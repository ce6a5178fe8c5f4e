package picture

import (
	"errors"
	"fmt"
)

// The errors a caller may want to tell apart with [errors.Is]. The error that
// wraps one of them says in one line what was wrong with which picture.
var (
	// ErrNotPicture means that the data is not a picture of any format that
	// [Decode] knows.
	ErrNotPicture = errors.New("not a JPEG, PNG, GIF, WebP, TIFF or BMP picture")

	// ErrDamaged means that the data starts like a picture and then breaks a
	// rule of its format, ends early, or uses a feature that Go's decoders lack.
	ErrDamaged = errors.New("damaged or unusual picture")

	// ErrTooLarge means that the picture has more than [MaxPixels] pixels, or
	// would need more than [MaxDecodeBytes] bytes to decode.
	ErrTooLarge = errors.New("picture too large")

	// ErrUnsupported means that the data is a picture of a format that this
	// package recognises and cannot read, such as HEIC. The error is an
	// [*UnsupportedError].
	ErrUnsupported = errors.New("unsupported picture format")

	// ErrFormat means that a file name does not end in .png, .jpg or .jpeg, so
	// the format to write is unknown.
	ErrFormat = errors.New("unknown picture format")
)

// UnsupportedError names the format of a picture that cannot be read, and a way
// out. It is [ErrUnsupported].
type UnsupportedError struct {
	Format string // such as "HEIC", for people
	Advice string // what to do, without the first capital letter and the full stop
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: it is %s, which this program cannot read: %s", ErrUnsupported, e.Format, e.Advice)
}

// Unwrap returns [ErrUnsupported].
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }
