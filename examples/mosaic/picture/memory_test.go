//go:build linux

package picture

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/suitetest"
)

// pathVariable names the picture that a child process of TestPeakMemory reads.
const pathVariable = "MILLRACE_PICTURE_MEMORY_PATH"

var whole = flag.Bool("whole", false, "decode pictures of 50 megapixels of every kind in TestPeakMemory, not of 5 of the two most frequent ones")

// TestPeakMemory decodes, measures, writes and composes pictures of noise, the worst case, in a
// process of its own, which reports its peak. Of the largest pictures it does with
//
//	go test ./examples/mosaic/picture -run TestPeakMemory -v -whole
func TestPeakMemory(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(pathVariable); path != "" {
		if err := digest(path); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", status)
		return
	}
	if testing.Short() || raceEnabled {
		t.Skip("needs large pictures")
	}
	limit := int64(160 << 20)
	dir := t.TempDir()
	names := []string{"420.jpg", "rgb.png"}[:suitetest.Size(1, 2)]
	if *whole {
		limit = 1 << 30
		names = append(names, "rgba16.png")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, name)
			if err := writeLarge(path); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestPeakMemory$")
			cmd.Env = append(os.Environ(), pathVariable+"="+path)
			status, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("got %v\n%s; want no error", err, status)
			}
			// Not the peak of rusage, which a process inherits from its parent at its birth.
			_, line, _ := strings.Cut(string(status), "\nVmHWM:")
			var peak int64
			if _, err := fmt.Sscan(line, &peak); err != nil {
				t.Fatalf("the peak in %q: %v", status, err)
			}
			peak <<= 10
			t.Logf("peak %d MiB", peak>>20)
			if peak > limit {
				t.Errorf("peak: got %d MiB, want at most %d", peak>>20, limit>>20)
			}
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// writeLarge writes noise.
func writeLarge(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	r := image.Rect(0, 0, 2560, 2000)
	if *whole {
		r = image.Rect(0, 0, 8000, 6240)
	}
	quick := png.Encoder{CompressionLevel: png.NoCompression}
	switch filepath.Base(path) {
	case "rgb.png":
		img := image.NewNRGBA(r)
		noisy(1, img.Pix)
		for i := 3; i < len(img.Pix); i += 4 {
			img.Pix[i] = 0xff
		}
		err = quick.Encode(f, img)
	case "rgba16.png":
		img := image.NewNRGBA64(r)
		noisy(1, img.Pix)
		err = quick.Encode(f, img)
	case "420.jpg":
		img := image.NewYCbCr(r, image.YCbCrSubsampleRatio420)
		noisy(1, img.Y, img.Cb, img.Cr)
		var b bytes.Buffer
		if err = jpeg.Encode(&b, img, nil); err == nil {
			// Lying on its side, to take the slowest way.
			_, err = f.Write(jpegWithEXIF(b.Bytes(), tiff(6)))
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// digest does with a file what the mosaic program does.
func digest(path string) error {
	LimitMemory()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	img, err := Decode(f)
	if err != nil {
		return err
	}
	r := img.Bounds()
	r.Max.X, r.Max.Y = r.Max.X&^15, r.Max.Y&^15
	if _, err := Average(img, r, r.Dx()/16, r.Dy()/16); err != nil {
		return err
	}
	name := path + ".slice"
	slice, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	if err := Encode(slice, img); err != nil {
		return err
	}
	if err := slice.Close(); err != nil {
		return err
	}
	open := func(int) (io.ReadCloser, error) { return os.Open(name) }
	if err := Compose(io.Discard, r.Size(), 1, open); err != nil {
		return err
	}
	runtime.KeepAlive(img) // a program may well hold on to it
	return nil
}
