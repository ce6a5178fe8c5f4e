package picture

import (
	"bytes"
	"encoding/binary"
)

// unsupported recognises formats that cannot be read by the first bytes of a file, 64 if it has so many. It
// returns nil for all others.
func unsupported(b []byte) error {
	for _, f := range []struct{ magic, format, advice string }{
		{"\xff\x0a", jpegXL, adviceConvert},
		{"\x00\x00\x00\x0cJXL \r\n\x87\n", jpegXL, adviceConvert},
		{"\xff\x4f\xff\x51", jpeg2000, adviceConvert},
		{"\x00\x00\x00\x0cjP  \r\n\x87\n", jpeg2000, adviceConvert},
		{"8BPS", "a Photoshop document", adviceConvert},
		{"FUJIFILMCCD-RAW", raw, adviceRAW},
		{"IIRO", raw, adviceRAW},
		{"IIRS", raw, adviceRAW},
		{"MMOR", raw, adviceRAW},
		{"IIU\x00", raw, adviceRAW},
		{"FOVb", raw, adviceRAW},
		{"\x00MRM", raw, adviceRAW},
		{"II\x2b\x00", "BigTIFF", adviceConvert},
		{"MM\x00\x2b", "BigTIFF", adviceConvert},
	} {
		if bytes.HasPrefix(b, []byte(f.magic)) {
			return &UnsupportedError{f.format, f.advice}
		}
	}
	return boxed(b)
}

const (
	jpegXL   = "JPEG XL"
	jpeg2000 = "JPEG 2000"
	raw      = "RAW"

	adviceConvert = "save it as JPEG or PNG first"
	adviceHEIC    = "save it as JPEG first (heif-convert IN OUT.jpg; on a Mac: sips -s format jpeg IN --out OUT.jpg; an iPhone takes JPEG with Settings > Camera > Formats > Most Compatible)"
	adviceAVIF    = "save it as JPEG or PNG first (avifdec IN OUT.png)"
	adviceRAW     = "develop it and save it as JPEG or TIFF first"
)

// boxed recognises the relatives of MP4 by the brands in their first box (ISO/IEC 14496-12, section 4.3).
func boxed(b []byte) error {
	if len(b) < 16 || string(b[4:8]) != "ftyp" {
		return nil
	}
	n := min(int(min(binary.BigEndian.Uint32(b), 1<<16)), len(b))
	brands := [][]byte{b[8:12]}
	for at := 16; at+4 <= n; at += 4 { // the version lies between the first brand and the others
		brands = append(brands, b[at:at+4])
	}
	// The general brand mif1 says little, so the most telling brand counts.
	for _, f := range []struct {
		brands []string
		err    *UnsupportedError
	}{
		{[]string{"avif", "avis"}, &UnsupportedError{"AVIF", adviceAVIF}},
		{[]string{"heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs"}, &UnsupportedError{"HEIC", adviceHEIC}},
		{[]string{"crx "}, &UnsupportedError{raw, adviceRAW}},
		{[]string{"jxl "}, &UnsupportedError{jpegXL, adviceConvert}},
		{[]string{"mif1", "mif2", "msf1"}, &UnsupportedError{"HEIF", adviceHEIC}},
	} {
		for _, brand := range f.brands {
			for _, have := range brands {
				if string(have) == brand {
					return f.err
				}
			}
		}
	}
	return &UnsupportedError{"a film", "take a picture from it first"}
}
