package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/image/draw"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// The benchmarks make mosaics of a photograph of 24 megapixels, with tiles of 16 pixels from a library of 5,000:
//
//	go test -run '^$' -bench Mosaic -benchtime 3x ./examples/mosaic
const (
	benchWidth, benchHeight = 6000, 4000
	benchTile               = 16
	benchTiles              = 5000
)

// benchFiles writes the photograph and the folder of tiles.
func benchFiles(b *testing.B) (photo, folder string) {
	b.Helper()
	dir := b.TempDir()
	photo, folder = filepath.Join(dir, "photo.jpg"), filepath.Join(dir, "tiles")
	img := benchPhoto()
	var file bytes.Buffer
	if err := jpeg.Encode(&file, img, &jpeg.Options{Quality: 92}); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(photo, file.Bytes(), 0o666); err != nil {
		b.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		b.Fatal(err)
	}
	for i := range benchTiles {
		var tile bytes.Buffer
		if err := picture.Encode(&tile, benchTileOf(i)); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%04d.png", i)), tile.Bytes(), 0o666); err != nil {
			b.Fatal(err)
		}
	}
	return photo, folder
}

// benchPhoto enlarges the sample, and adds grain as that of a sensor, so that nothing is smoother than in a photograph.
func benchPhoto() *image.YCbCr {
	sample := picture.Sample()
	large := image.NewRGBA(image.Rect(0, 0, benchWidth, benchHeight))
	draw.CatmullRom.Scale(large, large.Rect, sample, sample.Rect, draw.Src, nil)
	img := image.NewYCbCr(large.Rect, image.YCbCrSubsampleRatio420)
	grain := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, benchWidth)
	for y := range benchHeight {
		_, _ = grain.Read(noise) // never fails
		for x := range benchWidth {
			p := large.Pix[large.PixOffset(x, y):]
			luma, cb, cr := color.RGBToYCbCr(p[0], p[1], p[2])
			img.Y[img.YOffset(x, y)] = uint8(min(max(int(luma)+int(noise[x]%13)-6, 0), 255))
			img.Cb[img.COffset(x, y)], img.Cr[img.COffset(x, y)] = cb, cr
		}
	}
	return img
}

// benchTileOf paints a small photograph: two colours with a soft edge in any direction, and grain.
func benchTileOf(i int) *image.RGBA {
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	a, b := [3]float64{}, [3]float64{}
	for c := range a {
		a[c] = rng.Float64() * 255
		b[c] = min(max(a[c]+rng.NormFloat64()*60, 0), 255)
	}
	dx, dy := rng.NormFloat64(), rng.NormFloat64()
	img := image.NewRGBA(image.Rect(0, 0, benchTile, benchTile))
	for y := range benchTile {
		for x := range benchTile {
			t := min(max(0.5+(float64(x)-7.5)*dx/8+(float64(y)-7.5)*dy/8, 0), 1)
			p := img.Pix[img.PixOffset(x, y):]
			for c := range a {
				p[c] = uint8(min(max(a[c]+(b[c]-a[c])*t+rng.NormFloat64()*8, 0), 255))
			}
			p[3] = 0xff
		}
	}
	return img
}

// BenchmarkMosaic runs the whole program in a process of its own and reports its peak memory. The first run is not
// measured. With -short it leaves the large pictures out.
func BenchmarkMosaic(b *testing.B) {
	photo, folder := benchFiles(b)
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"24megapixels", nil},
		{"96megapixels", []string{"-scale", "2"}},
		{"96megapixels-one-slice", []string{"-scale", "2", "-tile", "32", "-slices", "1"}},
	} {
		if testing.Short() && c.flags != nil {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			args := append([]string{"render", "-in", photo, "-out", filepath.Join(b.TempDir(), "out.png"), "-tile", strconv.Itoa(benchTile), "-tiles", folder}, c.flags...)
			runProgram(b, append(args[:len(args):len(args)], "-scale", "0.1"))
			peak, processor := int64(0), time.Duration(0)
			for b.Loop() {
				bytes, took := runProgram(b, args)
				peak, processor = max(peak, bytes), processor+took
			}
			b.ReportMetric(float64(peak>>20), "peak-MiB")
			b.ReportMetric(processor.Seconds()/float64(b.N), "processor-s/mosaic")
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/mosaic")
			b.ReportMetric(0, "ns/op")
			if peak > 1<<30 {
				b.Errorf("peak memory: got %d MiB, want less than 1,024", peak>>20)
			}
		})
	}
}

// peakVariable makes this test binary the program, which prints its peak memory when it ends.
const peakVariable = "MOSAIC_TEST_PEAK"

// runProgram runs the program and returns its peak memory in bytes, 0 if it is unknown, and the time of processors that it used.
func runProgram(b *testing.B, args []string) (peak int64, processor time.Duration) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), peakVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %v\n%s", args, err, out)
	}
	processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	found := regexp.MustCompile(`peak (\d+) kB`).FindSubmatch(out)
	if found == nil {
		return 0, processor // not Linux
	}
	kilobytes, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes << 10, processor
}

// printPeak prints the peak memory of this process, where the operating system says it.
func printPeak() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			cli.Say(os.Stdout, "peak %s\n", strings.TrimSpace(rest))
		}
	}
}
