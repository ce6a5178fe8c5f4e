package picture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The tags of a TIFF that decide how it is decoded (TIFF 6.0, appendix A).
const (
	tiffSubfileType  = 254
	tiffWidth        = 256
	tiffHeight       = 257
	tiffBits         = 258
	tiffCompression  = 259
	tiffPhotometric  = 262
	tiffStripOffsets = 273
	tiffOrientation  = 274
	tiffStripRows    = 278
	tiffStripBytes   = 279
	tiffPlanar       = 284
	tiffTileWidth    = 322
	tiffTileHeight   = 323
	tiffTileOffsets  = 324
	tiffTileBytes    = 325
	tiffSubIFDs      = 330
	tiffProfile      = 34675
	tiffDNGVersion   = 50706
)

const (
	// maxTIFFBlocks bounds the strips and tiles, which cost memory and time each.
	maxTIFFBlocks = 1 << 18

	// maxTIFFEntries bounds the directory. The largest of real files have some 100.
	maxTIFFEntries = 4096
)

// tiffDirectory is the first directory of a TIFF, which describes the picture.
type tiffDirectory struct {
	r       io.ReaderAt
	order   binary.ByteOrder
	entries map[int][]byte // of 12 bytes, by tag
}

// readTIFF reads the first directory. spooled says whether the bytes that are read stay in memory.
func readTIFF(r io.ReaderAt, spooled bool) (Header, error) {
	d, err := openTIFF(r)
	if err != nil {
		return Header{}, err
	}
	if d.raw() {
		return Header{}, &UnsupportedError{raw, adviceRAW}
	}
	h := Header{Format: "tiff", orientation: upright}
	width, height := int64(d.number(tiffWidth)), int64(d.number(tiffHeight))
	if width > 1<<31-1 || height > 1<<31-1 {
		return Header{}, fmt.Errorf("%w: the TIFF declares an impossible size", ErrDamaged)
	}
	h.Width, h.Height = int(width), int(height)
	if width < 1 || height < 1 || width*height > MaxPixels {
		return h, nil // refused by check
	}
	if err := d.decodable(); err != nil {
		return Header{}, err
	}
	if o := d.number(tiffOrientation); o >= 1 && o <= 8 {
		h.orientation = orientation(o)
	}
	if err := d.memory(&h, spooled); err != nil {
		return Header{}, err
	}
	h.space = spaceRGB
	if d.number(tiffPhotometric) <= 1 {
		h.space = spaceGray
	}
	if d.has(tiffProfile) && h.check() == nil {
		e := d.entries[tiffProfile]
		size := int64(d.order.Uint32(e[4:]))
		// Without it the picture is still a picture. If the file cannot be read, its pixels cannot either.
		if h.icc, err = d.value(e, size, min(size, maxProfile+1)); err != nil {
			h.icc = []byte{}
		}
	}
	return h, nil
}

// openTIFF finds the directory.
func openTIFF(r io.ReaderAt) (*tiffDirectory, error) {
	head := make([]byte, 10)
	if n, err := r.ReadAt(head, 0); n < 8 {
		return nil, err
	}
	d := &tiffDirectory{r: r, order: binary.LittleEndian, entries: map[int][]byte{}}
	if head[0] == 'M' {
		d.order = binary.BigEndian
	}
	if string(head[8:]) == "CR" {
		return nil, &UnsupportedError{raw, adviceRAW} // Canon's CR2
	}
	at := int64(d.order.Uint32(head[4:]))
	count := make([]byte, 2)
	if err := d.read(count, at); err != nil {
		return nil, err
	}
	n := int(d.order.Uint16(count))
	if n > maxTIFFEntries {
		return nil, fmt.Errorf("%w: the TIFF has a directory of %d entries", ErrDamaged, n)
	}
	list := make([]byte, 12*n)
	if err := d.read(list, at+2); err != nil {
		return nil, err
	}
	for ; len(list) > 0; list = list[12:] {
		tag := int(d.order.Uint16(list))
		if !d.has(tag) {
			d.entries[tag] = list[:12]
		}
	}
	return d, nil
}

// read fills p, or fails because the file ends or cannot be read.
func (d *tiffDirectory) read(p []byte, at int64) error {
	n, err := d.r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, errBehindSpool):
		return fmt.Errorf("%w: the TIFF points behind its end", ErrDamaged)
	}
	return err
}

func (d *tiffDirectory) has(tag int) bool { return d.entries[tag] != nil }

// value reads the first bytes of an entry that has size bytes.
func (d *tiffDirectory) value(entry []byte, size, first int64) ([]byte, error) {
	if size <= 4 {
		return entry[8 : 8+first], nil
	}
	// In pieces, so that a small file that declares much does not take much memory.
	at := int64(d.order.Uint32(entry[8:]))
	var value []byte
	for int64(len(value)) < first {
		piece := make([]byte, min(first-int64(len(value)), 1<<20))
		if err := d.read(piece, at+int64(len(value))); err != nil {
			return nil, err
		}
		value = append(value, piece...)
	}
	return value, nil
}

// numbers reads at most n numbers of a tag, none if it is absent or of another type.
func (d *tiffDirectory) numbers(tag, n int) ([]uint32, error) {
	e := d.entries[tag]
	if e == nil {
		return nil, nil
	}
	var size int
	switch d.order.Uint16(e[2:]) {
	case 1:
		size = 1
	case 3:
		size = 2
	case 4:
		size = 4
	default:
		return nil, nil
	}
	// A longer list is cut off, as the decoder does.
	count := int64(d.order.Uint32(e[4:]))
	b, err := d.value(e, count*int64(size), min(count, int64(n))*int64(size))
	if err != nil {
		return nil, err
	}
	list := make([]uint32, 0, len(b)/size)
	for ; len(b) >= size; b = b[size:] {
		switch size {
		case 1:
			list = append(list, uint32(b[0]))
		case 2:
			list = append(list, uint32(d.order.Uint16(b)))
		case 4:
			list = append(list, d.order.Uint32(b))
		}
	}
	return list, nil
}

