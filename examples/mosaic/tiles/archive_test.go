package tiles

import (
	"archive/tar"
	"bytes"
	"errors"
	"image"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// written returns what Write writes of a library.
func written(t interface{ Fatal(...any) }, l *Library) []byte {
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		names := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.Byte(), 1, 20), 1, 20, func(b []byte) string { return string(b) }).Draw(t, "names")
		light := rapid.Float64Range(0, 1)
		var list []Tile
		for _, name := range names {
			pix := rapid.SliceOfN(rapid.Byte(), size*size*4, size*size*4).Draw(t, "pix")
			for i := 3; i < len(pix); i += 4 {
				pix[i] = 255
			}
			list = append(list, Tile{string(name), picture.Linear{R: light.Draw(t, "r"), G: light.Draw(t, "g"), B: light.Draw(t, "b")}, pix})
		}
		l, err := New(size, list)
		if err != nil {
			t.Fatal(err)
		}
		file := written(t, l)
		got, err := Read(iotest.OneByteReader(bytes.NewReader(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, l) {
			t.Fatal("library after Write and Read: got a changed one, want the same")
		}
		if !bytes.Equal(written(t, got), file) {
			t.Fatal("second Write: got other bytes, want the same")
		}
	})
}

func TestArchiveOfGeneratedLibrary(t *testing.T) {
	l := generated(t, 16)
	file := written(t, l)
	got, err := Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if got.ID() != l.ID() || len(l.ID()) != 64 {
		t.Errorf("ID: got %s, want %s", got.ID(), l.ID())
	}
	t.Logf("%d tiles take %d KiB", l.Len(), len(file)>>10)
}

// archiveOf makes an archive with the given files.
func archiveOf(files ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		_ = w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))})
		_, _ = io.WriteString(w, files[i+1])
	}
	_ = w.Close()
	return b.Bytes()
}

