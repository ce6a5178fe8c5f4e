package internal_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

// The formats are those four, and no others.
func TestThereAreFourFormats(t *testing.T) {
	for f, head := range map[codec.Format]bool{codec.Auto: true, codec.Envelope: true, codec.Plain: false, codec.Base64: false} {
		if err := envelope.CheckFormat(f); err != nil || envelope.HasHead(f) != head {
			t.Errorf("%q: got %v, and a head: %v; want no error, and %v", f, err, envelope.HasHead(f), head)
		}
	}
	for _, unknown := range []codec.Format{"auto", "xml", "Plain", " "} {
		if err := envelope.CheckFormat(unknown); err == nil || !strings.Contains(err.Error(), strconv.Quote(string(unknown))) {
			t.Errorf("%q: got %v, want an error that names it", unknown, err)
		}
		if _, err := envelope.Seal(envelope.Head{}, nil, unknown); err == nil {
			t.Errorf("sealed as %q, want an error", unknown)
		}
		if _, _, _, err := envelope.Open("", unknown); err == nil {
			t.Errorf("opened as %q, want an error", unknown)
		}
	}
}

// Base64 may have blanks around it.
func TestBlanksAroundBase64AreIgnored(t *testing.T) {
	text := " \t" + base64.StdEncoding.EncodeToString([]byte(`{"ID":"7"}`)) + " \r\n"
	for _, format := range []codec.Format{codec.Base64, codec.Auto} {
		if _, body, was, err := envelope.Open(text, format); err != nil || string(body) != `{"ID":"7"}` || was != codec.Base64 {
			t.Errorf("as %v: got %q in %v, %v; want the body in base64", format, body, was, err)
		}
	}
}

// What has no envelope's mark is not opened as one, however much it resembles one.
func TestOnlyTheMarkMakesAnEnvelope(t *testing.T) {
	for _, text := range []string{"MILLRACE/1?n=1\nbody", "millrace 1?n=1\nbody", "xmillrace/1?n=1\nbody"} {
		if h, body, _, err := envelope.Open(text, codec.Envelope); err == nil {
			t.Errorf("%q: opened as %+v with body %q, want an error", text, h, body)
		}
		if _, body, was, err := envelope.Open(text, codec.Auto); err != nil || string(body) != text || was != codec.Plain {
			t.Errorf("%q: opened as %q in %v, %v; want it as it is, plain", text, body, was, err)
		}
	}
}

// A body that XML carries is not in Base64, which is a third larger.
func TestABodyThatXMLCarriesIsSealedAsItIs(t *testing.T) {
	for _, body := range []string{"", `{"ID":"7"}`, "a\r\nb\tc", "\u00a0ü€😀", "\uFFFD", "\x7f", "\uD7FF\uE000\uFFFC"} {
		text, err := envelope.Seal(envelope.Head{ID: "7"}, []byte(body), codec.Envelope)
		if want := "millrace/1?id=7\n" + body; err != nil || text != want {
			t.Errorf("%q: sealed as %q, %v; want %q", body, text, err, want)
		}
	}
}

// Values of the head may hold the characters that separate them, and parameters of a later
// release are kept without the empty ones between them.
func TestTheLineOfAHeadKeepsItsValues(t *testing.T) {
	for _, value := range []string{"order 7", "a+b", "a&b=c", "50%", "a\nb", "?", "ü"} {
		want := envelope.Head{ID: value, Poison: value, Claim: value}
		text, err := envelope.Seal(want, []byte("body"), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if got, body, _, err := envelope.Open(text, codec.Envelope, envelope.Claims); err != nil || got != want || string(body) != "body" {
			t.Errorf("%q: got %+v, %q, %v; want %+v", text, got, body, err, want)
		}
	}
	h, body, _, err := envelope.Open("millrace/1?&zz=1&&id=7&&yy&\nbody", codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := envelope.Seal(h, body, codec.Envelope); err != nil || text != "millrace/1?id=7&zz=1&yy\nbody" {
		t.Errorf("sealed again as %q, %v; want the parameters without the empty ones", text, err)
	}
}

// What is left of the room is exactly what the record does not use.
func TestTheRoomLeftIsWhatTheRecordDoesNotUse(t *testing.T) {
	size := func(h envelope.Head) int {
		text, err := envelope.Seal(h, []byte("body"), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		return driver.RequestSize(text)
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 1<<31-1))
		h := envelope.Head{
			ID: "7", Attempts: count.Draw(t, "attempts"), Starts: count.Draw(t, "starts"), Settled: int64(count.Draw(t, "settled")),
			Poison: rapid.SampledFrom([]string{"", "lost", "undecodable"}).Draw(t, "poison"),
		}
		if got, want := h.Room(), envelope.Room-(size(h)-size(envelope.Head{ID: "7"})); got != want {
			t.Fatalf("%+v: room for %d bytes, want %d", h, got, want)
		}
	})
	if forged := (envelope.Head{Poison: strings.Repeat("x", 1000)}); forged.Room() != 0 {
		t.Errorf("a forged record leaves room for %d bytes, want 0", forged.Room())
	}
}
