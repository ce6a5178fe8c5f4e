package codec_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

type order struct {
	ID    string
	Count int
	Note  *string
}

// PM-14: encode and decode are inverses.
func TestEncodeAndDecodeAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		note := rapid.String().Draw(t, "note")
		want := order{ID: rapid.String().Draw(t, "id"), Count: rapid.Int().Draw(t, "count"), Note: &note}
		body, err := codec.JSON[order]().Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		format := rapid.SampledFrom([]codec.Format{codec.Auto, codec.Envelope, codec.Plain, codec.Base64}).Draw(t, "format")
		text, err := envelope.Seal(envelope.Head{}, body, format)
		if err != nil {
			t.Fatal(err)
		}
		for _, reader := range []codec.Format{format, codec.Auto} {
			_, opened, _, err := envelope.Open(text, reader)
			if err != nil {
				t.Fatal(err)
			}
			got, err := codec.JSON[order]().Decode(opened)
			if err != nil {
				t.Fatalf("%v, read as %v: got error %v, want nil", format, reader, err)
			}
			// JSON replaces what is not UTF-8, so compare what JSON can hold.
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(got)
			if !bytes.Equal(a, b) {
				t.Fatalf("got %s, want %s", b, a)
			}
		}
	})
}

// PM-13: the errors of invalid bodies name the cause.
func TestErrorsOfInvalidBodiesNameTheCause(t *testing.T) {
	for body, want := range map[string]string{
		"":          "empty",
		"{":         "unexpected EOF",
		"[1]":       "cannot unmarshal",
		`{} {}`:     "more than one value",
		"not json":  "invalid character",
		`{"ID": 7}`: "cannot unmarshal",
	} {
		_, err := codec.JSON[order]().Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%q): got error %v, want %q in it", body, err, want)
		}
	}
	if _, err := codec.JSON[chan int]().Encode(nil); err == nil {
		t.Error("Encode of a channel: got no error, want one")
	}
}

func TestBytesAndTextPassThrough(t *testing.T) {
	b, _ := codec.Bytes().Encode([]byte{0, 1, 255})
	if got, err := codec.Bytes().Decode(b); err != nil || !bytes.Equal(got, []byte{0, 1, 255}) {
		t.Errorf("bytes: got %v, %v; want [0 1 255]", got, err)
	}
	b, _ = codec.Text().Encode("grüß dich")
	if got, err := codec.Text().Decode(b); err != nil || got != "grüß dich" {
		t.Errorf("text: got %q, %v; want \"grüß dich\"", got, err)
	}
}

// L-41: decoding allocates the value, and does not copy the body in pieces that grow.
func TestDecodingALargeBodyDoesNotCopyIt(t *testing.T) {
	c := codec.JSON[order]()
	body, err := c.Encode(order{ID: strings.Repeat("x", 64<<10)})
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if _, err := c.Decode(body); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("got %v allocations for a body of 64 KiB, want at most 8", n)
	}
}
