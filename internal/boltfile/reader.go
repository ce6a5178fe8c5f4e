package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	maxDepth = 32      // of a tree: far more than any file needs
	maxPage  = 8 << 20 // a page with its overflow
)

var native = binary.NativeEndian

// Reader reads one commit of a file, and remembers which pages it has seen: a page that is used twice is damage. So
// each bucket is walked once. It is not safe for concurrent use. Make one with [NewReader].
type Reader struct {
	// Meta is of the commit that is read.
	Meta Meta

	// Previous is of the commit before; zero if it cannot be read, or is the one that is read.
	Previous Meta

	file  *source
	pages uint64   // of the file
	seen  []uint64 // a bit for every page in use
	used  uint64   // number of pages seen
	buf   [maxDepth + 1][]byte
}

// NewReader returns a Reader of the newest commit of a file of size bytes. The error is
// [ErrNoMeta], or the reason for which the beginning of the file could not be read. The caller
// checks with [Reader.Truncated] that the file has all its pages, and with [Reader.ReadError] that
// the disk works.
func NewReader(file io.ReaderAt, size int64) (*Reader, error) {
	from := &source{from: file}
	newest, previous, err := readMetas(from)
	if err != nil && from.failed != nil {
		return nil, fmt.Errorf("read its meta pages: %w", from.failed)
	}
	if err != nil {
		return nil, err
	}
	r := &Reader{file: from, pages: uint64(size) / uint64(newest.PageSize), Previous: previous}
	r.begin(newest)
	return r, nil
}

func (r *Reader) begin(m Meta) {
	r.Meta, r.used = m, 0
	r.seen = make([]uint64, min(m.High, r.pages)/64+1)
}

// source is a file that remembers why it could not be read.
type source struct {
	from   io.ReaderAt
	failed error // the first error, except the end of the file
}

func (s *source) ReadAt(b []byte, at int64) (int, error) {
	n, err := s.from.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) && s.failed == nil {
		s.failed = err
	}
	return n, err
}

// ReadAt reads the bytes of the file; see [Reader.ReadError].
func (r *Reader) ReadAt(b []byte, at int64) (int, error) { return r.file.ReadAt(b, at) }

// ReadError returns the first error of the disk so far: unlike damage, it may pass. Nil means that
// every page was read that is in the file.
func (r *Reader) ReadError() error { return r.file.failed }

// FallBack goes back to the commit before, and returns false if that cannot be read.
func (r *Reader) FallBack() bool {
	if !r.Previous.readable() {
		return false
	}
	r.begin(r.Previous)
	r.Previous = Meta{}
	return true
}

// Whole reports whether both meta pages could be read. If not, the newest commit may be lost.
func (r *Reader) Whole() bool { return r.Previous.readable() }

// Consecutive reports whether the meta pages are those of a commit and the one before it. If not, a page of another time
// is in the place of one of them. A meta page that cannot be read is not counted.
func (r *Reader) Consecutive() bool {
	return !r.Meta.misplaced() && !r.Previous.misplaced() && (!r.Previous.readable() || r.Meta.Commit == r.Previous.Commit+1)
}

// Truncated reports whether the file ends before the last page in use.
func (r *Reader) Truncated() bool { return r.Meta.High > r.pages }

// Used returns the number of pages seen.
func (r *Reader) Used() uint64 { return r.used }

// Seen reports whether a page was seen.
func (r *Reader) Seen(page uint64) bool {
	return page/64 < uint64(len(r.seen)) && r.seen[page/64]&(1<<(page%64)) != 0
}

// inUse returns an error unless a page is one of those in use, except the meta pages, and in the file.
func (r *Reader) inUse(page uint64) error {
	if page < 2 || page >= r.Meta.High {
		return fmt.Errorf("page %d is not among the %d pages in use", page, r.Meta.High)
	}
	if page >= r.pages {
		return fmt.Errorf("page %d is beyond the end of the file", page)
	}
	return nil
}

func (r *Reader) markSeen(page, overflow uint64) error {
	for p := page; p <= page+overflow; p++ {
		if r.Seen(p) {
			return fmt.Errorf("page %d is used twice", p)
		}
	}
	for p := page; p <= page+overflow; p++ {
		r.seen[p/64] |= 1 << (p % 64)
	}
	r.used += overflow + 1
	return nil
}

