//go:build unix

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
	"syscall"
	"testing"
)

// The child processes of TestPeakMemory learn from these what to do.
const (
	taskVariable = "MILLRACE_PICTURE_MEMORY_TASK" // "write" or "read"
	pathVariable = "MILLRACE_PICTURE_MEMORY_PATH"
)

var whole = flag.Bool("whole", false, "decode pictures of 50 megapixels of every kind in TestPeakMemory, not of 5 of the two most frequent ones")

// TestPeakMemory decodes, measures, writes and composes pictures of noise, the worst case, in a
// process of its own and asks the operating system for the peak. Of the largest pictures it does with
//
//	go test ./examples/mosaic/picture -run TestPeakMemory -v -whole
//
// Another child writes the picture: at its birth a process inherits the peak of
// its parent, so this one must stay small.
func TestPeakMemory(t *testing.T) {
	t.Parallel()
	path := os.Getenv(pathVariable)
	switch os.Getenv(taskVariable) {
	case "write":
		if err := writeLarge(path); err != nil {
			t.Fatal(err)
		}
		return
	case "read":
		if err := digest(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	if testing.Short() || raceEnabled {
		t.Skip("needs large pictures")
	}
	limit := int64(256 << 20)
	dir := t.TempDir()
	names := []string{"rgb.png", "420.jpg"}
	if *whole {
		limit = 1 << 30
		names = append(names, "rgba16.png")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, name)
			child(t, "write", path)
			state := child(t, "read", path)
			usage := state.SysUsage().(*syscall.Rusage)
			peak := usage.Maxrss << 10 // kilobytes on Linux
			if runtime.GOOS == "darwin" {
				peak = usage.Maxrss
			}
			t.Logf("peak %d MiB, %v of processor time", peak>>20, state.UserTime())
			if peak > limit {
				t.Errorf("peak: got %d MiB, want at most %d", peak>>20, limit>>20)
			}
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
	}
}

func child(t *testing.T, task, path string) *os.ProcessState {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeakMemory$", fmt.Sprintf("-whole=%t", *whole))
	cmd.Env = append(os.Environ(), taskVariable+"="+task, pathVariable+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: got %v\n%s; want no error", task, err, out)
	}
	return cmd.ProcessState
}

// writeLarge writes noise.
func writeLarge(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	r := image.Rect(0, 0, 2560, 2000)
	if *whole {
		r = image.Rect(0, 0, 8000, 6250)
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
