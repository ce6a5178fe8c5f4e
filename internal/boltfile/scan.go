package boltfile

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
