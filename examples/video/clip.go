package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
)

// clip is a video as cameras of this example make them: grey, without sound.
type clip struct {
	width, height int
	frames        [][]byte // a byte for each pixel, row after row
}

// maxBytes bounds what a worker reads of an upload.
const maxBytes = 64 << 20

// film returns a clip with a bright square that moves over a background. Its content depends on the seed alone.
func film(width, height, frames int, seed uint64) clip {
	random := rand.New(rand.NewPCG(seed, 0))
	background := make([]byte, width*height)
	shade := byte(40 + random.IntN(80))
	for i := range background {
		background[i] = shade + byte(8*(i/width)/height)
	}
	c := clip{width: width, height: height}
	side := max(min(width, height)/4, 1)
	left, top := random.IntN(width), random.IntN(height)
	for n := range frames {
		frame := bytes.Clone(background)
		for y := range side {
			row := (top + n + y) % height * width
			for x := range side {
				frame[row+(left+2*n+x)%width] = 220
			}
		}
		c.frames = append(c.frames, frame)
	}
	return c
}

// encode returns the clip as it is uploaded: a line that says its size, and the frames.
func (c clip) encode() []byte {
	b := fmt.Appendf(nil, "clip %d %d %d\n", c.width, c.height, len(c.frames))
	for _, frame := range c.frames {
		b = append(b, frame...)
	}
	return b
}

var errNoClip = errors.New("it is not a clip")

// parseClip reads an upload.
func parseClip(upload []byte) (clip, error) {
	line, pixels, found := bytes.Cut(upload, []byte("\n"))
	var c clip
	var frames int
	if _, err := fmt.Sscanf(string(line), "clip %d %d %d", &c.width, &c.height, &frames); err != nil || !found {
		return clip{}, fmt.Errorf("%w: it begins with %.20q", errNoClip, line)
	}
	if min(c.width, c.height, frames) < 1 || max(c.width, c.height, frames) > maxBytes {
		return clip{}, fmt.Errorf("%w: %d frames of %d×%d pixels", errNoClip, frames, c.width, c.height)
	}
	if c.height > maxBytes/c.width {
		return clip{}, fmt.Errorf("%w: frames of %d×%d pixels", errNoClip, c.width, c.height)
	}
	size := c.width * c.height
	if len(pixels)%size != 0 || len(pixels)/size != frames {
		return clip{}, fmt.Errorf("%w: %d bytes for %d frames of %d×%d pixels", errNoClip, len(pixels), frames, c.width, c.height)
	}
	for n := range frames {
		c.frames = append(c.frames, pixels[n*size:(n+1)*size])
	}
	return c, nil
}

// format is one of the forms in which viewers get a video.
type format struct {
	name   string
	encode func(clip) ([]byte, error)
}

// formats are made of every video.
var formats = []format{
	{"still.png", still},
	{"half.delta", func(c clip) ([]byte, error) { return half(c).delta(), nil }},
	{"full.delta", func(c clip) ([]byte, error) { return c.delta(), nil }},
}

// still returns the frame in the middle as a picture.
func still(c clip) ([]byte, error) {
	picture := &image.Gray{Pix: c.frames[len(c.frames)/2], Stride: c.width, Rect: image.Rect(0, 0, c.width, c.height)}
	var b bytes.Buffer
	err := png.Encode(&b, picture)
	return b.Bytes(), err
}

// half returns the clip with half the width and height; each pixel is the average of four.
func half(c clip) clip {
	small := clip{width: max(c.width/2, 1), height: max(c.height/2, 1)}
	for _, frame := range c.frames {
		f := make([]byte, 0, small.width*small.height)
		for y := range small.height {
			for x := range small.width {
				right, below := min(2*x+1, c.width-1), min(2*y+1, c.height-1)
				sum := int(frame[2*y*c.width+2*x]) + int(frame[2*y*c.width+right]) + int(frame[below*c.width+2*x]) + int(frame[below*c.width+right])
				f = append(f, byte(sum/4))
			}
		}
		small.frames = append(small.frames, f)
	}
	return small
}

// delta returns the clip with each frame as its difference to the one before, in runs of equal bytes: two
// bytes for a run of up to 255. Most of a frame is as it was, so this is much less.
func (c clip) delta() []byte {
	b := fmt.Appendf(nil, "delta %d %d %d\n", c.width, c.height, len(c.frames))
	before := make([]byte, c.width*c.height)
	for _, frame := range c.frames {
		for i := 0; i < len(frame); {
			value, run := frame[i]-before[i], 1
			for i+run < len(frame) && run < 255 && frame[i+run]-before[i+run] == value {
				run++
			}
			b = append(b, byte(run), value)
			i += run
		}
		before = frame
	}
	return b
}
