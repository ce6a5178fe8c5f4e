package internal_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What should not be sent is refused with an error that names the field and the limit.
func TestHeadsThatShouldNotBeSentSayWhy(t *testing.T) {
	long := strings.Repeat("x", envelope.MaxHeadText+1)
	for _, c := range []struct {
		head envelope.Head
		want string // "" if it may be sent
	}{
		{envelope.Head{}, ""},
		{envelope.Head{ID: long[1:], Kind: "grüß dich", Key: "a/b c", Trace: traceParent, TraceState: "a=1,b=2\t"}, ""},
		{envelope.Head{ID: long}, "the job id has 257 bytes, the limit is 256"},
		{envelope.Head{ContentType: long}, "the content type has 257"},
		{envelope.Head{Kind: long}, "the kind has 257"},
		{envelope.Head{Key: long}, "the key has 257"},
		{envelope.Head{Dedupe: long}, "the dedupe key has 257"},
		{envelope.Head{Claim: long}, "the claim has 257"},
		{envelope.Head{ID: "a\nb"}, `the job id "a\nb" has the control character U+000A at byte 1`},
		{envelope.Head{Key: "ab\x7f"}, "U+007F at byte 2"},
		{envelope.Head{Kind: "\xff"}, "is not UTF-8"},
		{envelope.Head{Items: -1}, "a group of -1 items is outside 1…65536"},
		{envelope.Head{Items: envelope.MaxItems + 1}, "a group of 65537 items"},
		{envelope.Head{Items: envelope.MaxItems}, ""},
		{envelope.Head{Done: "\x01"}, "not all among the 0 of the group"},
		{envelope.Head{Items: 8, Failed: "\x00\x01"}, "not all among the 8 of the group"},
		{envelope.Head{Items: 9, Done: "\x00\x01", Failed: "\xff"}, ""},
		{envelope.Head{Failure: envelope.ShortFailure(strings.Repeat("ü", 100))}, ""},
		{envelope.Head{Failure: strings.Repeat("ü", 41)}, "has 246 bytes escaped, the limit is 240"},
		{envelope.Head{Attempts: -1}, "-1 attempts"},
		{envelope.Head{Settled: -1}, "-1 settled"},
		{envelope.Head{Starts: -1}, "-1 starts"},
		{envelope.Head{Attempts: math.MaxInt32 + 1}, "2147483648 attempts"},
		{envelope.Head{Attempts: math.MaxInt32, Settled: math.MaxInt64, Starts: math.MaxInt32}, ""},
		{envelope.Head{Trace: "trace"}, `the trace parent "trace" is not of the form`},
		{envelope.Head{Trace: strings.ToUpper(traceParent)}, "in lower case"},
		{envelope.Head{Trace: traceParent + "-more"}, "is not of the form"},
		{envelope.Head{Trace: "01" + traceParent[2:] + "-more"}, ""},
		{envelope.Head{Trace: "01" + traceParent[2:] + "more"}, "is not of the form"},
		{envelope.Head{Trace: "ff" + traceParent[2:]}, "is not of the form"},
		{envelope.Head{Trace: strings.Replace(traceParent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1)}, "is not of the form"},
		{envelope.Head{Trace: strings.Replace(traceParent, "b7ad6b7169203331", strings.Repeat("0", 16), 1)}, "is not of the form"},
		{envelope.Head{Trace: strings.Replace(traceParent, "-01", "_01", 1)}, "is not of the form"},
		{envelope.Head{TraceState: "a=1"}, "without a trace parent"},
		{envelope.Head{Trace: traceParent, TraceState: strings.Repeat("a", envelope.MaxTraceState+1)}, "the trace state has 513 bytes, the limit is 512"},
		{envelope.Head{Trace: traceParent, TraceState: "a=ü"}, "is not printable ASCII"},
	} {
		if err := c.head.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.head, err, c.want)
		}
	}
}

// Whatever passes the check comes back from an envelope as it was.
func TestACheckedHeadSurvivesItsEnvelope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := head(t)
		want.Trace, want.TraceState = "", ""
		if want.Check() != nil {
			t.Skip()
		}
		text, err := envelope.Seal(want, nil, codec.Envelope)
		if err != nil || driver.CheckText(text) != nil {
			t.Fatalf("got %q, %v", text, err)
		}
		if got, _, _, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Claims, envelope.Groups); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}
