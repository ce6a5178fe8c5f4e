package filetable

import (
	"encoding/binary"
	"hash/crc32"
)

// What the file says of itself, besides its tables.
var (
	aboutBucket = []byte("millrace tables")
	formatKey   = []byte("format")  // of the file
	versionKey  = []byte("version") // the number of the last version that an entity got
)

// format is that of the files which this package writes.
const format = 1

// tablePrefix begins the names of the buckets that are tables.
const tablePrefix = "table "

// number returns a record of the file about itself: a number and its checksum.
func number(key []byte, n uint64) []byte {
	record := binary.BigEndian.AppendUint64(nil, n)
	return binary.BigEndian.AppendUint32(record, checksum(key, record))
}

func readNumber(key, record []byte) (uint64, error) {
	if len(record) != 12 || binary.BigEndian.Uint32(record[8:]) != checksum(key, record[:8]) {
		return 0, corrupt("its %s is damaged", key)
	}
	return binary.BigEndian.Uint64(record), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns that of a record and its key, so that a record in the place of another is detected.
func checksum(key, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record)
}
