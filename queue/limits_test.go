package queue_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// carried is the production Char of XML 1.0, written down as the standard does.
func carried(r rune) bool {
	return r == 0x9 || r == 0xA || r == 0xD || r >= 0x20 && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000 && r <= 0x10FFFF
}

// Requirement Q-08.
func TestOnlyWhatXMLCarriesIsAccepted(t *testing.T) {
	for r := rune(0); r <= 0x10FFFF; r++ {
		if r >= 0xD800 && r <= 0xDFFF {
			continue // no UTF-8
		}
		if err := driver.CheckText("a" + string(r) + "b"); (err == nil) != carried(r) {
			t.Fatalf("%U: %v", r, err)
		}
	}
	for _, broken := range []string{"\xff", "a\n\xff", "\n\n\x00", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80"} {
		if err := driver.CheckText(broken); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", broken, err)
		}
	}
}

// Wherever a character stands in a text, and whatever surrounds it: texts are read in words. Requirement Q-08.
func TestWhatXMLCarriesWhereverItStands(t *testing.T) {
	for _, of := range []string{"x", "ü", "\n", "\U0001F600"} {
		for _, c := range []string{"\x00", "\x1f", "\uFFFE", "\uFFFF", "\xff", "\xc3", "\xe2\x82", " ", "\x7f", "\u0080", "\t"} {
			r, _ := utf8.DecodeRuneInString(c)
			bad := !utf8.ValidString(c) || !carried(r)
			for at := range 71 {
				before := strings.Repeat(of, at)
				err := driver.CheckText(before + c + strings.Repeat(of, 70-at))
				if where := fmt.Sprintf("at byte %d", len(before)); (err != nil) != bad || bad && !strings.Contains(err.Error(), where) {
					t.Fatalf("%q behind %d of %q: got %v, want an error %s: %t", c, at, of, err, where, bad)
				}
			}
		}
	}
}

// Requirement Q-07.
func TestTheSizeIsThatOfTheText(t *testing.T) {
	if err := driver.CheckText(strings.Repeat("x", 65536)); err != nil {
		t.Error(err)
	}
	if err := driver.CheckText(strings.Repeat("x", 65537)); !errors.Is(err, queue.ErrTooLarge) {
		t.Error(err)
	}
	if err := driver.CheckText(strings.Repeat("ü", 32769)); !errors.Is(err, queue.ErrTooLarge) {
		t.Error(err)
	}
}

