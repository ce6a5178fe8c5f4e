package main

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// result is what a run of the program left.
type result struct {
	status         int
	stdout, stderr string
}

// mosaic runs the program in this process.
func mosaic(t *testing.T, args ...string) result {
	t.Helper()
	return mosaicUntil(t.Context(), args...)
}

func mosaicUntil(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := command(ctx, args, &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

// needs fails a test that cannot be done on this machine. Only Windows, which does not let
// everybody make links, skips it.
func needs(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case runtime.GOOS == "windows":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// photo writes a picture that is different everywhere.
func photo(t *testing.T, path string, width, height int) image.Image {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.SetNRGBA(x, y, color.NRGBA{uint8(x * 255 / width), uint8(y * 255 / height), uint8((x*7 + y*13) % 256), 255})
		}
	}
	write(t, path, img)
	return img
}

// fewTiles makes a folder of tiles that are quickly read: making a library takes long
// under the race detector.
func fewTiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, c := range map[string]color.Gray{"black.png": {0}, "grey.png": {120}, "white.gif": {255}} {
		write(t, filepath.Join(dir, name), plain(8, c))
	}
	return dir
}

// plain is a picture of one colour.
func plain(size int, c color.Color) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, size, size))
	for i := range size * size {
		img.Set(i%size, i/size, c)
	}
	return img
}

