package picture

import (
	"bytes"
	"encoding/binary"
	"image"
	"math"
	"testing"
	"unicode/utf16"
)

const profileMark = "ICC_PROFILE\x00"

type iccTag struct {
	name string
	data []byte
}

// iccProfile writes a profile.
func iccProfile(space, pcs string, tags ...iccTag) []byte {
	head := make([]byte, 128)
	copy(head[12:], "mntr")
	copy(head[16:], space)
	copy(head[20:], pcs)
	copy(head[36:], "acsp")
	list := binary.BigEndian.AppendUint32(nil, uint32(len(tags)))
	var data []byte
	for _, t := range tags {
		list = append(list, t.name...)
		list = binary.BigEndian.AppendUint32(list, uint32(128+4+12*len(tags)+len(data)))
		list = binary.BigEndian.AppendUint32(list, uint32(len(t.data)))
		data = append(data, t.data...)
	}
	b := bytes.Join([][]byte{head, list, data}, nil)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

func s15(values ...float64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(math.Round(v*65536))))
	}
	return b
}

func xyz(x, y, z float64) []byte { return append([]byte("XYZ \x00\x00\x00\x00"), s15(x, y, z)...) }

func gamma(g float64) []byte {
	return binary.BigEndian.AppendUint16([]byte("curv\x00\x00\x00\x00\x00\x00\x00\x01"), uint16(math.Round(g*256)))
}

func para(kind byte, values ...float64) []byte {
	return append([]byte{'p', 'a', 'r', 'a', 0, 0, 0, 0, 0, kind, 0, 0}, s15(values...)...)
}

var srgbCurve = para(3, 2.4, 1/1.055, 0.055/1.055, 1/12.92, 0.04045)

func named(name string) iccTag {
	b := binary.BigEndian.AppendUint32([]byte("desc\x00\x00\x00\x00"), uint32(len(name)+1))
	return iccTag{"desc", append(append(b, name...), 0)}
}

func localised(name string) iccTag {
	b := []byte("mluc\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0cenUS")
	units := utf16.Encode([]rune(name))
	b = binary.BigEndian.AppendUint32(b, uint32(2*len(units)))
	b = binary.BigEndian.AppendUint32(b, 28)
	for _, u := range units {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return iccTag{"desc", b}
}

func matrixProfile(name iccTag, r, g, b []byte, curves ...[]byte) []byte {
	last := len(curves) - 1
	return iccProfile("RGB ", "XYZ ", name, iccTag{"rXYZ", r}, iccTag{"gXYZ", g}, iccTag{"bXYZ", b},
		iccTag{"rTRC", curves[0]}, iccTag{"gTRC", curves[min(1, last)]}, iccTag{"bTRC", curves[min(2, last)]})
}

func displayP3() []byte {
	return matrixProfile(localised("Display P3"), xyz(0.51512, 0.24120, -0.00105), xyz(0.29198, 0.69225, 0.04189), xyz(0.15710, 0.06657, 0.78407), srgbCurve)
}

func adobeRGB() []byte {
	return matrixProfile(named("Adobe RGB (1998)"), xyz(0.60974, 0.31111, 0.01947), xyz(0.20528, 0.62567, 0.06087), xyz(0.14919, 0.06322, 0.74457), gamma(2.19921875))
}

func sRGB() []byte {
	return matrixProfile(named("sRGB IEC61966-2.1"), xyz(0.43607, 0.22249, 0.01392), xyz(0.38515, 0.71687, 0.09708), xyz(0.14307, 0.06061, 0.71410), srgbCurve)
}

// jpegWithProfile cuts a profile into segments of n bytes, and stores the last one first.
func jpegWithProfile(file, profile []byte, n int) []byte {
	var segments []byte
	count := (len(profile) + n - 1) / n
	for i := count; i >= 1; i-- {
		part := profile[(i-1)*n : min(i*n, len(profile))]
		segments = append(segments, 0xff, 0xe2)
		segments = binary.BigEndian.AppendUint16(segments, uint16(2+len(profileMark)+2+len(part)))
		segments = append(append(segments, profileMark...), byte(i), byte(count))
		segments = append(segments, part...)
	}
	return append(append(bytes.Clone(file[:2]), segments...), file[2:]...)
}

// The published matrices between the primaries under D65, which are independent of those of the profiles.
var (
	p3ToSRGB = [3][3]float64{{1.2249401, -0.2249404, 0}, {-0.0420569, 1.0420571, 0}, {-0.0196376, -0.0786361, 1.0982735}}
	adobeTo  = [3][3]float64{{1.3983832, -0.3983831, 0}, {0, 1, 0}, {0, -0.0429383, 1.0429383}}
)

func expected(p rgb8, m [3][3]float64, light func(v float64) float64) rgb8 {
	var l [3]float64
	for c, v := range p {
		l[c] = light(float64(v) / 255)
	}
	var q rgb8
	for i, row := range m {
		q[i] = Encode8(row[0]*l[0] + row[1]*l[1] + row[2]*l[2])
	}
	return q
}

// swatches are a JPEG of squares of 8 pixels, each of one colour.
func swatches(t testing.TB) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 64, 512))
	for i := range 512 {
		for p := range 64 {
			x, y := i%8*8+p%8, i/8*8+p/8
			copy(img.Pix[img.PixOffset(x, y):], []byte{uint8(i & 7 * 36), uint8(i >> 3 & 7 * 36), uint8(i >> 6 * 36), 255})
		}
	}
	return asJPEG(t, img)
}

