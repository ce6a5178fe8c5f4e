package listener

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

// However often a message fails or is snoozed, in whatever format, adopted or not, its handler
// gets the same bytes each time, and the attempts count up.
func TestTheBodyStaysTheSameHoweverOftenItFails(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		format := rapid.SampledFrom([]codec.Format{codec.Auto, codec.Envelope, codec.Plain, codec.Base64}).Draw(rt, "format")
		adopt := rapid.Bool().Draw(rt, "adopt")
		readable := []codec.Format{format}
		switch {
		case format == codec.Auto:
			readable = []codec.Format{codec.Envelope, codec.Plain, codec.Base64}
		case adopt:
			readable = append(readable, codec.Envelope) // another worker has adopted it
		}
		sentAs := rapid.SampledFrom(readable).Draw(rt, "sent as")
		body := rapid.OneOf(
			rapid.Map(rapid.StringMatching(`\{"N":[0-9]{1,5}\}`), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.StringMatching(`[ -~\n]{0,30}`), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.StringMatching(`(millrace/|millrace/1|millrace/x\?|millrace/1\?n=x)[a-z ]{0,10}\n?`), func(s string) []byte { return []byte(s) }),
			rapid.SliceOfN(rapid.Byte(), 1, 40),
		).Draw(rt, "body")
		text, err := envelope.Seal(envelope.Head{}, body, sentAs)
		if err != nil {
			rt.Fatal(err)
		}
		if driver.CheckText(text) != nil {
			rt.Skip("cannot be sent")
		}
		if _, read, _, err := envelope.Open(text, format); format == codec.Auto && (err != nil || !bytes.Equal(read, body)) {
			rt.Skip("Auto reads it differently")
		}
		script := rapid.SliceOfN(rapid.SampledFrom([]string{"fail", "fail", "fail", "snooze", "panic"}), 0, 8).Draw(rt, "script")

		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.putText(text)
			var outcomes, log []string
			attempts := 0
			o := &Options[[]byte]{Codec: codec.Bytes(), Wire: WireOptions{Format: format, AcceptForeign: adopt}, Logger: options().Logger}
			o.RetryDelay = func(int, error) time.Duration { return time.Second }
			o.Poison.MaxAttempts = 100
			o.OnError = func(err error) { log = append(log, err.Error()) }
			l := New(b.queue, func(_ context.Context, m *Message[[]byte]) error {
				if !bytes.Equal(m.Body, body) {
					rt.Errorf("body of delivery %d: got %q, want %q", m.DequeueCount, m.Body, body)
				}
				outcome := "succeed"
				if len(outcomes) < len(script) {
					outcome = script[len(outcomes)]
				}
				outcomes = append(outcomes, outcome)
				want := attempts + 1
				if sentAs != codec.Envelope && !adopt {
					want = len(outcomes) // every delivery counts
				}
				if m.Attempt != want {
					rt.Errorf("attempt of delivery %d: got %d, want %d", m.DequeueCount, m.Attempt, want)
				}
				switch outcome {
				case "fail":
					attempts++
					return errors.New("no")
				case "panic":
					attempts++
					panic("no")
				case "snooze":
					return dispatcher.Snooze(time.Second)
				}
				return nil
			}, o)
			b.run(l)
			advance(5 * time.Minute)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Deleted] != 1 || len(outcomes) != len(script)+1 || b.depth(b.queue.Queue) != 0 {
				rt.Errorf("%q sent as %v, read as %v, adopt %v: got outcomes %v, state %+v, errors %v; want one success at the end",
					text, sentAs, format, adopt, outcomes, st, log)
			}
		})
	})
}

// An adopted message has one envelope, not another one for every failure.
func TestAdoptionDoesNotNestEnvelopes(t *testing.T) {
	for format, text := range map[codec.Format]string{
		codec.Auto:   `{"N":7}`,
		codec.Plain:  `{"N":7}`,
		codec.Base64: base64.StdEncoding.EncodeToString([]byte(`{"N":7}`)),
	} {
		bubble(t, func(b *bundle) {
			b.putText(text)
			runs := 0
			o := options()
			o.Wire.Format, o.Wire.AcceptForeign = format, true
			o.RetryDelay = func(int, error) time.Duration { return time.Second }
			l := New(b.queue, func(_ context.Context, m *Message[job]) error {
				if runs++; m.Body.N != 7 || m.Attempt != runs {
					t.Errorf("%v: run %d is attempt %d of %+v; want N 7 and attempt %d", format, runs, m.Attempt, m.Body, runs)
				}
				return errors.New("no")
			}, o)
			b.run(l)
			advance(time.Minute)
			b.mustFinish()
			if st := l.State(); runs != 5 || st.Outcomes[Poisoned] != 1 {
				t.Errorf("%v: got %d runs, state %+v; want runs 5, Poisoned 1", format, runs, st)
			}
			if poisoned := b.poisoned(); len(poisoned) != 1 || strings.Count(poisoned[0].Text, "millrace/1?") != 1 {
				t.Errorf("%v: poison queue: got %+v, want one message in one envelope", format, poisoned)
			}
		})
	}
}
