package filequeue

import (
	"encoding/binary"
	"hash/crc32"
)

// digest summarizes the records of the tree, regardless of order. Every commit writes it,
// so that a page of an earlier commit in place of the newest is detected, which checksums
// of records cannot do.
type digest struct {
	bodies recordSet
	others recordSet // those of the other buckets, except metaBucket
}

// recordSet summarizes a set of records: their number and the sum of their hashes.
type recordSet struct{ count, sum uint64 }

func (d *recordSet) add(key, record []byte)    { d.count++; d.sum += hash(key, record) }
func (d *recordSet) remove(key, record []byte) { d.count--; d.sum -= hash(key, record) }

// hash combines the key with the checksum that ends its record, using the finalizer of
// SplitMix64.
func hash(key, record []byte) uint64 {
	var sum [crc32.Size]byte
	copy(sum[:], record[max(0, len(record)-crc32.Size):])
	h := uint64(crc32.Checksum(key, castagnoli))<<32 | uint64(binary.BigEndian.Uint32(sum[:]))
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

// of returns the set of a bucket, nil for metaBucket, which has the digest itself.
func (t *digest) of(b bucket) *recordSet {
	switch {
	case b.is(metaBucket):
		return nil
	case b.is(bodyBucket):
		return &t.bodies
	default:
		return &t.others
	}
}

func (t *digest) record() []byte {
	b := []byte{secondVersion}
	for _, n := range []uint64{t.bodies.count, t.bodies.sum, t.others.count, t.others.sum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return appendChecksum(b, 0, metaBucket, keyDigest)
}

// readDigest also reports whether the record is of a version that only counted messages.
func readDigest(record []byte) (t digest, onlyCounted bool, err error) {
	version, f, err := openVersionedRecord(secondVersion, metaBucket, keyDigest, record)
	if err != nil {
		return t, false, err
	}
	t.bodies = recordSet{f.uint64(), f.uint64()}
	if version == secondVersion {
		t.others = recordSet{f.uint64(), f.uint64()}
	}
	return t, version == recordVersion, f.end()
}
