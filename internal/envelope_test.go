package internal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

func head(t *rapid.T) envelope.Head {
	text := rapid.OneOf(rapid.Just(""), rapid.StringN(0, 40, -1))
	h := envelope.Head{
		ID: text.Draw(t, "id"), ContentType: text.Draw(t, "content type"),
		Attempts: rapid.IntRange(0, 1<<31-1).Draw(t, "attempts"), Settled: rapid.Int64Range(0, math.MaxInt64).Draw(t, "settled"),
		Starts: rapid.IntRange(0, 1<<31-1).Draw(t, "starts"),
		Poison: text.Draw(t, "poison"), Trace: text.Draw(t, "trace"), TraceState: text.Draw(t, "trace state"),
		Kind: text.Draw(t, "kind"), Key: text.Draw(t, "key"), Dedupe: text.Draw(t, "dedupe"), Claim: text.Draw(t, "claim"),
	}
	if h.Items = rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100), rapid.IntRange(1, envelope.MaxItems)).Draw(t, "items"); h.Items > 0 {
		h.Done, h.Failed, h.Started = itemSet(t, h.Items, "done"), itemSet(t, h.Items, "failed"), itemSet(t, h.Items, "started")
		h.Failure = envelope.ShortFailure(rapid.String().Draw(t, "failure"))
	}
	if rapid.Bool().Draw(t, "with time") {
		h.Enqueued = time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "enqueued")).UTC()
	}
	return h
}

// An envelope keeps its head and its body, whatever the bytes, in a text that a queue can carry.
func TestAnEnvelopeKeepsHeadAndBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := head(t)
		body := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		).Draw(t, "body")
		text, err := envelope.Seal(want, body, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if err := driver.CheckText(text); err != nil {
			t.Fatalf("CheckText: got error %v, want nil", err)
		}
		got, opened, format, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Claims, envelope.Groups)
		if err != nil || format != codec.Envelope || got != want || !bytes.Equal(opened, body) {
			t.Fatalf("got %+v, %q, %v, %v\nwant %+v, %q", got, opened, format, err, want, body)
		}
	})
}