func TestProfilesAreConverted(t *testing.T) {
	light := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	file := swatches(t)
	plain, err := Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	big := append(displayP3(), make([]byte, 200_000)...)
	for name, c := range map[string]struct {
		file   []byte
		matrix [3][3]float64
		light  func(float64) float64
	}{
		"Display P3":                  {jpegWithProfile(file, displayP3(), 60_000), p3ToSRGB, light},
		"Display P3 in many segments": {jpegWithProfile(file, displayP3(), 10), p3ToSRGB, light},
		"Display P3, a long profile":  {jpegWithProfile(file, big, 60_000), p3ToSRGB, light},
		"Adobe RGB":                   {jpegWithProfile(file, adobeRGB(), 60_000), adobeTo, func(v float64) float64 { return math.Pow(v, 2.19921875) }},
		"sRGB":                        {jpegWithProfile(file, sRGB(), 60_000), [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, light},
	} {
		img, err := Decode(bytes.NewReader(c.file))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 512 {
			x, y := i%8*8+4, i/8*8+4
			if got, want := at8(img, x, y), expected(at8(plain, x, y), c.matrix, c.light); !alike(got, want, 3) {
				t.Fatalf("%s: %v: got %v, want %v", name, at8(plain, x, y), got, want)
			}
		}
	}
}

// A profile that is damaged or unknown leaves the pixels as they are. None takes more memory than its file.
func TestOtherProfilesAreIgnored(t *testing.T) {
	file := swatches(t)
	want, err := Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	missing := jpegWithProfile(file, displayP3(), 100)
	missing[bytes.Index(missing, []byte(profileMark))] = 'X'
	twice := jpegWithProfile(file, displayP3(), 100)
	twice[bytes.Index(twice, []byte(profileMark))+len(profileMark)] = 1
	count := func(n uint32) []byte {
		b := bytes.Clone(displayP3())
		binary.BigEndian.PutUint32(b[128:], n)
		return b
	}
	far := bytes.Clone(displayP3())
	binary.BigEndian.PutUint32(far[132+4:], 1<<32-1)
	for name, c := range map[string][]byte{
		"CMYK":               jpegWithProfile(file, iccProfile("CMYK", "Lab ", named("Coated FOGRA39"), iccTag{"A2B0", []byte("mft2")}), 60_000),
		"empty":              jpegWithProfile(file, []byte{0}, 1),
		"cut off":            jpegWithProfile(file, displayP3()[:140], 60_000),
		"a part is missing":  missing,
		"a part comes twice": twice,
		"billions of tags":   jpegWithProfile(file, count(1<<32-1), 60_000),
		"too many tags":      jpegWithProfile(file, count(1000), 60_000),
		"far away":           jpegWithProfile(file, far, 60_000),
		"endless name":       jpegWithProfile(file, iccProfile("RGB ", "XYZ ", iccTag{"desc", []byte("mluc\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x0c")}), 60_000),
	} {
		got, err := Decode(bytes.NewReader(c))
		if err != nil || !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("%s: got other pixels or error %v, want those without a profile", name, err)
		}
	}
}

func FuzzProfile(f *testing.F) {
	for _, b := range [][]byte{displayP3(), adobeRGB(), sRGB(), iccProfile("RGB ", "Lab ", iccTag{"A2B0", []byte("mft2")})} {
		f.Add(b)
	}
	file := asJPEG(f, photos(9, 7)["YCbCr420"])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 1<<20 {
			return
		}
		if _, err := Decode(bytes.NewReader(jpegWithProfile(file, b, 60_000))); err != nil {
			t.Fatalf("got error %v, want the picture", err)
		}
	})
}
