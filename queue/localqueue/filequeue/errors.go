package filequeue

import "errors"

// What [Open] can fail with besides errors of the file system: match with
// [errors.Is].
var (
	// ErrLocked means that another process, or another part of this one, has
	// the directory open.
	ErrLocked = errors.New("the directory is in use")

	// ErrCorrupt means that the file is so damaged that not even its root can
	// be read, or that it is none of ours. It was not changed.
	ErrCorrupt = errors.New("the file cannot be read")

	// ErrNewer means that a later version of this package wrote the file. It
	// was not changed.
	ErrNewer = errors.New("the file was written by a later version")
)

// errOldLogs means that an earlier version was killed over the directory: this one cannot
// read its logs.
var errOldLogs = errors.New("an earlier version of this program wrote the logs beside the file, and was not stopped in order: nothing was changed; open the directory with that version, stop it in order, then open it with this one")