func write(t *testing.T, path string, img image.Image) {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch filepath.Ext(path) {
	case ".jpg":
		err = jpeg.Encode(&b, img, nil)
	case ".gif":
		err = gif.Encode(&b, img, nil)
	default:
		err = png.Encode(&b, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	writeBytes(t, path, b.Bytes())
}

func writeBytes(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, _, err := image.Decode(f)
	if err != nil {
		t.Fatalf("%s: got %v; want no error", path, err)
	}
	return img
}

// left lists a folder, hidden files included.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// temporary makes the program's temporary folder one of the test, to see what it leaves.
func temporary(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func TestWithoutArgumentsTheSampleIsRendered(t *testing.T) {
	tmp := temporary(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := mosaic(t)
	if r.status != statusDone || r.stderr != "" {
		t.Fatalf("status %d, stderr %q; want status %v, stderr \"\"", r.status, r.stderr, statusDone)
	}
	path := filepath.Join(dir, "mosaic.png")
	for _, want := range []string{path, "960×640", "slices                8", "messages              18", "loops at peak", "storage transactions", "time"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the summary does not say %q:\n%s", want, r.stdout)
		}
	}
	if got := read(t, path).Bounds(); got != image.Rect(0, 0, 960, 640) {
		t.Errorf("the mosaic is %v; want %v", got, image.Rect(0, 0, 960, 640))
	}
	if got := left(t, dir); len(got) != 1 {
		t.Errorf("left in the folder: %v; want len(got) 1", got)
	}
	if got := left(t, tmp); len(got) != 0 {
		t.Errorf("left among the temporary files: %v; want len(got) 0", got)
	}
}

// TestEveryCellIsTheNearestTile finds out for itself, from the files alone, which tile
// each cell must be: by an exhaustive search, with other arithmetic than the program's.
func TestEveryCellIsTheNearestTile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const tile = 5
	in := photo(t, filepath.Join(dir, "in.png"), 83, 64)
	library := map[string]image.Image{}
	for i := range 60 {
		// A texture, so that a tile shows where it is; and an odd number of colours.
		img := image.NewNRGBA(image.Rect(0, 0, tile, tile))
		for p := range tile * tile {
			img.SetNRGBA(p%tile, p/tile, color.NRGBA{uint8(i * 37), uint8(i*101 + p), uint8(i*59 + p*p), 255})
		}
		name := string(rune('A'+i%26)) + string(rune('a'+i/26)) + ".png"
		write(t, filepath.Join(dir, "tiles", name), img)
		library[name] = img
	}
	// A mirrored twin has the same mean, and loses the tie by its name.
	twin := image.NewNRGBA(image.Rect(0, 0, tile, tile))
	for p := range tile * tile {
		twin.Set(tile-1-p%tile, p/tile, library["Aa.png"].At(p%tile, p/tile))
	}
	write(t, filepath.Join(dir, "tiles", "twin.png"), twin)
	library["twin.png"] = twin
	writeBytes(t, filepath.Join(dir, "tiles", "broken.jpg"), []byte("no picture"))
	writeBytes(t, filepath.Join(dir, "tiles", "notes.txt"), []byte("no tile"))

	out := filepath.Join(dir, "out.png")
	r := mosaic(t, "render", "-in", filepath.Join(dir, "in.png"), "-out", out, "-tile", "5", "-slices", "5", "-tiles", filepath.Join(dir, "tiles"))
	if r.status != statusDone {
		t.Fatalf("status %d: %s; want status %v", r.status, r.stderr, statusDone)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "broken.jpg") {
		t.Errorf("stderr: %s; want one line on stderr with \"broken.jpg\"", r.stderr)
	}
	got := read(t, out)
	if want := image.Rect(0, 0, 80, 60); got.Bounds() != want {
		t.Fatalf("the mosaic is %v, want %v: the picture cropped to whole tiles", got.Bounds(), want)
	}
	for y := 0; y < 60; y += tile {
		for x := 0; x < 80; x += tile {
			cell := labOfMean(in, image.Rect(x, y, x+tile, y+tile))
			best, distance := "", 0.0
			for name, img := range library {
				d := distanceOf(cell, labOfMean(img, img.Bounds()))
				if best == "" || d < distance-1e-9 || d < distance+1e-9 && name < best {
					best, distance = name, d
				}
			}
			for p := range tile * tile {
				a := color.NRGBAModel.Convert(got.At(x+p%tile, y+p/tile))
				if b := color.NRGBAModel.Convert(library[best].At(p%tile, p/tile)); a != b {
					t.Fatalf("cell %d,%d is not %s, the nearest: pixel %d is %v, want %v", x/tile, y/tile, best, p, a, b)
				}
			}
		}
	}
}

func TestFormatsSizesAndDefaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	photo(t, filepath.Join(dir, "in.png"), 50, 33)
	photo(t, filepath.Join(dir, "in.jpg"), 50, 33)
	photo(t, filepath.Join(dir, "in.gif"), 50, 33)
	folder := fewTiles(t)
	for _, c := range []struct {
		in, out string
		flags   []string
		slices  string
		size    image.Point
	}{
		{"in.png", "out.PNG", []string{"-tile", "4"}, "8", image.Pt(48, 32)},
		{"in.jpg", "out.jpeg", nil, "2", image.Pt(48, 32)}, // eight slices adapt to two rows
		{"in.gif", "out.jpg", []string{"-tile", "1", "-slices", "33"}, "33", image.Pt(50, 33)},
		{"in.png", "out.png", []string{"-tile", "33"}, "1", image.Pt(33, 33)},
	} {
		out := filepath.Join(dir, c.out)
		r := mosaic(t, append([]string{"render", "-in", filepath.Join(dir, c.in), "-out", out, "-tiles", folder}, c.flags...)...)
		if r.status != statusDone || !strings.Contains(r.stdout, "slices                "+c.slices+"\n") {
			t.Errorf("%v: status %d, %s%s", c, r.status, r.stderr, r.stdout)
			continue
		}
		if got := read(t, out).Bounds().Size(); got != c.size {
			t.Errorf("%v: the mosaic is %v; want %v", c, got, c.size)
		}
	}
}

func TestWrongCalls(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	photo(t, in, 40, 40)
	render := func(flags ...string) []string { return append([]string{"render", "-in", in, "-out", out}, flags...) }
	for _, args := range [][]string{
		{"mosaic"}, {"-x"}, {"Render"}, {"render"}, {"render", "-in", in}, {"render", "-out", out},
		{"render", "-in", in, "-out", filepath.Join(dir, "out.gif")}, {"render", "-in", in, "-out", filepath.Join(dir, "out")},
		render("extra"), render("-unknown"), render("-tile"), render("-tile", "0"), render("-tile", "-1"), render("-tile", "65"), render("-tile", "x"),
		render("-slices", "0"), render("-slices", "-3"), render("-slices", "3"), render("-slices", "99999999999999999999"),
		render("-tiles", ""), render("-blobs", ""), render("-account", ""), render("-account", "nowhere"),
		render("-account", "AccountName=a"), render("-account", "ftp://a"), render("-account", "http://a.queue.core.windows.net"),
	} {
		r := mosaic(t, args...)
		if r.status != statusUsage || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "mosaic: ") || r.stdout != "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	if got := left(t, dir); len(got) != 1 {
		t.Errorf("left in the folder: %v; want len(got) 1", got)
	}
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}, {"render", "-h"}, {"render", "-in", in, "--help"}} {
		if r := mosaic(t, args...); r.status != statusDone || r.stdout != usage || r.stderr != "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q; want status %v, stdout %v, stderr \"\"", args, r.status, r.stdout, r.stderr, statusDone, usage)
		}
	}
}