// read returns a page with its overflow, valid until the next read at the same depth, and marks it as seen.
func (r *Reader) read(page uint64, depth int) ([]byte, error) {
	if err := r.inUse(page); err != nil {
		return nil, err
	}
	b, err := r.readAt(page, 0, depth)
	if err != nil {
		return nil, err
	}
	if id := native.Uint64(b); id != page {
		return nil, fmt.Errorf("page %d has id %d", page, id)
	}
	overflow := uint64(native.Uint32(b[12:]))
	if overflow > 0 {
		if r.tooLong(overflow) || r.inUse(page+overflow) != nil {
			return nil, fmt.Errorf("page %d has an invalid overflow of %d pages", page, overflow)
		}
		if b, err = r.readAt(page, overflow, depth); err != nil {
			return nil, err
		}
	}
	return b, r.markSeen(page, overflow)
}

func (r *Reader) tooLong(overflow uint64) bool {
	return (overflow+1)*uint64(r.Meta.PageSize) > maxPage
}

func (r *Reader) readAt(page, overflow uint64, depth int) ([]byte, error) {
	length := (overflow + 1) * uint64(r.Meta.PageSize)
	if uint64(cap(r.buf[depth])) < length {
		r.buf[depth] = make([]byte, length)
	}
	b := r.buf[depth][:length]
	if _, err := r.file.ReadAt(b, int64(page)*int64(r.Meta.PageSize)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", page, err)
	}
	return b, nil
}

// walker visits the leaves of a tree.
type walker struct {
	r       *Reader
	visit   func(Entry) error
	damaged func(why error) error
}

// page visits the leaves below a page, whose keys are within the bounds of [orderedElements]. Both are nil for a root.
func (w *walker) page(page uint64, low, high []byte, depth int) error {
	if depth == maxDepth {
		return w.damaged(fmt.Errorf("page %d is too deep in the tree", page))
	}
	b, err := w.r.read(page, depth)
	if err != nil {
		return w.damaged(err)
	}
	switch flags := native.Uint16(b[8:]); flags {
	case branchPage:
		// Visit what is below a page, even if some of its children are damaged.
		var children []element
		err := orderedElements(b, false, low, high, func(e element) error {
			children = append(children, e)
			return nil
		})
		if err == nil && len(children) < 2 { // bbolt never leaves such a page, and cannot delete from it
			err = fmt.Errorf("it is a branch, and its number of entries is %d", len(children))
		}
		if err != nil {
			if err := w.damaged(fmt.Errorf("page %d: %w", page, err)); err != nil {
				return err
			}
		}
		for i, c := range children {
			until := high
			if i+1 < len(children) {
				until = children[i+1].Key
			}
			if err := w.page(c.child, c.Key, until, depth+1); err != nil {
				return err
			}
		}
		return nil
	case leafPage:
		err = w.leaf(b, low, high)
	default:
		err = fmt.Errorf("it has the flags %#x, which no page of a tree has", flags)
	}
	if err != nil {
		return w.damaged(fmt.Errorf("page %d: %w", page, err))
	}
	return nil
}

// leaf visits the entries of a leaf up to the first damaged one. Only a root may have none.
func (w *walker) leaf(b, low, high []byte) error {
	if low != nil && native.Uint16(b[10:]) == 0 {
		return errors.New("it is a leaf without entries")
	}
	return orderedElements(b, true, low, high, func(e element) error { return w.visit(e.Entry) })
}

// Scan visits the entries of every page of the file that looks like a leaf, of any commit: those that are in use, those
// that are free, and those of deleted buckets. So an entry may come several times, in several states, and in any order,
// and the caller must know its own entries from other bytes. Buckets are left out. Of a damaged page it visits the entries
// before the damage. It marks no page as seen.
func (r *Reader) Scan(visit func(Entry)) {
	for page := uint64(2); page < r.pages; page++ {
		b, err := r.readAt(page, 0, 0)
		if err != nil || native.Uint64(b) != page || native.Uint16(b[8:]) != leafPage {
			continue
		}
		if overflow := uint64(native.Uint32(b[12:])); overflow > 0 {
			if r.tooLong(overflow) {
				continue
			}
			if b, err = r.readAt(page, overflow, 0); err != nil { // the end of the file, too
				continue
			}
		}
		_ = elements(b, true, func(e element) error { // up to the first damaged entry
			if !e.Bucket {
				visit(e.Entry)
			}
			return nil
		})
	}
}
