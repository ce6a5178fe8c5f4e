package filetable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

const (
	maxDepth = 32      // of a tree: far more than any file needs
	maxPage  = 8 << 20 // a page with what continues it
)

// checker checks the pages of a file.
type checker struct {
	file io.ReaderAt
	meta meta
	seen []uint64 // a bit for every page
	buf  [maxDepth + 1][]byte
}

// checkFile returns [ErrCorrupt] unless a file is a sound file of tables, or [ErrNewer].
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return corrupt("it is no file")
	}
	if info.Size() == 0 {
		return corrupt("the file is empty: it was truncated, or is not one of tables; delete it to begin with no tables")
	}
	return checkPages(f, info.Size())
}

func checkPages(f io.ReaderAt, size int64) error {
	m, err := readMeta(f)
	if err != nil {
		return err
	}
	if pages := uint64(size) / uint64(m.pageSize); m.high > pages {
		return corrupt("the file is truncated: it has %d bytes and needs %d pages of %d", size, m.high, m.pageSize)
	}
	c := &checker{file: f, meta: m, seen: make([]uint64, m.high/64+1)}
	if err := c.freelist(); err != nil {
		return err
	}
	buckets, err := c.buckets()
	if err != nil {
		return err
	}
	if err := c.about(buckets); err != nil {
		return err
	}
	for _, b := range buckets {
		if err := c.entries(b, plain); err != nil {
			return corrupt("the bucket %q: %v", b.name, err)
		}
	}
	return nil
}

// about checks what the file says of itself, before anything that another format may have otherwise.
func (c *checker) about(buckets []bucket) error {
	i := slices.IndexFunc(buckets, func(b bucket) bool { return bytes.Equal(b.name, aboutBucket) })
	if i < 0 {
		return corrupt("the file is a bbolt file of another program, not one of tables")
	}
	found := map[string][]byte{}
	about := buckets[i]
	seen := slices.Clone(c.seen)
	remember := func(e element) error { found[string(e.key)] = bytes.Clone(e.value); return nil }
	if err := c.entries(about, remember); err != nil {
		return corrupt("the bucket %q: %v", about.name, err)
	}
	c.seen = seen // it is visited again
	is, err := readNumber(formatKey, found[string(formatKey)])
	if err != nil {
		return err
	}
	if is > format {
		return fmt.Errorf("the file %w: its format is %d, and this program knows those up to %d", ErrNewer, is, format)
	}
	if _, err := readNumber(versionKey, found[string(versionKey)]); err != nil {
		return err
	}
	for _, b := range buckets {
		if !bytes.Equal(b.name, aboutBucket) && !strings.HasPrefix(string(b.name), tablePrefix) {
			return corrupt("the file has the bucket %q, which is no table", b.name)
		}
	}
	return nil
}

// bucket is where the tree of a bucket begins: at a page, or inline.
type bucket struct {
	name   []byte
	page   uint64
	inline []byte
}

// buckets reads the root.
func (c *checker) buckets() (all []bucket, err error) {
	bad := c.walk(c.meta.root, nil, nil, 0, func(e element) error {
		if !e.bucket || len(e.value) < bucketHeader {
			return errors.New("the root has an entry that is no bucket")
		}
		b := bucket{name: slices.Clone(e.key), page: native.Uint64(e.value), inline: slices.Clone(e.value[bucketHeader:])}
		if b.page != 0 && len(b.inline) > 0 {
			return fmt.Errorf("the bucket %q is both inline and on a page", b.name)
		}
		all = append(all, b)
		return nil
	})
	if bad != nil {
		return nil, corrupt("the root: %v", bad)
	}
	return all, nil
}

// plain is an entry of a table.
func plain(e element) error {
	if e.bucket {
		return errors.New("it has a bucket within")
	}
	return nil
}

// entries checks a bucket and visits its entries.
func (c *checker) entries(b bucket, visit func(element) error) error {
	if b.page != 0 {
		return c.walk(b.page, nil, nil, 0, visit)
	}
	if len(b.inline) < pageHeader {
		return errors.New("it is cut off")
	}
	if id, overflow := native.Uint64(b.inline), native.Uint32(b.inline[12:]); id != 0 || overflow != 0 { // bbolt frees pages by id
		return fmt.Errorf("it is inline and has the page %d", id)
	}
	return leaf(b.inline, nil, nil, visit)
}

// walk visits the entries of the leaves below a page, whose keys begin with low and, unless high is nil, are below
// high: bbolt looks keys up by these bounds, and finds the parent's entry by the first key of a page. Both are nil for a
// root.
func (c *checker) walk(page uint64, low, high []byte, depth int, visit func(element) error) error {
	if depth == maxDepth {
		return fmt.Errorf("page %d is too deep in the tree", page)
	}
	b, err := c.read(page, depth)
	if err != nil {
		return err
	}
	if native.Uint16(b[8:]) != branchPage {
		err = leaf(b, low, high, visit)
	} else {
		err = c.branch(b, low, high, depth, visit)
	}
	if err != nil && depth == 0 {
		return fmt.Errorf("page %d: %w", page, err)
	}
	return err
}