// Requirement Q-04.
func TestQueueNames(t *testing.T) {
	for _, good := range []string{"abc", "a-b", "0-0", "orders-poison", strings.Repeat("a", 63)} {
		if err := driver.CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "ab", strings.Repeat("a", 64), "-ab", "ab-", "a--b", "Abc", "a_b", "a/b", "a b", "äbc", "a.b"} {
		if err := driver.CheckName(bad); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
}

func TestDurationsAreRoundedUpToSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(queue.MaxVisibility)).Draw(t, "d"))
		s := driver.Seconds(d)
		if got := time.Duration(s) * time.Second; got < d || got-d >= time.Second {
			t.Fatalf("Seconds(%v): got %d, want it rounded up", d, s)
		}
	})
	if driver.Seconds(0) != 0 || driver.Seconds(1) != 1 || driver.Seconds(time.Second) != 1 {
		t.Error("0, 1 ns and 1 s are 0, 1 and 1 s")
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	lease := queue.Lease{ID: "id", Receipt: "receipt"}
	for name, err := range map[string]error{
		"delay under 0":        driver.CheckEnqueue(&queue.EnqueueOptions{Delay: -1}),
		"delay over 7 days":    driver.CheckEnqueue(&queue.EnqueueOptions{Delay: queue.MaxVisibility + 1}),
		"TTL under 1 s":        driver.CheckEnqueue(&queue.EnqueueOptions{TTL: time.Millisecond}),
		"TTL of -2":            driver.CheckEnqueue(&queue.EnqueueOptions{TTL: -2}),
		"TTL beyond 32 bits":   driver.CheckEnqueue(&queue.EnqueueOptions{TTL: math.MaxInt64}),
		"delay of the TTL":     driver.CheckEnqueue(&queue.EnqueueOptions{Delay: time.Minute, TTL: time.Minute}),
		"batch of 0":           driver.CheckDequeue(0, time.Minute),
		"batch of 33":          driver.CheckDequeue(33, time.Minute),
		"visibility of 0":      driver.CheckDequeue(1, 0),
		"visibility over 7 d":  driver.CheckDequeue(1, queue.MaxVisibility+1),
		"peek of 33":           driver.CheckPeek(33),
		"no lease":             driver.CheckUpdate(queue.Lease{}, "", 0),
		"no receipt":           driver.CheckLease(queue.Lease{ID: "id"}),
		"update before now":    driver.CheckUpdate(lease, "", -1),
		"update beyond 7 days": driver.CheckUpdate(lease, "", queue.MaxVisibility+1),
		"update to no text":    driver.CheckUpdate(lease, "\x00", 0),
		"metadata name":        driver.CheckMetadata(map[string]string{"1a": "x"}),
		"metadata twice":       driver.CheckMetadata(map[string]string{"a": "x", "A": "y"}),
		"metadata value":       driver.CheckMetadata(map[string]string{"a": "ü"}),
		"metadata blank":       driver.CheckMetadata(map[string]string{"a": " x"}),
		"metadata size":        driver.CheckMetadata(map[string]string{"a": strings.Repeat("x", 8192)}),
	} {
		if !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	for name, err := range map[string]error{
		"nil":               driver.CheckEnqueue(nil),
		"zero":              driver.CheckEnqueue(&queue.EnqueueOptions{}),
		"forever":           driver.CheckEnqueue(&queue.EnqueueOptions{TTL: queue.Forever, Delay: queue.MaxVisibility}),
		"a second":          driver.CheckDequeue(1, time.Second),
		"32 for 7 days":     driver.CheckDequeue(32, queue.MaxVisibility),
		"update to nothing": driver.CheckUpdate(lease, "", 0),
		"metadata":          driver.CheckMetadata(map[string]string{"_a1": "some value", "b": "~", "c": ""}),
	} {
		if err != nil {
			t.Errorf("%s: got the error %v, want none", name, err)
		}
	}
}

// TestCheckTextLooksEverywhere puts what XML cannot carry at every place of a text that is
// otherwise plain, between characters that are and that are not.
func TestCheckTextLooksEverywhere(t *testing.T) {
	for at := range 40 {
		for _, other := range []string{"x", "\t", "ü", "\x7f", " "} {
			text := strings.Repeat("x", at) + "%s" + strings.Repeat(other, 40-at)
			if err := driver.CheckText(strings.Replace(text, "%s", other, 1)); err != nil {
				t.Errorf("%q at %d: got the error %v, want none", other, at, err)
			}
			for _, bad := range []string{"\x00", "\x1f", "\x80", "\xff", "\uffff"} {
				if err := driver.CheckText(strings.Replace(text, "%s", bad, 1)); !errors.Is(err, queue.ErrInvalid) {
					t.Errorf("%q at %d before %q: got %v, want ErrInvalid", bad, at, other, err)
				}
			}
		}
	}
}

func TestTheRequestSizeIsThatOfTheEncoder(t *testing.T) {
	const before, after = xml.Header + "<QueueMessage><MessageText>", "</MessageText></QueueMessage>"
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(
			rapid.SampledFrom([]rune("\"'&<>\t\n\r ax]\u00e9\u4e16\U0001F680\uFFFD")),
			rapid.Rune(),
		)).Draw(t, "text")
		if driver.CheckText(text) != nil {
			return
		}
		var b strings.Builder
		if err := xml.EscapeText(&b, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, want := driver.RequestSize(text), len(before)+b.Len()+len(after); got != want {
			t.Errorf("%q is a request of %d bytes, counted %d", text, want, got)
		}
	})
}

// Both limits hold, that of the text and that of the request with the text escaped, and
// both less what must be left.
//
// Requirement Q-07.
func TestARequestIsRefusedByWhatTravels(t *testing.T) {
	for _, room := range []int{0, 1, 100} {
		plain := strings.Repeat("x", queue.MaxText-room)
		quotes := (driver.MaxRequest - room - driver.RequestSize("")) / 5
		escaped := strings.Repeat(`"`, quotes)
		escaped += strings.Repeat("x", driver.MaxRequest-room-driver.RequestSize(escaped))
		for _, text := range []string{"", plain, escaped} {
			if err := driver.CheckRequest(text, room); err != nil {
				t.Errorf("%d bytes with room for %d: got the error %v, want none", len(text), room, err)
			}
		}
		for _, text := range []string{plain + "x", escaped + "x"} {
			err := driver.CheckRequest(text, room)
			if !errors.Is(err, queue.ErrTooLarge) || strings.Contains(err.Error(), "record attempts") != (room > 0) {
				t.Errorf("%d bytes with room for %d: got %v, want ErrTooLarge", len(text), room, err)
			}
		}
	}
}
