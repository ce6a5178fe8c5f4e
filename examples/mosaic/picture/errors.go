package picture

import "errors"

// The errors a caller may want to tell apart with [errors.Is]. The error that
// wraps one of them says in one line what was wrong with which picture.
var (
	// ErrNotPicture means that the data is not a JPEG, PNG or GIF at all.
	ErrNotPicture = errors.New("not a JPEG, PNG or GIF picture")

	// ErrDamaged means that the data starts like a picture and then breaks a
	// rule of its format, ends early, or uses a feature that Go's decoders lack.
	ErrDamaged = errors.New("damaged or unusual picture")

	// ErrTooLarge means that the picture has more than [MaxPixels] pixels, or
	// would need more than [MaxDecodeBytes] bytes to decode.
	ErrTooLarge = errors.New("picture too large")

	// ErrFormat means that a file name does not end in .png, .jpg or .jpeg, so
	// the format to write is unknown.
	ErrFormat = errors.New("unknown picture format")
)
