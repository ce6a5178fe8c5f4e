package filetable

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/table"
)

// A record is an entity in the file, all numbers big-endian or as in encoding/binary's varints:
//
//	1 byte   format, 1
//	4 bytes  CRC-32C of the key and of the record from byte 5 on
//	8 bytes  number of its version
//	8 bytes  when it was changed, in ticks
//	varint   number of properties, which follow in the order of their names:
//	         length of the name, the name, 1 byte type, the value
//
// A tick is 100 ns, counted from the beginning of 1601.
const (
	recordFormat = 1
	headerSize   = 21
)

// The types of properties.
const (
	typeString  = 1 // length, bytes
	typeBytes   = 2 // length, bytes
	typeFalse   = 3
	typeTrue    = 4
	typeInt32   = 5 // signed varint
	typeInt64   = 6 // signed varint
	typeFloat64 = 7 // 8 bytes
	typeTime    = 8 // 8 bytes, ticks
	typeGUID    = 9 // 16 bytes, in the order of its digits
)

// keyOf returns the key of an entity in the tree. Keys have no control characters, so the order of these is
// that of partitions and then of rows.
func keyOf(k table.Key) []byte {
	key := make([]byte, 0, len(k.Partition)+1+len(k.Row))
	return append(append(append(key, k.Partition...), 0), k.Row...)
}

func readKey(key []byte) table.Key {
	partition, row, _ := strings.Cut(string(key), "\x00")
	return table.Key{Partition: partition, Row: row}
}

// newRecord returns the record of an entity that was checked, with room for its header.
func newRecord(e table.Entity) []byte {
	b := make([]byte, headerSize, headerSize+e.Size())
	b = binary.AppendUvarint(b, uint64(len(e.Properties)))
	for _, name := range slices.Sorted(maps.Keys(e.Properties)) {
		b = appendValue(appendText(b, name), e.Properties[name])
	}
	return b
}

func finish(record, key []byte, version uint64, modified time.Time) {
	record[0] = recordFormat
	binary.BigEndian.PutUint64(record[5:], version)
	binary.BigEndian.PutUint64(record[13:], ticks(modified))
	binary.BigEndian.PutUint32(record[1:], checksum(key, record[5:]))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendGUID appends the 16 bytes of a GUID that was checked.
func appendGUID(b []byte, g table.GUID) []byte {
	b, err := hex.AppendDecode(b, []byte(strings.ReplaceAll(string(g), "-", "")))
	if err != nil {
		panic(fmt.Sprintf("filetable: the GUID %q passed Entity.Check", string(g)))
	}
	return b
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendText(append(b, typeString), v)
	case []byte:
		return appendText(append(b, typeBytes), v)
	case bool:
		if v {
			return append(b, typeTrue)
		}
		return append(b, typeFalse)
	case int32:
		return binary.AppendVarint(append(b, typeInt32), int64(v))
	case int64:
		return binary.AppendVarint(append(b, typeInt64), v)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, typeFloat64), math.Float64bits(v))
	case time.Time:
		return binary.BigEndian.AppendUint64(append(b, typeTime), ticks(v))
	case table.GUID:
		return appendGUID(append(b, typeGUID), v)
	}
	panic(fmt.Sprintf("filetable: a %T passed Entity.Check", value))
}

// The ticks of a second, the first tick, and the last that a time can have.
const ticksPerSecond = 10_000_000

var (
	firstSecond = time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	endOfTicks  = uint64(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()-firstSecond) * ticksPerSecond
)

func ticks(t time.Time) uint64 {
	return uint64(t.Unix()-firstSecond)*ticksPerSecond + uint64(t.Nanosecond()/100)
}

func fromTicks(n uint64) time.Time {
	return time.Unix(firstSecond+int64(n/ticksPerSecond), int64(n%ticksPerSecond)*100).UTC()
}

func etagOf(version uint64) table.ETag {
	return table.ETag(`W/"` + strconv.FormatUint(version, 10) + `"`)
}

