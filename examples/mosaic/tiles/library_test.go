package tiles

import (
	"bytes"
	"encoding/gob"
	"errors"
	"image"
	"io"
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

func TestWriteAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		names := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.Byte(), 1, 20), 1, 20, func(b []byte) string { return string(b) }).Draw(t, "names")
		var list []Tile
		for _, name := range names {
			pix := rapid.SliceOfN(rapid.Byte(), size*size*4, size*size*4).Draw(t, "pix")
			for i := 3; i < len(pix); i += 4 {
				pix[i] = 255
			}
			list = append(list, Tile{string(name), pix})
		}
		l, err := New(size, list)
		if err != nil {
			t.Fatal(err)
		}
		file := written(t, l)
		got, err := Read(iotest.HalfReader(bytes.NewReader(file)))
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

// smallLibrary has two tiles of 2×2.
func smallLibrary(t testing.TB) *Library {
	t.Helper()
	l, err := New(2, []Tile{
		{Name: "b.png", Pix: bytes.Repeat([]byte{9, 8, 7, 255}, 4)},
		{Name: "a.png", Pix: bytes.Repeat([]byte{1, 2, 3, 255}, 4)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestReadRefuses(t *testing.T) {
	good := written(t, smallLibrary(t))
	changed := func(old, with string) []byte { return bytes.Replace(good, []byte(old), []byte(with), 1) }
	// declared is a library of no tiles with a head of another one.
	declared := func(size, n int) []byte {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(head{Size: size, Tiles: n}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":           {nil, "EOF"},
		"nonsense":        {bytes.Repeat([]byte("nonsense"), 200), ""},
		"cut off":         {good[:len(good)-5], "unexpected EOF"},
		"no tile":         {declared(2, 2), "EOF"},
		"size 0":          {declared(0, 2), "choose 1 to 64"},
		"size huge":       {declared(1<<31, 2), "pixels"},
		"size negative":   {declared(-1, 2), "pixels"},
		"no tiles":        {declared(2, 0), "no tiles"},
		"too many tiles":  {declared(2, 1<<32-1), "tiles"},
		"too many pixels": {declared(64, 20_000), "MiB"},
		"largest":         {declared(1, MaxTiles), "EOF"},
		"another pixel":   {changed("\x01\x02\x03", "\x01\x02\x04"), "does not match its ID"},
		"another name":    {changed("a.png", "c.png"), "does not match its ID"},
		"same name":       {changed("a.png", "b.png"), "two tiles"},
	} {
		_, err := Read(bytes.NewReader(c.file))
		if !errors.Is(err, ErrBadLibrary) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	cable := errors.New("the cable was cut")
	if _, err := Read(io.MultiReader(bytes.NewReader(good[:50]), iotest.ErrReader(cable))); !errors.Is(err, cable) || errors.Is(err, ErrBadLibrary) {
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
	} {
		if _, err := New(1, list); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func TestTileKeepsTheMean(t *testing.T) {
	img := drawn(301, 203)
	for i := range img.Pix {
		if i&3 != 3 {
			img.Pix[i] = byte(i * 2654435761 >> 7)
		}
	}
	square, err := picture.Average(img, image.Rect(49, 0, 252, 203), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 7, 16, 64} {
		got, want := meanOf(tileOf("x", img, size).Pix), square.Means[0]
		if !near(got, want, 0.004) {
			t.Errorf("size %d: got a mean of %v, want %v", size, got, want)
		}
	}
}

// The tiles of the zoom are those of the mosaic, in another size.
func TestShrunkTilesAreThoseOfTheLibrary(t *testing.T) {
	whole := generated(t, 16)
	small, err := whole.Shrink(5)
	if err != nil {
		t.Fatal(err)
	}
	if small.Size() != 5 || small.Len() != whole.Len() || small.Origin() != whole.ID() || small.ID() == whole.ID() {
		t.Errorf("got %d tiles of %d pixels, origin %.8s", small.Len(), small.Size(), small.Origin())
	}
	for i := range small.Len() {
		a, b := small.Tile(i), whole.Tile(i)
		if a.Name != b.Name || !near(meanOf(a.Pix), meanOf(b.Pix), 0.01) {
			t.Fatalf("tile %d: got %s, want %s with its colour", i, a.Name, b.Name)
		}
	}
	for _, size := range []int{0, 17} {
		if _, err := whole.Shrink(size); err == nil {
			t.Errorf("to %d pixels: got no error", size)
		}
	}
}

func FuzzRead(f *testing.F) {
	good := written(f, smallLibrary(f))
	f.Add(good)
	f.Add(good[:40])
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
