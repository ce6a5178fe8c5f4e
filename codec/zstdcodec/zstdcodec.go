package zstdcodec

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
)

const defaultMaxBody = 64 << 20

// Options configure a codec. Nil and the zero value mean the defaults.
type Options struct {
	// MaxBody is the size in bytes of the largest body that is packed and unpacked. Negative is an
	// error. Defaults to 64 MiB.
	MaxBody int
}

// ErrTooLarge means that a body is larger than Options.MaxBody, or would be when unpacked.
var ErrTooLarge = errors.New("body over the limit")

// magic begins a frame.
var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Codec compresses bodies. It implements [codec.Codec], and is safe for concurrent use. Create one
// with [New].
type Codec[T any] struct {
	_ [0]sync.Mutex // go vet reports copies

	inner   codec.Codec[T]
	maxBody int
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// New returns a codec that compresses what the inner codec encodes. A nil inner codec is
// codec.JSON. The error is that of an invalid option.
func New[T any](inner codec.Codec[T], o *Options) (*Codec[T], error) {
	c := &Codec[T]{inner: inner, maxBody: defaultMaxBody}
	if hook.IsNil(inner) {
		c.inner = codec.JSON[T]()
	}
	if o != nil && o.MaxBody != 0 {
		c.maxBody = o.MaxBody
	}
	if c.maxBody < 0 {
		return nil, fmt.Errorf("compress bodies: Options.MaxBody %d must not be negative: leave it out for %d", c.maxBody, defaultMaxBody)
	}
	var err error
	// Without a stream neither starts a goroutine.
	if c.encoder, err = zstd.NewWriter(nil); err != nil {
		return nil, fmt.Errorf("compress bodies: %w", err)
	}
	// The encoder makes a channel at its first use. Made here, a codec in a variable of a package
	// serves all testing/synctest bubbles: one made in a bubble would belong to that alone.
	c.encoder.EncodeAll(nil, nil)
	if c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(c.maxBody))); err != nil {
		return nil, fmt.Errorf("compress bodies: %w", err)
	}
	return c, nil
}

// Check returns the error of an inner codec that would lose every job. Listeners ask for it before
// they run.
func (c *Codec[T]) Check() error { return envelope.CheckCodec(c.inner) }

// Encode implements codec.Codec.
func (c *Codec[T]) Encode(v T) ([]byte, error) {
	body, err := c.inner.Encode(v)
	if err != nil {
		return nil, err
	}
	if len(body) > c.maxBody {
		return nil, fmt.Errorf("compress a body of %d bytes: %w of %d", len(body), ErrTooLarge, c.maxBody)
	}
	packed := c.encoder.EncodeAll(body, nil)
	if len(packed)/3*4 >= len(body) && !bytes.HasPrefix(body, magic) {
		return body, nil
	}
	return packed, nil
}

// Decode implements codec.Codec.
func (c *Codec[T]) Decode(body []byte) (T, error) {
	var none T
	switch {
	case bytes.HasPrefix(body, magic):
		unpacked, err := c.decoder.DecodeAll(body, nil)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return none, fmt.Errorf("unpack a body of %d bytes: %w of %d: %w", len(body), ErrTooLarge, c.maxBody, err)
		}
		if err != nil {
			return none, fmt.Errorf("unpack a body of %d bytes: %w", len(body), err)
		}
		body = unpacked
	case len(body) > c.maxBody:
		return none, fmt.Errorf("decode a body of %d bytes: %w of %d", len(body), ErrTooLarge, c.maxBody)
	}
	return c.inner.Decode(body)
}
