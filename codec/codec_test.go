package codec_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
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
		text, err := codec.Seal(codec.Head{}, body, format)
		if err != nil {
			t.Fatal(err)
		}
		for _, reader := range []codec.Format{format, codec.Auto} {
			_, opened, _, err := codec.Open(text, reader)
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

func TestAutoReadsMessagesOfOtherClients(t *testing.T) {
	for _, c := range []struct {
		text, wantBody string
		wantFormat     codec.Format
	}{
		{`{"ID":"7"}`, `{"ID":"7"}`, codec.Plain},
		{base64.StdEncoding.EncodeToString([]byte(`{"ID":"7"}`)), `{"ID":"7"}`, codec.Base64},
		{base64.StdEncoding.EncodeToString([]byte(`{"ID":"7"}`)) + "\n", `{"ID":"7"}`, codec.Base64},
		{"1234", "1234", codec.Plain}, // valid JSON comes first, though it is valid Base64 too
		{"just words", "just words", codec.Plain},
		{"aGVsbG8=", "aGVsbG8=", codec.Plain}, // Base64, but not of JSON
		{"", "", codec.Plain},
		{"PGEvPg==", "<a/>", codec.Base64},
		{"PGE+", "PGE+", codec.Plain}, // Base64 of what only begins like XML
		{"\uFEFF{}", "\uFEFF{}", codec.Plain},
		{"77u/e30=", "\uFEFF{}", codec.Base64},
	} {
		_, body, format, err := codec.Open(c.text, codec.Auto)
		if err != nil || string(body) != c.wantBody || format != c.wantFormat {
			t.Errorf("Open(%q): got %q, %v, %v; want %q, %v", c.text, body, format, err, c.wantBody, c.wantFormat)
		}
	}
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
	if _, _, _, err := codec.Open("no base64!", codec.Base64); err == nil {
		t.Error("Open of invalid Base64: got no error, want one")
	}
	if _, _, _, err := codec.Open("", codec.Format(9)); err == nil {
		t.Error("Open with an unknown format: got no error, want one")
	}
	if _, err := codec.Seal(codec.Head{}, nil, codec.Format(9)); err == nil {
		t.Error("Seal with an unknown format: got no error, want one")
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

// FuzzOpen checks that no text makes Open panic, and that it reads only Base64 of JSON or XML
// as Base64.
func FuzzOpen(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add("eyJhIjoxfQ==")
	f.Add("\x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		_, body, format, err := codec.Open(text, codec.Auto)
		if format == codec.Envelope {
			return // FuzzEnvelope
		}
		if err != nil {
			t.Fatal(err)
		}
		switch format {
		case codec.Plain:
			if string(body) != text {
				t.Fatalf("plain: got %q, want %q", body, text)
			}
		case codec.Base64:
			if !json.Valid(bytes.TrimPrefix(body, []byte("\uFEFF"))) && !isDocument(body) {
				t.Fatalf("%q: got Base64 of %q, want JSON or XML", text, body)
			}
			if want, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err != nil || !bytes.Equal(body, want) {
				t.Fatalf("%q: got %q, want %q, %v", text, body, want, err)
			}
		default:
			t.Fatalf("format: got %v, want plain or base64", format)
		}
	})
}

// isDocument reports whether the XML codec would decode the body as some type.
func isDocument(body []byte) bool {
	_, err := codec.XML[struct{}]().Decode(body)
	return err == nil
}

func ExampleOpen() {
	for _, text := range []string{`{"ID":"7"}`, "eyJJRCI6IjcifQ=="} {
		_, body, format, _ := codec.Open(text, codec.Auto)
		fmt.Println(string(body), format)
	}
	// Output:
	// {"ID":"7"} plain
	// {"ID":"7"} base64
}

// With AcceptForeign an envelope is recognized whatever the format, and a text that only looks like one
// is read by the format.
func TestOpenAdoptedReadsTheMarkFirst(t *testing.T) {
	const envelope = "millrace/1?n=2\n{}"
	for _, c := range []struct {
		text       string
		format     codec.Format
		wantBody   string // "" for an error
		wantFormat codec.Format
	}{
		{envelope, codec.Auto, "{}", codec.Envelope},
		{envelope, codec.Envelope, "{}", codec.Envelope},
		{envelope, codec.Plain, "{}", codec.Envelope},
		{envelope, codec.Base64, "{}", codec.Envelope},
		{"e30=", codec.Base64, "{}", codec.Base64},
		{"e30=", codec.Plain, "e30=", codec.Plain},
		{"millrace/docs", codec.Plain, "millrace/docs", codec.Plain},
		{"millrace/1?n=x\n{}", codec.Plain, "millrace/1?n=x\n{}", codec.Plain},
		{"millrace/1?n=x\n{}", codec.Base64, "", codec.Base64},
		{"{}", codec.Envelope, "", codec.Envelope},
		{"millrace/2?n=1\n{}", codec.Plain, "", codec.Envelope},
	} {
		h, body, format, err := codec.OpenForeign(c.text, c.format)
		if string(body) != c.wantBody || (err != nil) != (c.wantBody == "") || format != c.wantFormat {
			t.Errorf("%q as %v: got %q, %v, %v; want %q, %v", c.text, c.format, body, format, err, c.wantBody, c.wantFormat)
		}
		if c.text == envelope && h.Attempts != 2 {
			t.Errorf("%q as %v: got head %+v, want Attempts 2", c.text, c.format, h)
		}
	}
	if _, _, _, err := codec.OpenForeign("millrace/2?n=1\n{}", codec.Plain); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("newer envelope: got error %v, want ErrNewer", err)
	}
}
