package azurequeue

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/bodytext"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// The body that azqueue sends has exactly the size of driver.RequestSize. A body at the limit is sent,
// a larger one is not.
//
// Requirement Q-07.
func TestBodyLimit(t *testing.T) {
	var body []byte
	var length int64
	q := openCanned(t, func(r *http.Request) (*http.Response, error) {
		body, _ = io.ReadAll(r.Body)
		length = r.ContentLength
		return responding(201, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId></QueueMessage></QueueMessagesList>")(r)
	})
	for _, text := range []string{"", "x", `{"a":"b"}`, "a\r\nb\tc<d>&'", strings.Repeat("世", 1000)} {
		if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
			t.Fatal(err)
		}
		if want := driver.RequestSize(text); len(body) != want || length != int64(want) {
			t.Errorf("body of %q: got %d bytes and Content-Length %d, want %d", text, len(body), length, want)
		}
	}
	text := largestText()
	if _, err := q.Enqueue(t.Context(), text, nil); err != nil || len(body) != driver.MaxRequest {
		t.Errorf("text at the limit: got %v and a body of %d bytes, want success and %d", err, len(body), driver.MaxRequest)
	}
	body = nil
	for _, err := range []error{
		func() error { _, err := q.Enqueue(t.Context(), text+"x", nil); return err }(),
		func() error { _, err := q.Update(t.Context(), someLease, text+"x", 0); return err }(),
	} {
		if !errors.Is(err, queue.ErrTooLarge) || !strings.Contains(err.Error(), "Base64") || body != nil {
			t.Errorf("text over the limit: got %v and a body of %d bytes, want ErrTooLarge and no request", err, len(body))
		}
	}
}

// Texts are checked, escaped and counted as encoding/xml does it.
func TestTextsAreEscapedAsEncodingXMLDoes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		parts := []string{"plain text ", "x", `"`, "'", "&", "<", ">", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\xff", "é", "世", "\uFFFE", "\uFFFD"}
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 30).Draw(r, "parts"), "")
		var want bytes.Buffer
		if err := xml.EscapeText(&want, []byte(text)); err != nil {
			r.Fatal(err)
		}
		// EscapeText replaces what XML cannot carry by U+FFFD.
		valid := strings.Count(want.String(), "\uFFFD") == strings.Count(text, "\uFFFD")
		if got := driver.CheckText(text); (got == nil) != valid || bodytext.IsXMLText([]byte(text)) != valid {
			r.Fatalf("%q: %v, and IsXMLText reports %v; encoding/xml accepts it: %v", text, got, bodytext.IsXMLText([]byte(text)), valid)
		}
		if !valid {
			return
		}
		got, growth := bodytext.AppendEscaped([]byte("before"), text), want.Len()-len(text)
		if string(got) != "before"+want.String() || bodytext.Escapes(text) != growth || bodytext.EscapesOf([]byte(text)) != growth {
			r.Fatalf("%q: got %q and %d, %d bytes more; want %q", text, got, bodytext.Escapes(text), bodytext.EscapesOf([]byte(text)), want.String())
		}
	})
}

// largestText returns a text whose request has the maximum size once it is escaped.
func largestText() string {
	quotes := (driver.MaxRequest - driver.RequestSize("")) / 5
	text := strings.Repeat(`"`, quotes)
	return text + strings.Repeat("x", driver.MaxRequest-driver.RequestSize(text))
}