func (c *checker) branch(b, low, high []byte, depth int, visit func(element) error) error {
	var children []element
	err := elements(b, low, high, func(e element) error { children = append(children, e); return nil })
	if err != nil {
		return err
	}
	if len(children) < 2 {
		return errors.New("a branch has one entry") // bbolt never leaves one, and cannot delete from it
	}
	for i, child := range children {
		until := high
		if i+1 < len(children) {
			until = children[i+1].key
		}
		if err := c.walk(child.child, child.key, until, depth+1, visit); err != nil {
			return err
		}
	}
	return nil
}

func leaf(b, low, high []byte, visit func(element) error) error {
	switch flags := native.Uint16(b[8:]); {
	case flags != leafPage:
		return fmt.Errorf("a page has the flags %#x, which no page of a tree has", flags)
	case low != nil && native.Uint16(b[10:]) == 0:
		return errors.New("a leaf is empty")
	}
	return elements(b, low, high, visit)
}

// element is an entry of a page. In a branch it has a child instead of a value.
type element struct {
	key, value []byte
	bucket     bool
	child      uint64
}

// elements visits the entries of a page, which bbolt writes one after the other. The key of the first must equal
// low, unless that is nil.
func elements(page, low, high []byte, visit func(element) error) error {
	isLeaf, count := native.Uint16(page[8:]) == leafPage, int(native.Uint16(page[10:]))
	end := uint64(pageHeader + count*elementSize)
	if end > uint64(len(page)) {
		return fmt.Errorf("a page has %d entries, which it has no room for", count)
	}
	last := low
	for i := range count {
		at := pageHeader + i*elementSize
		e, begin, key, value := readElement(page[at:at+elementSize], isLeaf)
		begin += uint64(at)
		if key == 0 || begin != end || begin+key+value > uint64(len(page)) {
			return fmt.Errorf("entry %d is out of place", i)
		}
		end = begin + key + value
		e.key, e.value = page[begin:begin+key], page[begin+key:end]
		order := bytes.Compare(last, e.key)
		if i > 0 && order >= 0 || i == 0 && low != nil && order != 0 || high != nil && bytes.Compare(e.key, high) >= 0 {
			return fmt.Errorf("entry %d is out of order", i)
		}
		if err := visit(e); err != nil {
			return err
		}
		last = e.key
	}
	return nil
}

// readElement reads where an entry is, from its own position on.
func readElement(b []byte, isLeaf bool) (e element, begin, key, value uint64) {
	if !isLeaf {
		return element{child: native.Uint64(b[8:])}, uint64(native.Uint32(b)), uint64(native.Uint32(b[4:])), 0
	}
	e.bucket = native.Uint32(b)&bucketFlag != 0
	return e, uint64(native.Uint32(b[4:])), uint64(native.Uint32(b[8:])), uint64(native.Uint32(b[12:]))
}

// read returns a page with what continues it, valid until the next read at the same depth.
func (c *checker) read(page uint64, depth int) ([]byte, error) {
	size := uint64(c.meta.pageSize)
	if page < 2 || page >= c.meta.high {
		return nil, fmt.Errorf("page %d is not among the %d pages in use", page, c.meta.high)
	}
	b, err := c.readAt(page, size, depth)
	if err != nil {
		return nil, err
	}
	if id := native.Uint64(b); id != page {
		return nil, fmt.Errorf("page %d says that it is page %d", page, id)
	}
	more := uint64(native.Uint32(b[12:]))
	if more > 0 {
		if (more+1)*size > maxPage || page+more >= c.meta.high {
			return nil, fmt.Errorf("page %d is continued by %d pages", page, more)
		}
		if b, err = c.readAt(page, (more+1)*size, depth); err != nil {
			return nil, err
		}
	}
	for p := page; p <= page+more; p++ {
		if !c.mark(p) {
			return nil, fmt.Errorf("page %d is used twice", p)
		}
	}
	return b, nil
}

func (c *checker) readAt(page, length uint64, depth int) ([]byte, error) {
	if uint64(cap(c.buf[depth])) < length {
		c.buf[depth] = make([]byte, length)
	}
	b := c.buf[depth][:length]
	if _, err := c.file.ReadAt(b, int64(page)*int64(c.meta.pageSize)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", page, err)
	}
	return b, nil
}

// mark marks a page as seen, and returns false if it was.
func (c *checker) mark(page uint64) bool {
	bit := uint64(1) << (page % 64)
	if c.seen[page/64]&bit != 0 {
		return false
	}
	c.seen[page/64] |= bit
	return true
}

// freelist checks the list of free pages. This package writes none, but other tools of bbolt do.
func (c *checker) freelist() error {
	if c.meta.free == noFreelist {
		return nil
	}
	b, err := c.read(c.meta.free, 0)
	if err == nil && native.Uint16(b[8:]) != freelistPage {
		err = fmt.Errorf("page %d has the flags %#x", c.meta.free, native.Uint16(b[8:]))
	}
	if err != nil {
		return corrupt("the list of free pages: %v", err)
	}
	count, list := uint64(native.Uint16(b[10:])), b[pageHeader:]
	if count == math.MaxUint16 && len(list) >= 8 { // the number is the first of the list
		count, list = native.Uint64(list), list[8:]
	}
	if count > uint64(len(list))/8 {
		return corrupt("the list of free pages has %d entries, which it has no room for", count)
	}
	for i := range count {
		if page := native.Uint64(list[8*i:]); page < 2 || page >= c.meta.high || !c.mark(page) {
			return corrupt("the list of free pages has page %d", page)
		}
	}
	return nil
}
