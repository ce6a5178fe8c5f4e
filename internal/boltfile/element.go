package boltfile

import (
	"bytes"
	"fmt"
)

const (
	pageHeader  = 16 // id, flags, count, overflow
	elementSize = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
)

// Entry is an entry of a bucket. Its slices are valid until the function that gets it returns.
type Entry struct {
	Key, Value []byte
	Bucket     bool // the value is a bucket
}

// element is an entry of a page. In a branch it has a child instead of a value.
type element struct {
	Entry
	child uint64
}

// elements visits the entries of a branch or a leaf up to the first damaged one. bbolt writes them one after the other.
func elements(page []byte, isLeaf bool, visit func(element) error) error {
	count := int(native.Uint16(page[10:]))
	end := uint64(pageHeader + count*elementSize)
	if end > uint64(len(page)) {
		return fmt.Errorf("it has %d entries and no room for them", count)
	}
	for i := range count {
		at := pageHeader + i*elementSize
		e, begin, key, value, err := readElement(page[at:at+elementSize], isLeaf)
		if err != nil {
			return fmt.Errorf("entry %d %w", i, err)
		}
		begin += uint64(at)
		if key == 0 || begin != end || begin+key+value > uint64(len(page)) {
			return fmt.Errorf("entry %d is out of place", i)
		}
		end = begin + key + value
		e.Key, e.Value = page[begin:begin+key], page[begin+key:end]
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// readElement reads where an entry is, counted from its own position, and the sizes of its key and value.
func readElement(b []byte, isLeaf bool) (e element, begin, key, value uint64, err error) {
	if !isLeaf {
		return element{child: native.Uint64(b[8:])}, uint64(native.Uint32(b)), uint64(native.Uint32(b[4:])), 0, nil
	}
	flags := native.Uint32(b)
	if flags > bucketFlag {
		err = fmt.Errorf("has the flags %#x", flags)
	}
	e.Bucket = flags == bucketFlag
	return e, uint64(native.Uint32(b[4:])), uint64(native.Uint32(b[8:])), uint64(native.Uint32(b[12:])), err
}

// orderedElements is elements for a page of a tree. The first key must equal low, unless that is nil, and all must be
// below high, unless that is nil: bbolt looks keys up by these bounds, and finds the entry of the page above by the
// first key of a page.
func orderedElements(page []byte, isLeaf bool, low, high []byte, visit func(element) error) error {
	i, last := 0, low
	return elements(page, isLeaf, func(e element) error {
		order := bytes.Compare(last, e.Key)
		if i > 0 && order >= 0 || i == 0 && low != nil && order != 0 || high != nil && bytes.Compare(e.Key, high) >= 0 {
			return fmt.Errorf("entry %d is out of order", i)
		}
		i, last = i+1, e.Key
		return visit(e)
	})
}
