package zstdcodec

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/codec"
)

const defaultMaxBody = 64 << 20

// Options configure a codec. Nil and the zero value mean the defaults.
type Options struct {
	// MaxBody is the size in bytes of the largest body that is packed and unpacked. Negative is an
	// error of every call. Defaults to 64 MiB.
	MaxBody int
}

// ErrTooLarge means that a body is larger than Options.MaxBody, or would be when unpacked.
var ErrTooLarge = errors.New("body over the limit")

// magic begins a frame.
var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

type zstdCodec[T any] struct {
	inner   codec.Codec[T]
	maxBody int
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	err     error // of the options
}

// New returns a codec that compresses what the inner codec encodes. A nil inner codec is
// codec.JSON. An invalid option is an error of every call.
func New[T any](inner codec.Codec[T], o *Options) codec.Codec[T] {
	c := &zstdCodec[T]{inner: inner, maxBody: defaultMaxBody}
	if inner == nil {
		c.inner = codec.JSON[T]()
	}
	if o != nil && o.MaxBody != 0 {
		c.maxBody = o.MaxBody
	}
	if c.maxBody < 0 {
		c.err = fmt.Errorf("zstdcodec: MaxBody %d must not be negative", c.maxBody)
		return c
	}
	var err error
	// Without a stream neither starts a goroutine.
	if c.encoder, err = zstd.NewWriter(nil); err != nil {
		c.err = fmt.Errorf("zstdcodec: %w", err)
	} else {
		// The encoder makes a channel at its first use. Made here, a codec in a variable of a package
		// serves all testing/synctest bubbles: one made in a bubble would belong to that alone.
		c.encoder.EncodeAll(nil, nil)
	}
	if c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(c.maxBody))); err != nil {
		c.err = fmt.Errorf("zstdcodec: %w", err)
	}
	return c
}

// Check returns the error of the options, or that of the inner codec: see codec.Check.
func (c *zstdCodec[T]) Check() error { return errors.Join(c.err, codec.Check(c.inner)) }

// Encode implements codec.Codec.
func (c *zstdCodec[T]) Encode(v T) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
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
func (c *zstdCodec[T]) Decode(body []byte) (T, error) {
	var none T
	switch {
	case c.err != nil:
		return none, c.err
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
