package codec_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue/driver"
)

// The formats are those four, by name as text, and no others.
func TestFormatsAreTextAndNoOthersExist(t *testing.T) {
	for format, want := range map[codec.Format]string{codec.Auto: "auto", codec.Envelope: "envelope", codec.Plain: "plain", codec.Base64: "base64"} {
		text, err := format.MarshalText()
		if err != nil || string(text) != want || format.Check() != nil {
			t.Errorf("%v: text %q, %v, check %v; want %q", format, text, err, format.Check(), want)
		}
		var got codec.Format
		if err := got.UnmarshalText([]byte(want)); err != nil || got != format {
			t.Errorf("%q: read as %v, %v; want %v", want, got, err, format)
		}
		if head := format == codec.Auto || format == codec.Envelope; format.HasHead() != head {
			t.Errorf("%v: has a head: %v, want %v", format, format.HasHead(), head)
		}
	}
	for _, unknown := range []codec.Format{-1, 4} {
		if unknown.Check() == nil {
			t.Errorf("%v is accepted, want an error", unknown)
		}
		if text, err := unknown.MarshalText(); err == nil {
			t.Errorf("%v has the text %q, want an error", unknown, text)
		}
	}
	var f codec.Format
	if err := f.UnmarshalText([]byte("xml")); err == nil {
		t.Errorf("xml was read as %v, want an error", f)
	}
}

// Base64 may have blanks around it.
func TestBlanksAroundBase64AreIgnored(t *testing.T) {
	text := " \t" + base64.StdEncoding.EncodeToString([]byte(`{"ID":"7"}`)) + " \r\n"
	for _, format := range []codec.Format{codec.Base64, codec.Auto} {
		if _, body, was, err := codec.Open(text, format); err != nil || string(body) != `{"ID":"7"}` || was != codec.Base64 {
			t.Errorf("as %v: got %q in %v, %v; want the body in base64", format, body, was, err)
		}
	}
}

// JSON is compact, ends with the value, and leaves to XML what XML escapes.
func TestJSONIsNoLongerThanItMustBe(t *testing.T) {
	body, err := codec.JSON[string]().Encode("<a & b>")
	if want := `"<a & b>"`; err != nil || string(body) != want {
		t.Errorf("got %q, %v; want %q", body, err, want)
	}
}

// What has no envelope's mark is not opened as one, however much it resembles one.
func TestOnlyTheMarkMakesAnEnvelope(t *testing.T) {
	for _, text := range []string{"MILLRACE/1?n=1\nbody", "millrace 1?n=1\nbody", "xmillrace/1?n=1\nbody"} {
		if h, body, _, err := codec.Open(text, codec.Envelope); err == nil {
			t.Errorf("%q: opened as %+v with body %q, want an error", text, h, body)
		}
		if _, body, was, err := codec.Open(text, codec.Auto); err != nil || string(body) != text || was != codec.Plain {
			t.Errorf("%q: opened as %q in %v, %v; want it as it is, plain", text, body, was, err)
		}
	}
}

// A body that XML carries is not in Base64, which is a third larger.
func TestABodyThatXMLCarriesIsSealedAsItIs(t *testing.T) {
	for _, body := range []string{"", `{"ID":"7"}`, "a\r\nb\tc", "\u00a0ü€😀", "\uFFFD", "\x7f", "\uD7FF\uE000\uFFFC"} {
		text, err := codec.Seal(codec.Head{ID: "7"}, []byte(body), codec.Envelope)
		if want := "millrace/1?id=7\n" + body; err != nil || text != want {
			t.Errorf("%q: sealed as %q, %v; want %q", body, text, err, want)
		}
	}
}

// Values of the head may hold the characters that separate them, and parameters of a later
// release are kept without the empty ones between them.
func TestTheLineOfAHeadKeepsItsValues(t *testing.T) {
	for _, value := range []string{"order 7", "a+b", "a&b=c", "50%", "a\nb", "?", "ü"} {
		want := codec.Head{ID: value, Poison: value, Claim: value}
		text, err := codec.Seal(want, []byte("body"), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if got, body, _, err := codec.Open(text, codec.Envelope, codec.Claims); err != nil || got != want || string(body) != "body" {
			t.Errorf("%q: got %+v, %q, %v; want %+v", text, got, body, err, want)
		}
	}
	h, body, _, err := codec.Open("millrace/1?&zz=1&&id=7&&yy&\nbody", codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := codec.Seal(h, body, codec.Envelope); err != nil || text != "millrace/1?id=7&zz=1&yy\nbody" {
		t.Errorf("sealed again as %q, %v; want the parameters without the empty ones", text, err)
	}
}

// What is left of the room is exactly what the record does not use.
func TestTheRoomLeftIsWhatTheRecordDoesNotUse(t *testing.T) {
	size := func(h codec.Head) int {
		text, err := codec.Seal(h, []byte("body"), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		return driver.RequestSize(text)
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 1<<31-1))
		h := codec.Head{
			ID: "7", Attempts: count.Draw(t, "attempts"), Starts: count.Draw(t, "starts"), Settled: int64(count.Draw(t, "settled")),
			Poison: rapid.SampledFrom([]string{"", "lost", "undecodable"}).Draw(t, "poison"),
		}
		if got, want := h.Room(), codec.Room-(size(h)-size(codec.Head{ID: "7"})); got != want {
			t.Fatalf("%+v: room for %d bytes, want %d", h, got, want)
		}
	})
	if forged := (codec.Head{Poison: strings.Repeat("x", 1000)}); forged.Room() != 0 {
		t.Errorf("a forged record leaves room for %d bytes, want 0", forged.Room())
	}
}
