package filequeue

import "encoding/binary"

// scan visits every record on every page that looks like a leaf, of whatever commit: the
// same may come several times, as it was at several times, and so may what was deleted.
// Only records whose checksum says where they belong are visited.
func (in *inspector) scan(visit func(in bucket, key, value []byte)) {
	size := uint64(in.meta.pageSize)
	for page := uint64(2); (page+1)*size <= uint64(in.size); page++ {
		b, err := in.readAt(page, size, 0)
		if err != nil || binary.NativeEndian.Uint64(b) != page || binary.NativeEndian.Uint16(b[8:]) != leafPage {
			continue
		}
		if overflow := uint64(binary.NativeEndian.Uint32(b[12:])); overflow > 0 {
			if (overflow+1)*size > maxPage || (page+overflow+1)*size > uint64(in.size) {
				continue
			}
			if b, err = in.readAt(page, (overflow+1)*size, 0); err != nil {
				continue
			}
		}
		_ = elements(b, func(_ int, leaf bool, e element) error {
			if !leaf || e.bucket {
				return nil
			}
			for _, name := range buckets {
				if _, err := openRecord(name, e.key, e.value); err == nil {
					visit(name, e.key, e.value)
				}
			}
			return nil
		}) // up to the first that is not sound
	}
}
