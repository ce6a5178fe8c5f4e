package filequeue

import "errors"

// Errors of [Open] besides those of the file system. Match them with [errors.Is].
var (
	// ErrLocked means that another process, or another Store of this one, has the directory
	// open.
	ErrLocked = errors.New("the directory is in use")

	// ErrCorrupt means that the file is too damaged to read even its root, or is not a
	// store's. It was not changed.
	ErrCorrupt = errors.New("the file cannot be read")

	// ErrNewer means that a later version of this package wrote the file. It was not changed.
	ErrNewer = errors.New("the file was written by a later version")
)

// errOldLogs means that an earlier version was killed with the directory open: this version
// cannot read its logs.
var errOldLogs = errors.New("the logs are of an earlier version of this program that was not shut down cleanly; " +
	"nothing was changed; open the directory with that version, shut it down cleanly, then open it with this one")