// number is the first number of a tag, or 0.
func (d *tiffDirectory) number(tag int) uint32 {
	list, err := d.numbers(tag, 1)
	if err != nil || len(list) == 0 {
		return 0
	}
	return list[0]
}

// raw recognises the raw files of cameras, of which most are TIFF. The first picture of many is a thumbnail.
func (d *tiffDirectory) raw() bool {
	switch d.number(tiffPhotometric) {
	case 32803, 34892: // colour filter array, linear raw
		return true
	}
	switch d.number(tiffCompression) {
	case 32767, 32769, 32770, 34713, 65000, 65535: // Sony, Epson, Samsung, Nikon, Kodak, Pentax
		return true
	}
	thumbnail := d.number(tiffSubfileType)&1 != 0
	return d.has(tiffDNGVersion) || thumbnail && d.has(tiffSubIFDs)
}

// decodable refuses what x/image/tiff cannot decode, or would decode to something else.
func (d *tiffDirectory) decodable() error {
	switch c := d.number(tiffCompression); c {
	case 0, 1, 3, 4, 5, 8, 32773, 32946:
	case 6, 7:
		return &UnsupportedError{"TIFF compressed as JPEG", "save it as JPEG or PNG first"}
	default:
		return &UnsupportedError{fmt.Sprintf("TIFF compressed by method %d", c), "save it with LZW, Deflate or no compression"}
	}
	switch p := d.number(tiffPhotometric); p {
	case 0, 1, 2, 3:
	case 5:
		return &UnsupportedError{"TIFF in CMYK", "save it in RGB first"}
	default:
		return &UnsupportedError{fmt.Sprintf("TIFF in colours of kind %d", p), "save it in RGB first"}
	}
	bits, err := d.numbers(tiffBits, 16)
	if err != nil {
		return err
	}
	if d.number(tiffPlanar) == 2 && len(bits) > 1 {
		return &UnsupportedError{"TIFF with separate planes", "save it with interleaved colours first"}
	}
	if len(bits) > 0 && bits[0] != 1 && bits[0] != 8 && bits[0] != 16 {
		return &UnsupportedError{fmt.Sprintf("TIFF with %d bits a colour", bits[0]), "save it with 8 or 16 first"}
	}
	return nil
}

// memory estimates the memory for the picture that x/image/tiff returns, and for decoding it.
func (d *tiffDirectory) memory(h *Header, spooled bool) error {
	width, height := int64(h.Width), int64(h.Height)
	bits, pixel := max(int64(d.number(tiffBits)), 1), int64(1)
	if d.number(tiffPhotometric) == 2 {
		pixel = 4
	}
	if bits == 16 {
		pixel *= 2
	}
	blockWidth, blockHeight := width, height
	offsets, counts := tiffStripOffsets, tiffStripBytes
	if w := int64(d.number(tiffTileWidth)); w != 0 {
		blockWidth, blockHeight = w, int64(d.number(tiffTileHeight))
		offsets, counts = tiffTileOffsets, tiffTileBytes
		// The decoder permits tiles of up to 1,024 pixels, and larger ones if the picture is as large.
		if blockWidth < 8 || blockHeight < 8 || blockWidth > max(width+16, 1024) || blockHeight > max(height+16, 1024) {
			return fmt.Errorf("%w: the TIFF has tiles of %d×%d pixels", ErrDamaged, blockWidth, blockHeight)
		}
	} else if rows := int64(d.number(tiffStripRows)); rows > 0 {
		blockHeight = min(blockHeight, rows)
	}
	blocks := (width + blockWidth - 1) / blockWidth * ((height + blockHeight - 1) / blockHeight)
	if blocks > maxTIFFBlocks {
		return fmt.Errorf("%w: the TIFF is cut into %d pieces", ErrDamaged, blocks)
	}
	starts, err := d.numbers(offsets, int(blocks))
	if err != nil {
		return err
	}
	lengths, err := d.numbers(counts, int(blocks))
	if err != nil {
		return err
	}
	var longest, end int64
	for i := range min(len(starts), len(lengths)) {
		longest = max(longest, int64(lengths[i]))
		end = max(end, int64(starts[i])+int64(lengths[i]))
	}
	h.retained = width * height * pixel
	h.DecodeBytes = h.retained + 32*blocks + 64<<10
	switch most := 8 * blockWidth * blockHeight; d.number(tiffCompression) {
	case 0, 1:
		// A piece of over 10 MB is read in parts of as much into a buffer that grows by a quarter.
		const part = 10 << 20
		n := min(longest, most)
		if h.DecodeBytes += n; n >= part {
			h.DecodeBytes += n*5/4 + part
		}
	case 3, 4:
		h.DecodeBytes += 3*blockWidth*blockHeight/8 + 64<<10
	default:
		// A piece may expand to 8 bytes a pixel, whatever it should be, in a buffer that doubles.
		h.DecodeBytes += 3*min(most, maxRatio*longest) + 64<<10
	}
	if spooled {
		h.DecodeBytes += min(end, maxSpool)
	}
	return nil
}

// maxRatio is the most bytes that a byte of LZW expands to; Deflate and PackBits expand less.
const maxRatio = 4096