// Recording attempts takes no more bytes, escaped for XML, than a producer leaves free, and never
// more than are left of them.
func TestRecordingAttemptsFitsIntoTheRoom(t *testing.T) {
	body := []byte("body")
	size := func(h envelope.Head) int {
		text, err := envelope.Seal(h, body, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		return driver.RequestSize(text)
	}
	rapid.Check(t, func(t *rapid.T) {
		record := func(h envelope.Head, name string) envelope.Head {
			h.Attempts = rapid.IntRange(0, math.MaxInt32).Draw(t, name+" attempts")
			h.Settled = rapid.Int64Range(0, math.MaxInt64).Draw(t, name+" settled")
			h.Starts = rapid.IntRange(0, math.MaxInt32).Draw(t, name+" starts")
			h.Poison = rapid.SampledFrom([]string{"", "attempts", "lost", "undecodable", "rejected", "expiring"}).Draw(t, name+" poison")
			if h.Items > 0 {
				h.Done, h.Failed, h.Started = itemSet(t, h.Items, name+" done"), itemSet(t, h.Items, name+" failed"), itemSet(t, h.Items, name+" started")
				h.Failure = envelope.ShortFailure(rapid.String().Draw(t, name+" failure"))
			}
			return h
		}
		fresh := head(t)
		fresh.Attempts, fresh.Settled, fresh.Starts, fresh.Poison, fresh.Done, fresh.Failed, fresh.Started, fresh.Failure = 0, 0, 0, "", "", "", "", ""
		once := record(fresh, "first")
		twice := record(once, "second")
		if grown := size(once) - size(fresh); grown > fresh.Room() || fresh.Items == 0 && grown > envelope.Room {
			t.Fatalf("first record: got %d more bytes, want at most %d and, without a group, %d", grown, fresh.Room(), envelope.Room)
		}
		if grown := size(twice) - size(once); grown > once.Room() {
			t.Fatalf("second record: got %d more bytes, want at most %d", grown, once.Room())
		}
	})
	longest := envelope.Head{ID: "7", Moved: "undecodable 2147483647 253402300799 " + strings.Repeat("q", 63)}
	if grown := size(longest) - size(envelope.Head{ID: "7"}); grown > envelope.Room {
		t.Errorf("moved to the poison queue, got %d more bytes, want at most %d", grown, envelope.Room)
	}
	if fresh := (envelope.Head{}).Room(); fresh != envelope.Room {
		t.Errorf("room of an empty head: got %d bytes, want %d", fresh, envelope.Room)
	}
	forged := envelope.Head{Attempts: math.MaxInt32, Settled: math.MaxInt64, Poison: strings.Repeat("x", 100)}
	if room := forged.Room(); room != 0 {
		t.Errorf("room of a forged head: got %d bytes, want 0", room)
	}
}

// A body can be in Base64 although XML could carry it, because it would be too large when escaped.
// It stays in Base64 when an attempt is recorded.
func TestABodyInBase64StaysInBase64(t *testing.T) {
	body := strings.Repeat(`"`, 48<<10)
	text := "millrace/1?id=7&e=64\n" + base64.StdEncoding.EncodeToString([]byte(body))
	h, opened, _, err := envelope.Open(text[:len(text)-400], codec.Auto)
	if err != nil {
		t.Fatal(err)
	}
	h.Attempts++
	recorded, err := envelope.Seal(h, opened, codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.CheckRequest(recorded, h.Room()); err != nil {
		t.Error(err)
	}
	if _, again, _, err := envelope.Open(recorded, codec.Auto); err != nil || !bytes.Equal(again, opened) {
		t.Errorf("body after the record: got %d bytes, error %v; want the %d of before", len(again), err, len(opened))
	}
}

// B-19: an envelope of a newer version is not invalid, and unknown parameters are kept.
func TestNewerVersionsAndUnknownParametersAreAccepted(t *testing.T) {
	_, _, _, err := envelope.Open("millrace/2?id=7\nbody", codec.Auto)
	if !errors.Is(err, codec.ErrNewer) {
		t.Errorf("got error %v, want ErrNewer", err)
	}
	h, body, _, err := envelope.Open("millrace/1?zz=new%20thing&id=7&yy\nbody", codec.Auto)
	if err != nil || h.ID != "7" || string(body) != "body" {
		t.Fatalf("got %+v, %q, %v; want ID 7 and the body \"body\"", h, body, err)
	}
	h.Attempts = 3
	text, _ := envelope.Seal(h, body, codec.Envelope)
	if !strings.Contains(text, "zz=new%20thing") || !strings.Contains(text, "&yy") {
		t.Errorf("got %q, want the unknown parameters in it", text)
	}
	if again, _, _, err := envelope.Open(text, codec.Auto); err != nil || again != h {
		t.Errorf("got %+v, %v; want %+v", again, err, h)
	}
}

func TestBrokenEnvelopesAreErrors(t *testing.T) {
	for _, text := range []string{
		"millrace/", "millrace/1", "millrace/1?", "millrace/x?\n", "millrace/0?\n", "millrace/-1?\n", "millrace/1?id=%zz\n",
		"millrace/1?n=-1\n", "millrace/1?n=x\n", "millrace/1?s=x\n", "millrace/1?st=x\n",
		"millrace/1?n=2147483648\n", "millrace/1?s=9223372036854775808\n", "millrace/1?st=2147483648\n",
		"millrace/1?gr=x\n", "millrace/1?gr=-1\n", "millrace/1?gr=2147483648\n", "millrace/2?gr=9&gd=!\n", "millrace/2?gr=9&gf=A\n", "millrace/2?gr=9&gs=!\n",
		"millrace/1?at=x\n", "millrace/1?e=65\n", "millrace/1?e=64\n!",
	} {
		if _, _, format, err := envelope.Open(text, codec.Auto); err == nil || errors.Is(err, codec.ErrNewer) || format != codec.Envelope {
			t.Errorf("%q: got format %v, error %v; want an invalid envelope", text, format, err)
		}
	}
	if _, _, _, err := envelope.Open(`{"a":1}`, codec.Envelope); err == nil {
		t.Error("Open of a bare message as an envelope: got no error, want one")
	}
}

// A count is parsed up to the maximum of its field and not beyond, where it would be negative.
func TestCountsAreReadUpToTheMaximumOfTheirField(t *testing.T) {
	h, _, _, err := envelope.Open("millrace/1?n=2147483647&s=9223372036854775807&st=2147483647\n", codec.Auto)
	if err != nil || h.Attempts != math.MaxInt32 || h.Settled != math.MaxInt64 || h.Starts != math.MaxInt32 {
		t.Errorf("got %+v, %v; want all counts at their maximum", h, err)
	}
}

// FuzzEnvelope checks that an opened envelope can be sealed and opened again with the same
// result.
func FuzzEnvelope(f *testing.F) {
	f.Add("millrace/1?id=7&at=1&n=2&s=3&st=1&tp=t&ts=u&dk=d&cl=c\n{}")
	f.Add("millrace/1?e=64&zz=1\nAP8=")
	f.Add("millrace/2?\n")
	f.Add("millrace/2?kd=resize&ky=a+b&zz=%20\n{}")
	f.Add("millrace/2?gr=9&gd=AQA&gf=__8&gs=AQ&ge=rejected+item+3%3A+no\n2:{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, body, _, err := envelope.Open(text, codec.Envelope, envelope.Kinds, envelope.Claims, envelope.Groups)
		checkPlainReader(t, text, h, body, err)
		if err != nil {
			return
		}
		sealed, err := envelope.Seal(h, body, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		again, same, _, err := envelope.Open(sealed, codec.Envelope, envelope.Kinds, envelope.Claims, envelope.Groups)
		if err != nil || again != h || !bytes.Equal(same, body) {
			t.Fatalf("%q, sealed and opened again: got %+v, error %v; want %+v", text, again, err, h)
		}
		if driver.CheckText(text) == nil && driver.CheckText(sealed) != nil {
			t.Fatalf("%q is sealed as %q, which no queue carries", text, sealed)
		}
	})
}

// checkPlainReader holds what a reader without features makes of a text that a reader with all of
// them opened as this: the same, or nothing if it has a kind or a claim or is a group.
func checkPlainReader(t *testing.T, text string, all envelope.Head, body []byte, err error) {
	t.Helper()
	h, plain, _, plainErr := envelope.Open(text, codec.Envelope)
	switch {
	case err != nil:
		if plainErr == nil {
			t.Fatalf("%q is read by a reader without features only, which got %+v, %q", text, h, plain)
		}
	case all.Kind != "" || all.Claim != "" || all.Items != 0:
		if !errors.Is(plainErr, codec.ErrNewer) || plain != nil {
			t.Fatalf("%q: a reader without features got %+v, %q, %v", text, h, plain, plainErr)
		}
	case plainErr != nil || h != all || !bytes.Equal(plain, body):
		t.Fatalf("%q: a reader without features got %+v, %q, %v, another %+v, %q", text, h, plain, plainErr, all, body)
	}
}

func BenchmarkOpen(b *testing.B) {
	body := []byte(`{"ID":"` + strings.Repeat("x", 1000) + `"}`)
	for _, format := range []codec.Format{codec.Envelope, codec.Plain, codec.Base64} {
		text, _ := envelope.Seal(envelope.Head{ID: "7", Enqueued: time.UnixMilli(1), Attempts: 1, Settled: 2}, body, format)
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := envelope.Open(text, codec.Auto); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func Example_envelope() {
	text, err := envelope.Seal(envelope.Head{ID: "order 7", Attempts: 2, Settled: 4}, []byte(`{"ID":"7"}`), codec.Envelope)
	fmt.Println(text, err)
	// Output:
	// millrace/1?id=order+7&n=2&s=4
	// {"ID":"7"} <nil>
}

// A body with characters that XML cannot carry, or with invalid UTF-8, is in Base64. Otherwise
// the queue would refuse the text.
func TestABodyThatXMLCannotCarryIsSealedInBase64(t *testing.T) {
	bodies := []string{"\xff", "a\xc3", "\xed\xa0\x80", "\x7f\x1b"}
	for r := rune(0); r <= 0x10FFFF; r++ {
		if r < 0x20 || r >= 0xD7F0 && r <= 0xE00F || r >= 0xFFF0 && r <= 0x1000F || r >= 0x10FFF0 {
			bodies = append(bodies, string(r))
		}
	}
	for _, body := range bodies {
		text, err := envelope.Seal(envelope.Head{}, []byte("{"+body+"}"), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if err := driver.CheckText(text); err != nil {
			t.Errorf("%q: got %v; want no error", body, err)
		}
		if _, got, _, err := envelope.Open(text, codec.Envelope); err != nil || string(got) != "{"+body+"}" {
			t.Errorf("%q: got %q, error %v; want it unchanged in braces", body, got, err)
		}
	}
}
