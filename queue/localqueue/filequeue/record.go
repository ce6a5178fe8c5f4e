package filequeue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A record is a version byte, the fields of its kind, and the CRC-32C (Castagnoli) of
// bucket, key and all before it, so that a damaged or misplaced record is detected by
// itself. Numbers are big-endian, so that keys sort by them; strings are prefixed with
// their length.
const (
	recordVersion = 1
	secondVersion = 2 // of kinds with several versions
	thirdVersion  = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errRecord means that no store wrote the record.
var errRecord = errors.New("its checksum does not match")

// appendChecksum ends the record that begins at start in b.
func appendChecksum(b []byte, start int, in bucket, key []byte) []byte {
	return binary.BigEndian.AppendUint32(b, checksum(in, key, b[start:]))
}

func checksum(in bucket, key, fields []byte) uint32 {
	sum := crc32.Update(0, castagnoli, in)
	sum = crc32.Update(sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, fields)
}

func openRecord(in bucket, key, record []byte) (fields, error) {
	_, f, err := openVersionedRecord(recordVersion, in, key, record)
	return f, err
}

// openVersionedRecord is openRecord for a kind with several versions.
func openVersionedRecord(newest byte, in bucket, key, record []byte) (version byte, f fields, err error) {
	end := len(record) - crc32.Size
	if end < 1 || binary.BigEndian.Uint32(record[end:]) != checksum(in, key, record[:end]) {
		return 0, f, errRecord
	}
	if record[0] < recordVersion || record[0] > newest {
		return 0, f, ErrNewer
	}
	return record[0], fields{rest: record[1:end]}, nil
}

// fields reads the fields of a record in order. Missing ones read as zero and set short.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) uint64() uint64 {
	if len(f.rest) < 8 {
		f.rest, f.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint64(f.rest)
	f.rest = f.rest[8:]
	return n
}

func (f *fields) int64() int64 { return int64(f.uint64()) }

func (f *fields) bytes() []byte {
	n := f.uint64()
	if n > uint64(len(f.rest)) {
		f.rest, f.short = nil, true
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) string() string { return string(f.bytes()) }

// end returns an error unless exactly all fields were read.
func (f *fields) end() error {
	if f.short || len(f.rest) > 0 {
		return errRecord
	}
	return nil
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
}
