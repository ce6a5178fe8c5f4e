package internal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

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
		_, body, format, err := envelope.Open(c.text, codec.Auto)
		if err != nil || string(body) != c.wantBody || format != c.wantFormat {
			t.Errorf("Open(%q): got %q, %v, %v; want %q, %v", c.text, body, format, err, c.wantBody, c.wantFormat)
		}
	}
}

// What is not Base64 is not opened as such.
func TestBrokenBase64IsAnError(t *testing.T) {
	if _, _, _, err := envelope.Open("no base64!", codec.Base64); err == nil {
		t.Error("got no error, want one")
	}
}

// FuzzOpen checks that no text makes Open panic, and that it reads only Base64 of JSON or XML
// as Base64.
func FuzzOpen(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add("eyJhIjoxfQ==")
	f.Add("\x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		_, body, format, err := envelope.Open(text, codec.Auto)
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

// With AcceptForeign an envelope is recognized whatever the format, and a text that only looks like one
// is read by the format.
func TestOpenForeignReadsTheMarkFirst(t *testing.T) {
	const sealed = "millrace/1?n=2\n{}"
	for _, c := range []struct {
		text       string
		format     codec.Format
		wantBody   string // "" for an error
		wantFormat codec.Format
	}{
		{sealed, codec.Auto, "{}", codec.Envelope},
		{sealed, codec.Envelope, "{}", codec.Envelope},
		{sealed, codec.Plain, "{}", codec.Envelope},
		{sealed, codec.Base64, "{}", codec.Envelope},
		{"e30=", codec.Base64, "{}", codec.Base64},
		{"e30=", codec.Plain, "e30=", codec.Plain},
		{"millrace/docs", codec.Plain, "millrace/docs", codec.Plain},
		{"millrace/1?n=x\n{}", codec.Plain, "millrace/1?n=x\n{}", codec.Plain},
		{"millrace/1?n=x\n{}", codec.Base64, "", codec.Base64},
		{"{}", codec.Envelope, "", codec.Envelope},
		{"millrace/2?n=1\n{}", codec.Plain, "", codec.Envelope},
	} {
		h, body, format, err := envelope.OpenForeign(c.text, c.format)
		if string(body) != c.wantBody || (err != nil) != (c.wantBody == "") || format != c.wantFormat {
			t.Errorf("%q as %v: got %q, %v, %v; want %q, %v", c.text, c.format, body, format, err, c.wantBody, c.wantFormat)
		}
		if c.text == sealed && h.Attempts != 2 {
			t.Errorf("%q as %v: got head %+v, want Attempts 2", c.text, c.format, h)
		}
	}
	if _, _, _, err := envelope.OpenForeign("millrace/2?n=1\n{}", codec.Plain); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("newer envelope: got error %v, want ErrNewer", err)
	}
}
