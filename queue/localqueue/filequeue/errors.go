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

	// ErrNewer means that a later release wrote the file or a log. Nothing was changed.
	ErrNewer = errors.New("a later release of Millrace wrote this directory; nothing was changed; " +
		"use that release, or a later one")
)
