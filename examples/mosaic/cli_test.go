package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

// result is the result of a run.
type result struct {
	status         int
	stdout, stderr string
}

// mosaic runs the program in this process.
func mosaic(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := command(t.Context(), args, &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

// needs fails a test that this machine does not support. Only on Windows, which does not let every user
// make links, the test is skipped.
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

// photo writes a picture without equal parts.
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

// fewTiles makes a folder of a few tiles, because generating a library is slow under the race detector.
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

// left lists a folder including hidden files.
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

// temporary sets the program's temporary folder, so that the test sees what is left in it.
func temporary(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func TestWithoutArgumentsTheSampleIsRendered(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a large mosaic")
	}
	tmp := temporary(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := mosaic(t)
	if r.status != cli.StatusDone || r.stderr != "" {
		t.Fatalf("got status %d, stderr %q; want status %d and no stderr", r.status, r.stderr, cli.StatusDone)
	}
	path := filepath.Join(dir, "mosaic.png")
	// How many messages is tested in package roles: a lease that ends on a busy machine takes some more.
	for _, want := range []string{path, "960×640", " of them used", "slices                8", "messages              ", "storage transactions", "time"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("summary: want %q in it, got\n%s", want, r.stdout)
		}
	}
	if got := read(t, path).Bounds(); got != image.Rect(0, 0, 960, 640) {
		t.Errorf("bounds of the mosaic: got %v, want %v", got, image.Rect(0, 0, 960, 640))
	}
	if got := left(t, dir); len(got) != 1 {
		t.Errorf("files in the folder: got %v, want 1", got)
	}
	if got := left(t, tmp); len(got) != 0 {
		t.Errorf("temporary files: got %v, want none", got)
	}
}

// TestEveryCellIsATileOfTheFolder identifies the tile of every cell from the files alone, and compares with an exhaustive search for the
// nearest, with other arithmetic than the program's.
func TestEveryCellIsATileOfTheFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a large mosaic")
	}
	t.Parallel()
	dir := t.TempDir()
	const tile = 5
	in := photo(t, filepath.Join(dir, "in.png"), 83, 64)
	library := map[string]image.Image{}
	for i := range 60 {
		// A texture, so that pixels identify their place in a tile; and an odd number of colours.
		img := image.NewNRGBA(image.Rect(0, 0, tile, tile))
		for p := range tile * tile {
			img.SetNRGBA(p%tile, p/tile, color.NRGBA{uint8(i * 37), uint8(i*101 + p), uint8(i*59 + p*p), 255})
		}
		name := string(rune('A'+i%26)) + string(rune('a'+i/26)) + ".png"
		write(t, filepath.Join(dir, "tiles", name), img)
		library[name] = img
	}
	// A mirrored twin has the same mean.
	twin := image.NewNRGBA(image.Rect(0, 0, tile, tile))
	for p := range tile * tile {
		twin.Set(tile-1-p%tile, p/tile, library["Aa.png"].At(p%tile, p/tile))
	}
	write(t, filepath.Join(dir, "tiles", "twin.png"), twin)
	library["twin.png"] = twin
	writeBytes(t, filepath.Join(dir, "tiles", "broken.jpg"), []byte("no picture"))
	writeBytes(t, filepath.Join(dir, "tiles", "notes.txt"), []byte("no tile"))

	out := filepath.Join(dir, "out.png")
	r := mosaic(t, "render", "-in", filepath.Join(dir, "in.png"), "-out", out, "-tile", "5", "-slices", "5", "-tint", "0", "-tiles", filepath.Join(dir, "tiles"))
	if r.status != cli.StatusDone {
		t.Fatalf("got status %d: %s; want status %d", r.status, r.stderr, cli.StatusDone)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "broken.jpg") {
		t.Errorf("stderr: got %s, want one line with \"broken.jpg\"", r.stderr)
	}
	if want := "photographs: " + fmt.Sprint(len(library)) + " of " + fmt.Sprint(len(library)+1) + " used\n"; !strings.Contains(r.stdout, want) {
		t.Errorf("stdout: got %s, want the line %q", r.stdout, want)
	}
	got := read(t, out)
	if want := image.Rect(0, 0, 80, 60); got.Bounds() != want {
		t.Fatalf("bounds of the mosaic: got %v, want %v: the picture cropped to whole tiles", got.Bounds(), want)
	}
	sum, nearest := 0.0, 0.0 // of the distances of the tiles chosen, and of the nearest
	var used [12][16]string
	for y := range 12 {
		for x := range 16 {
			r := image.Rect(x*tile, y*tile, (x+1)*tile, (y+1)*tile)
			cell, best := labOfMean(in, r), math.Inf(1)
			for name, img := range library {
				d := distanceOf(cell, labOfMean(img, img.Bounds()))
				best = min(best, d)
				if samePixels(got, r, img) {
					used[y][x] = name
					sum += d
				}
			}
			nearest += best
			switch name := used[y][x]; {
			case name == "":
				t.Fatalf("cell %d,%d: got no tile of the folder, want one", x, y)
			case x > 0 && used[y][x-1] == name || y > 0 && used[y-1][x] == name:
				t.Errorf("cell %d,%d: got the tile of the cell beside it, %s, want another", x, y, name)
			}
		}
	}
	if sum > 2*nearest {
		t.Errorf("distance from the picture: got %.1f on average, want at most twice that of the nearest tiles, %.1f", sum/12/16, nearest/12/16)
	}
}

