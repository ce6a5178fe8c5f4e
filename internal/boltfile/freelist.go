package boltfile

import (
	"fmt"
	"math"
)

// CheckFreelist checks the list of free pages, if the commit has one. It marks its pages as seen, so that a walk finds
// one that is both free and in use. bbolt would give it to the next commit.
func (r *Reader) CheckFreelist() error {
	if !r.Meta.HasFreelist() {
		return nil
	}
	b, err := r.read(r.Meta.Freelist, 0)
	if err != nil {
		return err
	}
	if flags := native.Uint16(b[8:]); flags != freelistPage {
		return fmt.Errorf("page %d has the flags %#x", r.Meta.Freelist, flags)
	}
	count, list := uint64(native.Uint16(b[10:])), b[pageHeader:]
	if count == math.MaxUint16 { // the number is the first of the list
		count, list = native.Uint64(list), list[8:]
	}
	if count > uint64(len(list))/8 {
		return fmt.Errorf("page %d has %d entries and no room for them", r.Meta.Freelist, count)
	}
	for i := range count {
		page := native.Uint64(list[8*i:])
		if err := r.inUse(page); err != nil {
			return err
		}
		if err := r.markSeen(page, 0); err != nil {
			return err
		}
	}
	return nil
}
