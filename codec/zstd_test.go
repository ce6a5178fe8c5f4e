package codec_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/zstdcodec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func compressed[T any](t testing.TB, inner codec.Codec[T], o *zstdcodec.Options) codec.Codec[T] {
	t.Helper()
	c, err := zstdcodec.New(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What goes in comes out, also what looks compressed.
func TestABodyComesOutAsItWentIn(t *testing.T) {
	c := compressed(t, codec.Bytes(), nil)
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")
		if rapid.Bool().Draw(t, "begins as a frame") {
			body = append([]byte{0x28, 0xb5, 0x2f, 0xfd}, body...)
		}
		body = bytes.Repeat(body, rapid.IntRange(1, 50).Draw(t, "times"))
		encoded, err := c.Encode(body)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := c.Decode(encoded)
		if err != nil || !bytes.Equal(decoded, body) {
			t.Fatalf("%d bytes: got %d bytes and error %v", len(body), len(decoded), err)
		}
	})
}

// A codec is often a variable of a package, and its first use in a test that has a bubble.
func TestACodecServesSeveralBubbles(t *testing.T) {
	c := compressed[string](t, nil, nil)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			text := strings.Repeat("abc", 1000)
			encoded, err := c.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if decoded, err := c.Decode(encoded); err != nil || decoded != text {
				t.Errorf("got %d bytes and error %v, want %d bytes", len(decoded), err, len(text))
			}
		})
	}
}

func TestOnlyWhatBecomesSmallerIsCompressed(t *testing.T) {
	c := compressed[string](t, nil, nil)
	small, err := c.Encode("a")
	if err != nil || string(small) != `"a"` {
		t.Errorf("a small body: got %q, %v; want it as JSON", small, err)
	}
	large, err := c.Encode(strings.Repeat("a", 10_000))
	if err != nil || len(large) > 100 {
		t.Errorf("a large body: got %d bytes, %v; want it compressed", len(large), err)
	}
}

// A message that was sent before the program began to compress.
func TestABodyThatIsNotCompressedIsRead(t *testing.T) {
	got, err := compressed[string](t, nil, nil).Decode([]byte(`"old"`))
	if err != nil || got != "old" {
		t.Errorf("got %q, %v; want old", got, err)
	}
}

// bomb returns a frame that unpacks to n zeros, with or without saying so in its header.
func bomb(t testing.TB, n int, saysSo bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if saysSo {
		return w.EncodeAll(make([]byte, n), nil)
	}
	for range n / 4096 {
		if _, err := w.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// O-05.
func TestABombIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("makes large bodies")
	}
	const limit = 1 << 20
	c := compressed(t, codec.Bytes(), &zstdcodec.Options{MaxBody: limit})
	half := bomb(t, limit/2, true)
	for name, body := range map[string][]byte{
		"says its size":      bomb(t, 64*limit, true),
		"says no size":       bomb(t, 64*limit, false),
		"a byte too large":   bomb(t, limit+1, true),
		"three small frames": bytes.Join([][]byte{half, half, half}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if len(body) > 1<<16 {
				t.Fatalf("the bomb has %d bytes: it is none", len(body))
			}
			if _, err := c.Decode(body); !errors.Is(err, zstdcodec.ErrTooLarge) {
				t.Errorf("got error %v, want ErrTooLarge", err)
			}
		})
	}
	if got, err := c.Decode(bomb(t, limit, true)); err != nil || len(got) != limit {
		t.Errorf("exactly the limit: got %d bytes, %v", len(got), err)
	}
}

func TestWhatIsOverTheLimitIsNotSent(t *testing.T) {
	c := compressed(t, codec.Bytes(), &zstdcodec.Options{MaxBody: 10})
	if _, err := c.Encode(make([]byte, 11)); !errors.Is(err, zstdcodec.ErrTooLarge) {
		t.Errorf("Encode: got error %v, want ErrTooLarge", err)
	}
	if _, err := c.Decode(make([]byte, 11)); !errors.Is(err, zstdcodec.ErrTooLarge) {
		t.Errorf("Decode: got error %v, want ErrTooLarge", err)
	}
}

func TestABrokenFrameIsAnError(t *testing.T) {
	c := compressed(t, codec.Bytes(), nil)
	good := bomb(t, 10_000, true)
	for name, body := range map[string][]byte{
		"cut off": good[:len(good)-3],
		"damaged": append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"rubbish": {0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff},
	} {
		if _, err := c.Decode(body); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func TestANegativeLimitIsRefused(t *testing.T) {
	c, err := zstdcodec.New(codec.Bytes(), &zstdcodec.Options{MaxBody: -1})
	if c != nil || err == nil || !strings.Contains(err.Error(), "MaxBody -1") {
		t.Errorf("got %v, %v; want an error with the option", c, err)
	}
}

// FuzzDecode looks for inputs that unpack to more than the limit or panic.
func FuzzZstdDecode(f *testing.F) {
	const limit = 1 << 16
	f.Add([]byte("plain"))
	f.Add(bomb(f, limit, true))
	f.Add(bomb(f, 4*limit, false))
	c := compressed(f, codec.Bytes(), &zstdcodec.Options{MaxBody: limit})
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := c.Decode(body); err == nil && len(got) > limit {
			t.Errorf("got %d bytes, the limit is %d", len(got), limit)
		}
	})
}
