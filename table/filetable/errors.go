package filetable

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/table"
)

// Errors besides those of package table. Match them with [errors.Is].
var (
	// ErrLocked means that another process, or another DB of this one, has the file open.
	ErrLocked = errors.New("the file is in use")

	// ErrCorrupt means that the file, or a record in it, is damaged, or that the file is not one of tables. It
	// was not changed.
	ErrCorrupt = errors.New("cannot be read")

	// ErrNewer means that a later version of this package wrote the file. It was not changed.
	ErrNewer = errors.New("was written by a later version of this program")

	// ErrClosed means that the call came after [DB.Close]. It had no effect.
	ErrClosed = errors.New("the file of tables is closed")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// unavailable returns the error of a call that the file system failed.
func (db *DB) unavailable(what string, err error) error {
	return &table.Error{Kind: table.ErrUnavailable, Detail: what + " " + db.path, Err: err}
}
