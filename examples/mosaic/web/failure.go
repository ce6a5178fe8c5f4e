package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
)

// plainError is an error whose text is written for the people who use the page.
type plainError struct{ text string }

func (e *plainError) Error() string { return e.text }

func plainly(format string, args ...any) error { return &plainError{fmt.Sprintf(format, args...)} }

// whyFailed says in plain words why the mosaic of a picture could not be made, and what to do.
func whyFailed(name string, err error) string {
	plain, kept := (*plainError)(nil), (*roles.KeptError)(nil)
	switch {
	case errors.As(err, &plain):
		return plain.text
	case diskFull(err):
		return "The disk is full, so the mosaic of “" + name + "” could not be stored. Delete mosaics or libraries that you do not need, or make room on the disk, and then try again."
	case says(err, layout.ErrBadLayout):
		return "A slice of the mosaic of “" + name + "” was damaged while it was stored, so its tiles could not be laid. The picture itself is unharmed. Try again: all slices are then made anew."
	case says(err, tiles.ErrBadLibrary):
		return "The tiles for “" + name + "” were damaged while they were stored. The picture itself is unharmed. Make a new mosaic with another tile size or other tiles, or try again in half an hour."
	case says(err, picture.ErrDamaged), says(err, picture.ErrNotPicture):
		return "What was stored of “" + name + "” was damaged, so it could not be read again. Try again, and if that fails, choose the picture anew."
	case says(err, blob.ErrMissing):
		return "A part of the mosaic of “" + name + "” was removed while it was being made. Try again. If it happens again, another program cleans up here, or the processors store their work in another place."
	case errors.As(err, &kept):
		return "The mosaic of “" + name + "” was made, but it could not be saved. Try again. If it happens again, whoever runs this program finds the cause in its log."
	case errors.Is(err, queue.ErrUnauthorized):
		return "The queue server does not let this program in, so “" + name + "” was not sent. Whoever runs the program has to check the account, and can then try again."
	}
	return "One step of the mosaic of “" + name + "” failed again and again. Try again. If it happens again, whoever runs this program finds the cause in its log."
}

// says reports whether an error is the target. The errors of other processes are texts.
func says(err, target error) bool {
	far := (*roles.FailedError)(nil)
	return errors.Is(err, target) || errors.As(err, &far) && strings.Contains(far.Reason, target.Error())
}

// diskFull reports whether there was no room on a disk.
func diskFull(err error) bool {
	const windows = "not enough space on the disk"
	return says(err, syscall.ENOSPC) || says(err, syscall.EDQUOT) || err != nil && strings.Contains(err.Error(), windows)
}

// fullDisk is the answer to a request that there was no room for.
func fullDisk() *refusal {
	return &refusal{http.StatusInsufficientStorage, "the disk of this machine is full: delete mosaics or libraries that you do not need, or make room on the disk, and try again"}
}

// unusable says in plain words why a picture that was sent cannot be used, and what to do.
func unusable(name string, err error) error {
	unsupported := (*picture.UnsupportedError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsupported):
		return refuse(http.StatusUnprocessableEntity, "“%s” is %s, which cannot be read here: %s", name, unsupported.Format, unsupported.Advice)
	case errors.Is(err, picture.ErrTooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "“%s” is too large: %s", name, after(err, picture.ErrTooLarge))
	case errors.Is(err, picture.ErrNotPicture):
		return refuse(http.StatusUnprocessableEntity, "“%s” is not a picture that can be read here: choose a JPEG, PNG, WebP, GIF, TIFF or BMP", name)
	case errors.Is(err, picture.ErrDamaged):
		return refuse(http.StatusUnprocessableEntity, "“%s” is damaged, incomplete or unusual, and cannot be read: open it in another program, save it as a JPEG or PNG, and choose that", name)
	case errors.As(err, new(*fs.PathError)):
		return err
	}
	return refuse(http.StatusUnprocessableEntity, "“%s” cannot be used: %v", name, err)
}

// after returns what an error says after the kind of error that it is.
func after(err, kind error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, kind.Error()+": "); ok {
		return rest
	}
	return text
}

// noTiles says in plain words why there are no tiles of a library.
func noTiles(name string, summary tiles.DirSummary, err error) error {
	switch {
	case diskFull(err):
		return err
	case summary.Found == 0:
		return plainly("There are no photographs in “%s” any more. Make a new mosaic with other tiles.", name)
	case summary.Used == 0 && len(summary.Skipped) > 0:
		return plainly("None of the photographs of “%s” can be used as tiles (%v). Upload JPEG, PNG, WebP, TIFF, BMP or GIF pictures as a new library, and make a new mosaic with that.", name, summary)
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		err = cause // without the folder
	}
	return plainly("No tiles could be made of “%s”: %s.", name, strings.TrimPrefix(withoutPaths(err.Error()), "making the tile library: "))
}

// outOfTime is the cause with which a job ends that takes too long.
func outOfTime(limit time.Duration) error {
	return plainly("This mosaic took longer than %v, which is the limit. Try again when less is going on here, or make a smaller one.", limit)
}

// sentence makes a text one that begins and ends as a sentence does.
func sentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if n == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[n:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// absolute matches a path of a file that begins a word.
var absolute = regexp.MustCompile(`(^|[\s"'(])(?:/|[A-Za-z]:\\)[^\s"':;,)]*`)

// withoutPaths removes paths of this machine from a text, because users of the page may be others than its owner.
func withoutPaths(text string) string { return absolute.ReplaceAllString(text, "$1…") }