// smallLibrary has two tiles of 2×2.
func smallLibrary(t testing.TB) *Library {
	t.Helper()
	l, err := New(2, []Tile{
		{Name: "b.png", Mean: picture.Linear{R: 0.25, G: 1, B: 0}, Pix: bytes.Repeat([]byte{9, 8, 7, 255}, 4)},
		{Name: "a.png", Mean: picture.Linear{R: 0.5, G: 0.1, B: 0.2}, Pix: bytes.Repeat([]byte{1, 2, 3, 255}, 4)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// parts returns the two files of a valid archive.
func parts(t testing.TB) (ix, sheet string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(written(t, smallLibrary(t))))
	var got []string
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	return got[0], got[1]
}

func TestReadRefuses(t *testing.T) {
	ix, sheet := parts(t)
	replaced := func(old, with string) []byte {
		if !strings.Contains(ix, old) {
			t.Fatalf("the index has no %s: %s", old, ix)
		}
		return archiveOf(indexName, strings.Replace(ix, old, with, 1), sheetName, sheet)
	}
	wide := string(encoded(t, "png", image.NewGray(image.Rect(0, 0, 400, 400))))
	grey := string(encoded(t, "png", image.NewGray(image.Rect(0, 0, 4, 2))))
	deep := string(encoded(t, "png", image.NewRGBA64(image.Rect(0, 0, 4, 2))))
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"deep, cut off":    {archiveOf(indexName, ix, sheetName, deep[:40]), "8 bits"},
		"empty":            {nil, "ends before"},
		"nonsense":         {bytes.Repeat([]byte("nonsense"), 200), "tar"},
		"cut off":          {archiveOf(indexName, ix, sheetName, sheet)[:1560], ""},
		"no sheet":         {archiveOf(indexName, ix), "ends before"},
		"other order":      {archiveOf(sheetName, sheet, indexName, ix), "should be"},
		"no JSON":          {archiveOf(indexName, "{", sheetName, sheet), indexName},
		"version":          {replaced(`"version":1`, `"version":2`), "version 2"},
		"size 0":           {replaced(`"size":2`, `"size":0`), "choose 1 to 64"},
		"size huge":        {replaced(`"size":2`, `"size":1000000000`), "choose 1 to 64"},
		"size other":       {replaced(`"size":2`, `"size":3`), "instead of"},
		"another ID":       {replaced(`"id":"`, `"id":"0`), "does not match its ID"},
		"another mean":     {replaced(`0.25`, `0.26`), "does not match its ID"},
		"mean of 2":        {replaced(`0.25`, `2`), "must be 0 to 1"},
		"bad escape":       {replaced(`a.png`, `a%zz`), "cannot be read"},
		"same name":        {replaced(`a.png`, `b.png`), "two tiles"},
		"no name":          {replaced(`a.png`, ``), "has 0 bytes"},
		"tiles no list":    {archiveOf(indexName, `{"version":1,"size":2,"tiles":{}}`, sheetName, sheet), "not a list"},
		"no tiles":         {archiveOf(indexName, `{"version":1,"size":2,"tiles":[]}`, sheetName, sheet), "no tiles"},
		"too many tiles":   {archiveOf(indexName, `{"version":1,"size":1,"tiles":[{}`+strings.Repeat(",{}", MaxTiles)+`]}`, sheetName, sheet), "more than 100000"},
		"too many pixels":  {archiveOf(indexName, `{"version":1,"size":64,"tiles":[{}`+strings.Repeat(",{}", 20_000)+`]}`, sheetName, sheet), "MiB"},
		"wide sheet":       {archiveOf(indexName, ix, sheetName, wide), "instead of"},
		"grey sheet":       {archiveOf(indexName, ix, sheetName, grey), "8 bits"},
		"sheet no picture": {archiveOf(indexName, ix, sheetName, "hello"), sheetName},
	} {
		_, err := Read(bytes.NewReader(c.file))
		if !errors.Is(err, ErrBadLibrary) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	cable := errors.New("the cable was cut")
	if _, err := Read(io.MultiReader(bytes.NewReader(written(t, smallLibrary(t))[:700]), iotest.ErrReader(cable))); !errors.Is(err, cable) || errors.Is(err, ErrBadLibrary) {
		t.Errorf("failing reader: got %v, want its error and not ErrBadLibrary", err)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Tile{Name: "a", Pix: bytes.Repeat([]byte{255}, 4)}
	with := func(change func(*Tile)) []Tile {
		bad := good
		change(&bad)
		return []Tile{bad}
	}
	for name, list := range map[string][]Tile{
		"none":        nil,
		"no name":     with(func(t *Tile) { t.Name = "" }),
		"long name":   with(func(t *Tile) { t.Name = strings.Repeat("x", maxName+1) }),
		"same name":   {good, good},
		"no pixels":   with(func(t *Tile) { t.Pix = nil }),
		"transparent": with(func(t *Tile) { t.Pix = make([]byte, 4) }),
		"NaN":         with(func(t *Tile) { t.Mean.G = math.NaN() }),
		"negative":    with(func(t *Tile) { t.Mean.B = -0.1 }),
		"infinite":    with(func(t *Tile) { t.Mean.R = math.Inf(1) }),
	} {
		if _, err := New(1, list); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	ix, sheet := parts(f)
	f.Add(archiveOf(indexName, ix, sheetName, sheet))
	f.Add(archiveOf(indexName, ix))
	f.Add(archiveOf(indexName, strings.Replace(ix, `"size":2`, `"size":64`, 1), sheetName, sheet))
	f.Add(archiveOf(indexName, ix, sheetName, sheet[:40]))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		l, err := Read(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, ErrBadLibrary) {
				t.Fatalf("got error %v, want ErrBadLibrary", err)
			}
			return
		}
		again, err := Read(bytes.NewReader(written(t, l)))
		if err != nil || again.ID() != l.ID() {
			t.Fatalf("a library that was read, written and read again: got %v, want the library %s", err, l.ID())
		}
	})
}
