package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"strings"
	"testing"
	"unicode/utf16"
)

type iccTag struct {
	name string
	data []byte
}

// icc writes a profile.
func icc(space, pcs string, tags ...iccTag) []byte {
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

func curved(values ...uint16) []byte {
	b := binary.BigEndian.AppendUint32([]byte("curv\x00\x00\x00\x00"), uint32(len(values)))
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
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
	return icc("RGB ", "XYZ ", name, iccTag{"rXYZ", r}, iccTag{"gXYZ", g}, iccTag{"bXYZ", b},
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

// uneven has another curve for each channel, so that no light can be summed before the curves.
func uneven() []byte {
	return matrixProfile(named("uneven"), xyz(0.51512, 0.24120, -0.00105), xyz(0.29198, 0.69225, 0.04189), xyz(0.15710, 0.06657, 0.78407), gamma(1.8), gamma(2.2), gamma(2.4))
}

// jpegWithProfile cuts a profile into segments of n bytes, and stores the last one first.
func jpegWithProfile(file, profile []byte, n int) []byte {
	var segments []byte
	count := (len(profile) + n - 1) / n
	for i := count; i >= 1; i-- {
		part := profile[(i-1)*n : min(i*n, len(profile))]
		segments = append(segments, 0xff, markerAPP2)
		segments = binary.BigEndian.AppendUint16(segments, uint16(2+len(profilePrefix)+2+len(part)))
		segments = append(append(segments, profilePrefix...), byte(i), byte(count))
		segments = append(segments, part...)
	}
	return append(append(bytes.Clone(file[:2]), segments...), file[2:]...)
}

func pngWithProfile(file, profile []byte) []byte {
	var b bytes.Buffer
	b.WriteString("a name\x00\x00")
	w := zlib.NewWriter(&b)
	_, _ = w.Write(profile) // a Buffer does not fail
	_ = w.Close()
	at := len(pngSignature) + 25
	return append(append(bytes.Clone(file[:at]), pngChunk("iCCP", b.Bytes())...), file[at:]...)
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

// swatches is a picture of cubes of colours, as deep as asked.
func swatches(deep bool) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, 64, 8))
	wide := image.NewNRGBA64(img.Rect)
	for i := range 512 {
		c := color.NRGBA{uint8(i & 7 * 36), uint8(i >> 3 & 7 * 36), uint8(i >> 6 * 36), 255}
		img.SetNRGBA(i%64, i/64, c)
		wide.Set(i%64, i/64, c)
	}
	if deep {
		return wide
	}
	return img
}

func TestProfilesAreConverted(t *testing.T) {
	adobeLight := func(v float64) float64 { return math.Pow(v, 2.19921875) }
	for name, c := range map[string]struct {
		icc    []byte
		matrix [3][3]float64
		light  func(float64) float64
	}{
		"Display P3":       {displayP3(), p3ToSRGB, eotf},
		"Adobe RGB (1998)": {adobeRGB(), adobeTo, adobeLight},
	} {
		for _, deep := range []bool{false, true} {
			src := swatches(deep)
			plain, err := Decode(bytes.NewReader(asPNG(t, src)))
			if err != nil {
				t.Fatal(err)
			}
			file := pngWithProfile(asPNG(t, src), c.icc)
			h, err := Inspect(bytes.NewReader(file))
			if err != nil || h.Profile != name || h.ProfileIgnored != "" {
				t.Fatalf("%s: got %+v and error %v, want that profile", name, h, err)
			}
			img, err := Decode(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 512 {
				x, y := i%64, i/64
				want := expected(at8(plain, x, y), c.matrix, c.light)
				if got := at8(img, x, y); !alike(got, want, 2) {
					t.Fatalf("%s: %v: got %v, want %v", name, at8(plain, x, y), got, want)
				}
				got := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
				if !alike(rgb8{got.R, got.G, got.B}, want, 2) || got.A != 255 {
					t.Fatalf("%s: At: got %v, want %v", name, got, want)
				}
				var wide [1]rgb16
				readBlock(img, image.Rect(x, y, x+1, y+1), wide[:], row16)
				if p := wide[0]; deep && !alike(rgb8{to8(p[0]), to8(p[1]), to8(p[2])}, want, 1) {
					t.Fatalf("%s: 16 bits: got %v, want %v", name, p, want)
				}
			}
		}
	}
}

// A mean is that of the converted pixels, whichever way it is computed; within sRGB nothing is clipped.
func TestMeansOfProfiledPictures(t *testing.T) {
	photo := image.NewNRGBA(image.Rect(0, 0, 60, 40))
	noisy(1, photo.Pix)
	for i := range photo.Pix {
		photo.Pix[i] = 90 + photo.Pix[i]/3 // greyish: sRGB shows it all
		if i%4 == 3 {
			photo.Pix[i] = 255
		}
	}
	for name, profile := range map[string][]byte{"P3": displayP3(), "Adobe": adobeRGB(), "uneven": uneven()} {
		for _, deep := range []bool{false, true} {
			file := asPNG(t, photo)
			if deep {
				wide := image.NewNRGBA64(photo.Rect)
				for i, v := range photo.Pix {
					wide.Pix[2*i], wide.Pix[2*i+1] = v, v
				}
				file = asPNG(t, wide)
			}
			for _, file := range [][]byte{pngWithProfile(file, profile), pngWithEXIF(pngWithProfile(file, profile), tiff(6), true)} {
				img, err := Decode(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				got, err := Average(img, img.Bounds(), 3, 2)
				if err != nil {
					t.Fatal(err)
				}
				copied := image.NewRGBA64(img.Bounds())
				for y := range img.Bounds().Dy() {
					for x := range img.Bounds().Dx() {
						copied.Set(x, y, img.At(x, y))
					}
				}
				want, err := Average(copied, copied.Bounds(), 3, 2)
				if err != nil {
					t.Fatal(err)
				}
				for i, g := range got.Means {
					w := want.Means[i]
					if math.Abs(g.R-w.R)+math.Abs(g.G-w.G)+math.Abs(g.B-w.B) > 0.001 {
						t.Errorf("%s, deep %t: cell %d: got %v, want %v", name, deep, i, g, w)
					}
				}
			}
		}
	}
}

func TestProfilesOfEveryFormat(t *testing.T) {
	gray := icc("GRAY", "XYZ ", named("Gray Gamma 1.0"), iccTag{"kTRC", curved()})
	photo := photos(50, 30)
	rgb, grey := asJPEG(t, photo["YCbCr420"]), asJPEG(t, photo["Gray"])
	big := append(displayP3(), make([]byte, 200_000)...)
	for name, c := range map[string]struct {
		file    []byte
		profile string
	}{
		"JPEG":                   {jpegWithProfile(rgb, displayP3(), 60_000), "Display P3"},
		"JPEG in many segments":  {jpegWithProfile(rgb, displayP3(), 10), "Display P3"},
		"JPEG, a long profile":   {jpegWithProfile(rgb, big, 60_000), "Display P3"},
		"grey JPEG":              {jpegWithProfile(grey, gray, 60_000), "Gray Gamma 1.0"},
		"grey JPEG, RGB profile": {jpegWithProfile(grey, adobeRGB(), 60_000), "Adobe RGB (1998)"},
		"PNG":                    {pngWithProfile(asPNG(t, photo["NRGBA"]), adobeRGB()), "Adobe RGB (1998)"},
		"grey PNG":               {pngWithProfile(asPNG(t, photo["Gray"]), gray), "Gray Gamma 1.0"},
		"paletted PNG":           {pngWithProfile(asPNG(t, photo["Paletted"]), displayP3()), "Display P3"},
		"TIFF":                   {rgbTIFF(binary.BigEndian, 50, 30, entry{tag: tiffProfile, kind: 7, bytes: displayP3()}), "Display P3"},
		"WebP":                   {extended(webps["lossy"], 1<<5, riffChunk("ICCP", displayP3()), nil), "Display P3"},
		"lossless WebP":          {extended(webps["lossless"], 1<<5, riffChunk("ICCP", displayP3()), nil), "Display P3"},
		"sRGB":                   {jpegWithProfile(rgb, sRGB(), 60_000), ""},
	} {
		h, err := Inspect(bytes.NewReader(c.file))
		if err != nil || h.Profile != c.profile || h.ProfileIgnored != "" {
			t.Errorf("%s: got %q, ignored %q and error %v; want %q", name, h.Profile, h.ProfileIgnored, err, c.profile)
		}
		img, err := Decode(bytes.NewReader(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, is := img.(*profiled); is != (c.profile != "") {
			t.Errorf("%s: a view in sRGB: got %t, want %t", name, is, !is)
		}
	}
}

func TestProfilesThatAreIgnored(t *testing.T) {
	rgb := asJPEG(t, photos(20, 10)["YCbCr420"])
	primaries := []iccTag{{"rXYZ", xyz(0.43607, 0.22249, 0.01392)}, {"gXYZ", xyz(0.38515, 0.71687, 0.09708)}, {"bXYZ", xyz(0.14307, 0.06061, 0.71410)}}
	with := func(curve []byte) []byte {
		return icc("RGB ", "XYZ ", append(primaries[:3:3], iccTag{"rTRC", curve}, iccTag{"gTRC", curve}, iccTag{"bTRC", curve})...)
	}
	missing := jpegWithProfile(rgb, displayP3(), 100)
	at := bytes.Index(missing, profilePrefix)
	missing[at] = 'X'
	twice := jpegWithProfile(rgb, displayP3(), 100)
	twice[bytes.Index(twice, profilePrefix)+len(profilePrefix)] = 1
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"CMYK":               {jpegWithProfile(rgb, icc("CMYK", "Lab ", named("Coated FOGRA39"), iccTag{"A2B0", []byte("mft2")}), 60_000), `"Coated FOGRA39" is ignored: profiles for CMYK`},
		"tables":             {jpegWithProfile(rgb, icc("RGB ", "Lab ", named("a scanner"), iccTag{"A2B0", []byte("mft2")}), 60_000), "tables"},
		"Lab":                {jpegWithProfile(rgb, icc("GRAY", "Lab ", iccTag{"kTRC", gamma(2.2)}), 60_000), "another kind"},
		"Lab and primaries":  {jpegWithProfile(rgb, append(with(gamma(2.2))[:20], append([]byte("Lab "), with(gamma(2.2))[24:]...)...), 60_000), "CIELAB"},
		"empty":              {jpegWithProfile(rgb, []byte{0}, 1), "damaged"},
		"cut off":            {jpegWithProfile(rgb, displayP3()[:300], 60_000), "damaged"},
		"a part is missing":  {missing, "damaged"},
		"a part comes twice": {twice, "damaged"},
		"many tags":          {jpegWithProfile(rgb, append(bytes.Clone(displayP3()[:128]), "\xff\xff\xff\xff"...), 60_000), "damaged"},
		"no curves":          {jpegWithProfile(rgb, icc("RGB ", "XYZ ", primaries...), 60_000), "damaged"},
		"black":              {jpegWithProfile(rgb, with(curved(0, 0, 0)), 60_000), "damaged"},
		"an endless curve":   {jpegWithProfile(rgb, with([]byte("curv\x00\x00\x00\x00\xff\xff\xff\xff")), 60_000), "damaged"},
		"unknown function":   {jpegWithProfile(rgb, with(para(9, 1, 1, 1, 1, 1, 1, 1)), 60_000), "damaged"},
		"short function":     {jpegWithProfile(rgb, with(para(4, 1, 1)), 60_000), "damaged"},
		"no white":           {jpegWithProfile(rgb, matrixProfile(named("x"), xyz(3, 3, 3), xyz(0, 0, 0), xyz(-9, 1, 1), gamma(2.2)), 60_000), "primaries"},
		"PNG of no profile":  {pngWithEXIF(asPNG(t, swatches(false)), nil, true), ""},
	} {
		h, err := Inspect(bytes.NewReader(c.file))
		if err != nil || h.Profile != "" || !strings.Contains(h.ProfileIgnored, c.says) || (c.says == "") != (h.ProfileIgnored == "") {
			t.Errorf("%s: got %q, ignored %q and error %v; want one ignored that says %q", name, h.Profile, h.ProfileIgnored, err, c.says)
		}
		if _, err := Decode(bytes.NewReader(c.file)); err != nil {
			t.Errorf("%s: got error %v, want the picture", name, err)
		}
	}
}

func TestProfileNamesAreForPeople(t *testing.T) {
	for in, want := range map[string]string{"  Mine\x1b[31m \n": "Mine[31m", "": "", strings.Repeat("x", 200): strings.Repeat("x", 80), "Größe": "Größe", "x" + strings.Repeat("é", 50): "x" + strings.Repeat("é", 39)} {
		if got := iccText(localised(in).data); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzProfile(f *testing.F) {
	for _, b := range [][]byte{displayP3(), adobeRGB(), sRGB(), uneven(), icc("GRAY", "XYZ ", iccTag{"kTRC", curved(0, 9, 65535)}), icc("RGB ", "Lab ", iccTag{"A2B0", []byte("mft2")})} {
		f.Add(b)
	}
	f.Add(matrixProfile(localised("x"), xyz(0.4, 0.2, 0), xyz(0.4, 0.7, 0.1), xyz(0.1, 0.1, 0.7), para(4, 2.4, 1, 0, 0.1, 0.04, 0, 0), para(1, 2, 1, -1), para(2, 2, 1, -1, 0.1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, space := range []string{spaceRGB, spaceGray, spaceCMYK} {
			h := Header{icc: b, space: space}
			h.readProfile()
			if h.profile == nil {
				continue
			}
			for v := range 256 {
				p, q := rgb8{uint8(v), uint8(255 - v), uint8(v / 2)}, rgb16{uint16(v) * 257, 65535, 0}
				h.profile.apply8(&p)
				h.profile.apply16(&q)
				if l := h.profile.linear(h.profile.light8[0][v], 1, 0); !(l.R >= 0 && l.R <= 1) {
					t.Fatalf("light of %v", l)
				}
			}
		}
	})
}