func TestFailedJobs(t *testing.T) {
	tmp := temporary(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	in, out := file("in.png"), file("out.png")
	photo(t, in, 40, 40)
	whole, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	writeBytes(t, file("cut.png"), whole[:len(whole)/2])
	writeBytes(t, file("text.jpg"), []byte("no picture"))
	writeBytes(t, file("empty.png"), nil)
	huge := bytes.Clone(whole)
	copy(huge[16:], []byte{0, 1, 0, 0, 0, 1, 0, 0}) // 65,536 × 65,536
	writeBytes(t, file("huge.png"), huge)
	write(t, file("small.png"), plain(9, color.White))
	writeBytes(t, file("broken/a.jpg"), []byte("no picture"))
	for _, folder := range []string{"none", "folder.png"} {
		if err := os.Mkdir(file(folder), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	writeBytes(t, out, []byte("what was there"))
	for _, args := range [][]string{
		{"-in", file("missing.png"), "-out", out},
		{"-in", dir, "-out", out},
		{"-in", file("cut.png"), "-out", out},
		{"-in", file("text.jpg"), "-out", out},
		{"-in", file("empty.png"), "-out", out},
		{"-in", file("huge.png"), "-out", out},
		{"-in", file("small.png"), "-out", out},
		{"-in", in, "-out", out, "-tile", "41"},
		{"-in", in, "-out", out, "-tiles", file("none")},
		{"-in", in, "-out", out, "-tiles", file("missing")},
		{"-in", in, "-out", out, "-tiles", file("text.jpg")},
		{"-in", in, "-out", out, "-tiles", file("broken")},
		{"-in", in, "-out", out, "-blobs", file("text.jpg")},
		{"-in", in, "-out", file("missing/out.png")},
		{"-in", in, "-out", file("folder.png")},
		{"-in", in, "-out", file("text.jpg/out.png")},
	} {
		r := mosaic(t, append([]string{"render"}, args...)...)
		if r.status != statusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "mosaic: ") {
			t.Errorf("%q: status %d, stderr %q", args, r.status, r.stderr)
		}
	}
	if data, err := os.ReadFile(out); err != nil || string(data) != "what was there" {
		t.Errorf("the file that was there is %q, %v; want string(data) \"what was there\", no error", data, err)
	}
	for _, name := range left(t, dir) {
		if strings.HasPrefix(name, ".") || strings.Contains(name, "partial") {
			t.Errorf("left in the folder: %s", name)
		}
	}
	if got := left(t, tmp); len(got) != 0 {
		t.Errorf("left among the temporary files: %v; want len(got) 0", got)
	}
}

func TestAnAccountThatIsNotThereIsGivenUp(t *testing.T) {
	t.Parallel()
	a, err := openAccount(embedded)
	if err != nil {
		t.Fatal(err)
	}
	location := a.location
	if err := a.close(); err != nil { // now nobody listens on its port
		t.Fatal(err)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	photo(t, in, 40, 40)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := mosaicUntil(ctx, "render", "-in", in, "-out", out, "-account", location, "-blobs", filepath.Join(dir, "blobs"))
	if r.status != statusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "refused") {
		t.Errorf("status %d, stderr %q; want status %v, one line on stderr with \"refused\"", r.status, r.stderr, statusFailed)
	}
}

func TestALinkedOutputReplacesTheFileBehindTheLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, file, link := filepath.Join(dir, "in.png"), filepath.Join(dir, "file.png"), filepath.Join(dir, "link.png")
	photo(t, in, 20, 20)
	writeBytes(t, file, []byte("old"))
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	needs(t, os.Symlink("file.png", link))
	if r := mosaic(t, "render", "-in", in, "-out", link, "-tiles", fewTiles(t)); r.status != statusDone {
		t.Fatal(r.stderr)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link: %v, %v; want info.Mode().Type() %v, no error", info, err, os.ModeSymlink)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want info.Mode().Perm() %v, no error", info, err, 0o600)
	}
	read(t, file)
}

// TestThePictureIsNotWrittenOnto, by whatever name: it would be lost.
func TestThePictureIsNotWrittenOnto(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	photo(t, "in.png", 40, 40)
	before, err := os.ReadFile("in.png")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]func(from, to string) error{"soft.png": os.Symlink, "hard.png": os.Link} {
		needs(t, link("in.png", name))
	}
	needs(t, os.Symlink(dir, "dir"))
	entries := len(left(t, dir))
	for _, in := range []string{"in.png", "soft.png", "hard.png"} {
		for _, out := range []string{"in.png", "./in.png", "sub/../in.png", filepath.Join(dir, "in.png"), "soft.png", "hard.png", "dir/in.png", "dir/soft.png"} {
			// Nothing else is looked at, let alone done: the tiles and the account are none.
			r := mosaic(t, "render", "-in", in, "-out", out, "-tiles", "missing", "-account", "nowhere", "-blobs", "blobs")
			if r.status != statusUsage || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "-out "+out+" is the picture of -in "+in) {
				t.Errorf("%s onto %s: %+v", in, out, r)
			}
		}
	}
	if after, err := os.ReadFile("in.png"); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the picture is another: %v", err)
	}
	if got := left(t, dir); len(got) != entries {
		t.Errorf("left in the folder: %v; want len(got) %v", got, entries)
	}
	// A copy is another file.
	writeBytes(t, "copy.png", before)
	if r := mosaic(t, "render", "-in", "in.png", "-out", "copy.png", "-tiles", fewTiles(t)); r.status != statusDone {
		t.Errorf("onto a copy: %+v; want status %v", r, statusDone)
	}
}
