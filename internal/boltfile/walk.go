package boltfile

import (
	"errors"
	"fmt"
)

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
		return w.branch(page, b, low, high, depth)
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

// branch visits what is below a page, even if some of its children are damaged.
func (w *walker) branch(page uint64, b, low, high []byte, depth int) error {
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
}