// openRecord checks a record and returns its version, which is never 0, and what follows the version.
func openRecord(key, record []byte) (version uint64, rest []byte, err error) {
	switch {
	case len(record) < headerSize:
		return 0, nil, corrupt("the record has %d bytes and needs at least %d", len(record), headerSize)
	case record[0] > recordFormat:
		return 0, nil, fmt.Errorf("the record %w (format %d)", ErrNewer, record[0])
	case record[0] != recordFormat || binary.BigEndian.Uint32(record[1:]) != checksum(key, record[5:]):
		return 0, nil, corrupt("the record is damaged: its checksum is wrong")
	}
	return binary.BigEndian.Uint64(record[5:]), record[13:], nil
}

// readEntity returns the entity of a record. It shares nothing with the record.
func readEntity(key, record []byte) (table.Entity, error) {
	version, rest, err := openRecord(key, record)
	if err != nil {
		return table.Entity{}, err
	}
	d := decoder{rest: rest}
	e := table.Entity{Key: readKey(key), ETag: etagOf(version), Modified: d.time()}
	e.Properties = d.properties()
	if d.err == nil && len(d.rest) > 0 {
		d.fail("%d bytes follow its properties", len(d.rest))
	}
	return e, d.err
}

// decoder reads what follows the version of a record, up to the first error.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt("the record is damaged: "+format, args...)
	}
	d.rest = nil
}

func (d *decoder) properties() map[string]any {
	n := d.length(2) // of a name and a value, the smallest possible
	all, last := make(map[string]any, n), ""
	for i := range n {
		name := d.text()
		if i > 0 && name <= last {
			d.fail("the property %.50q follows %.50q", name, last)
		}
		value := d.value()
		if d.err != nil {
			return nil
		}
		all[name], last = value, name
	}
	return all
}

func (d *decoder) value() any {
	switch kind := d.byte(); kind {
	case typeString:
		return d.text()
	case typeBytes:
		return append([]byte{}, d.bytes(d.length(1))...)
	case typeFalse, typeTrue:
		return kind == typeTrue
	case typeInt32:
		n := d.varint()
		if n != int64(int32(n)) {
			d.fail("%d is no int32", n)
		}
		return int32(n)
	case typeInt64:
		return d.varint()
	case typeFloat64:
		f := math.Float64frombits(d.uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			d.fail("a number is %v", f)
		}
		return f
	case typeTime:
		return d.time()
	case typeGUID:
		if len(d.rest) < 16 {
			d.fail("it ends too early")
			return ""
		}
		b := d.bytes(16)
		return table.GUID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
	default:
		d.fail("no property has the type %d", kind)
		return nil
	}
}

func (d *decoder) text() string { return string(d.bytes(d.length(1))) }

// length reads how many things follow, each of so many bytes at least. More than can follow is an error, before
// anybody makes room for them.
func (d *decoder) length(least int) int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)-size)/uint64(least) {
		d.fail("a length is wrong")
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

// bytes returns the next bytes, which belong to the record. There are as many: callers have checked.
func (d *decoder) bytes(n int) []byte {
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail("it ends too early")
		return 0
	}
	return d.bytes(1)[0]
}

func (d *decoder) uint64() uint64 {
	if len(d.rest) < 8 {
		d.fail("it ends too early")
		return 0
	}
	return binary.BigEndian.Uint64(d.bytes(8))
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.fail("a number is wrong")
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) time() time.Time {
	n := d.uint64()
	if n >= endOfTicks {
		d.fail("a time is after the year 9999")
		return time.Time{}
	}
	return fromTicks(n)
}

// What the file says of itself, besides its tables.
var (
	aboutBucket = []byte("millrace tables")
	formatKey   = []byte("format")  // of the file
	versionKey  = []byte("version") // the number of the last version that an entity got
)

// format is that of the files which this package writes.
const format = 2

// unsealedFormat is the last format whose commits had no seals.
const unsealedFormat = 1

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