// samePixels compares a rectangle of a picture with all of another.
func samePixels(img image.Image, r image.Rectangle, tile image.Image) bool {
	for y := range r.Dy() {
		for x := range r.Dx() {
			if color.NRGBAModel.Convert(img.At(r.Min.X+x, r.Min.Y+y)) != color.NRGBAModel.Convert(tile.At(x, y)) {
				return false
			}
		}
	}
	return true
}

func TestFormatsSizesAndDefaults(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics")
	}
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
		{"in.jpg", "out.png", nil, "2", image.Pt(48, 32)}, // eight slices adapt to two rows
		{"in.gif", "out.png", []string{"-tile", "1", "-slices", "33"}, "33", image.Pt(50, 33)},
		{"in.png", "out.png", []string{"-tile", "33"}, "1", image.Pt(33, 33)},
		{"in.png", "out.png", []string{"-tile", "8", "-scale", "2.5", "-tint", "40", "-reuse", "0"}, "8", image.Pt(120, 80)},
		{"in.jpg", "out.png", []string{"-tile", "8", "-scale", "0.5", "-reuse", "100", "-slices", "2"}, "2", image.Pt(24, 16)},
	} {
		out := filepath.Join(dir, c.out)
		r := mosaic(t, append([]string{"render", "-in", filepath.Join(dir, c.in), "-out", out, "-tiles", folder}, c.flags...)...)
		if r.status != cli.StatusDone || !strings.Contains(r.stdout, "slices                "+c.slices+"\n") {
			t.Errorf("%v: got status %d, %s%s; want status %d and %s slices", c, r.status, r.stderr, r.stdout, cli.StatusDone, c.slices)
			continue
		}
		if got := read(t, out).Bounds().Size(); got != c.size {
			t.Errorf("%v: bounds of the mosaic: got %v, want %v", c, got, c.size)
		}
	}
}

func TestInvalidCommandLines(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	photo(t, in, 40, 40)
	render := func(flags ...string) []string { return append([]string{"render", "-in", in, "-out", out}, flags...) }
	for _, args := range [][]string{
		{"mosaic"}, {"-x"}, {"Render"}, {"render"}, {"render", "-in", in}, {"render", "-out", out},
		{"render", "-in", in, "-out", filepath.Join(dir, "out.jpg")}, {"render", "-in", in, "-out", filepath.Join(dir, "out")},
		render("extra"), render("-unknown"), render("-tile"), render("-tile", "0"), render("-tile", "-1"), render("-tile", "65"), render("-tile", "x"),
		render("-slices", "0"), render("-slices", "-3"), render("-slices", "3"), render("-slices", "99999999999999999999"),
		render("-scale", "0"), render("-scale", "-1"), render("-scale", "NaN"), render("-scale", "x"), render("-scale", ""), render("-scale", "65"),
		render("-tint", "-1"), render("-tint", "41"), render("-tint", "x"), render("-reuse", "-1"), render("-reuse", "101"), render("-reuse", "x"),
		{"controller", "extra"}, {"controller", "-slices-at-once", "2"}, {"controller", "-account", ""}, {"controller", "-account", "nowhere"}, {"controller", "-blobs", " "},
		{"processor", "-slices-at-once", "0"}, {"processor", "-slices-at-once", "257"}, {"processor", "-slices-at-once", "x"}, {"processor", "-account", "@missing"},
		{"compare"}, {"compare", "a.png"}, {"compare", "-cell", "x", "a.png", "b.png"}, render("-roles", "processor"), render("-account", "@"),
		render("-tiles", ""), render("-blobs", ""), render("-account", ""), render("-account", "nowhere"),
		render("-account", "AccountName=a"), render("-account", "ftp://a"), render("-account", "http://a.queue.core.windows.net"),
	} {
		r := mosaic(t, args...)
		if r.status != cli.StatusUsage || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "mosaic: ") || r.stdout != "" {
			t.Errorf("%q: got status %d, stdout %q, stderr %q; want status %d and one line on stderr", args, r.status, r.stdout, r.stderr, cli.StatusUsage)
		}
	}
	if got := left(t, dir); len(got) != 1 {
		t.Errorf("files in the folder: got %v, want 1", got)
	}
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}} {
		if r := mosaic(t, args...); r.status != cli.StatusDone || r.stdout != commandLine().Usage() || r.stderr != "" {
			t.Errorf("%q: got status %d, stdout %q, stderr %q; want status %d, stdout %q, no stderr", args, r.status, r.stdout, r.stderr, cli.StatusDone, commandLine().Usage())
		}
	}
	for _, c := range commandLine().Commands {
		for _, args := range [][]string{{c.Name, "-h"}, {c.Name, "-account", "x", "--help"}} {
			if len(args) > 2 && !strings.Contains(c.Help, "-account") {
				continue
			}
			if r := mosaic(t, args...); r.status != cli.StatusDone || r.stdout != c.Help || r.stderr != "" {
				t.Errorf("%q: got status %d, stdout %q, stderr %q; want status %d, stdout %q, no stderr", args, r.status, r.stdout, r.stderr, cli.StatusDone, c.Help)
			}
		}
		if !strings.Contains(commandLine().Usage(), "mosaic "+c.Name+" ") {
			t.Errorf("usage: got no %q, want every command in it", c.Name)
		}
	}
}

func TestFailedJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics")
	}
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
		{"-in", in, "-out", out, "-tile", "4", "-scale", "4.01"},
		{"-in", in, "-out", out, "-tile", "64", "-scale", "0.5"},
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
		if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "mosaic: ") {
			t.Errorf("%q: got status %d, stderr %q; want status %d and one line on stderr", args, r.status, r.stderr, cli.StatusFailed)
		}
	}
	if data, err := os.ReadFile(out); err != nil || string(data) != "what was there" {
		t.Errorf("existing output: got %q, %v; want it unchanged", data, err)
	}
	for _, name := range left(t, dir) {
		if strings.HasPrefix(name, ".") || strings.Contains(name, "partial") {
			t.Errorf("folder: got the partial file %s, want none", name)
		}
	}
	if got := left(t, tmp); len(got) != 0 {
		t.Errorf("temporary files: got %v, want none", got)
	}
}

func TestALinkedOutputReplacesTheFileBehindTheLink(t *testing.T) {
	if testing.Short() {
		t.Skip("makes several mosaics")
	}
	t.Parallel()
	dir := t.TempDir()
	in, file, link := filepath.Join(dir, "in.png"), filepath.Join(dir, "file.png"), filepath.Join(dir, "link.png")
	photo(t, in, 20, 20)
	writeBytes(t, file, []byte("old"))
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	needs(t, os.Symlink("file.png", link))
	if r := mosaic(t, "render", "-in", in, "-out", link, "-tiles", fewTiles(t)); r.status != cli.StatusDone {
		t.Fatal(r.stderr)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("link: got %v, %v; want a symbolic link", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: got %v, %v; want mode 0600", info, err)
	}
	read(t, file)
}

// The output must not be the input file, even under another name.
func TestTheInputIsNotOverwritten(t *testing.T) {
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
			// It is refused before the tiles and the account, which are invalid, are looked at.
			r := mosaic(t, "render", "-in", in, "-out", out, "-tiles", "missing", "-account", "nowhere", "-blobs", "blobs")
			if r.status != cli.StatusUsage || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "-out "+out+" is the picture of -in "+in) {
				t.Errorf("%s onto %s: got %+v, want status %d and one line on stderr", in, out, r, cli.StatusUsage)
			}
		}
	}
	if after, err := os.ReadFile("in.png"); err != nil || !bytes.Equal(after, before) {
		t.Errorf("input file: got it changed, %v; want it unchanged", err)
	}
	if got := left(t, dir); len(got) != entries {
		t.Errorf("files in the folder: got %v, want %d", got, entries)
	}
	// A copy is another file.
	writeBytes(t, "copy.png", before)
	if r := mosaic(t, "render", "-in", "in.png", "-out", "copy.png", "-tiles", fewTiles(t)); r.status != cli.StatusDone {
		t.Errorf("onto a copy: got %+v, want status %d", r, cli.StatusDone)
	}
}

// The reader of the README compares mosaics by the same command.
func TestCompareScoresMosaics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	photo(t, in, 64, 48)
	if r := mosaic(t, "render", "-in", in, "-out", out, "-tile", "4", "-tiles", fewTiles(t)); r.status != cli.StatusDone {
		t.Fatalf("render: got status %d, %s", r.status, r.stderr)
	}
	r := mosaic(t, "compare", in, in, out)
	lines := strings.Split(r.stdout, "\n")
	if r.status != cli.StatusDone || len(lines) != 4 || strings.Fields(lines[1])[3] != "0.0000" || strings.Fields(lines[2])[3] == "0.0000" {
		t.Errorf("got status %d, %s%s; want two lines of scores, the first of them 0", r.status, r.stderr, r.stdout)
	}
	for want, args := range map[string][]string{"missing.png": {"compare", in, filepath.Join(dir, "missing.png")}, "no cells of 100": {"compare", "-cell", "100", in, out}} {
		if r := mosaic(t, args...); r.status != cli.StatusFailed || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%q: got status %d, %s; want one line with %q", args, r.status, r.stderr, want)
		}
	}
}
