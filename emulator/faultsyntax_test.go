package emulator

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseFaults(t *testing.T) {
	for text, want := range map[string][]Fault{
		"":                nil,
		" , ;\n":          nil,
		"dequeue:503@5%":  {{Operation: GetMessages, Kind: FaultBusy, Rate: 0.05}},
		"get:503@7%":      {{Operation: GetMessages, Kind: FaultBusy, Rate: 0.07}},
		"put:500@1/100":   {{Operation: PutMessage, Kind: FaultInternal, Every: 100}},
		"enqueue:408":     {{Operation: PutMessage, Kind: FaultTimeout, Rate: 1}},
		"*:RESET@0.125%":  {{Kind: FaultReset, Rate: 0.00125}},
		"peek:drop@0%":    {{Operation: PeekMessages, Kind: FaultDrop}},
		"clear:500@100.%": nil, // see below
		"delete:drop@#7,3,3": {
			{Operation: DeleteMessage, Kind: FaultDrop, At: []int64{3, 7}}},
		"getqueuemetadata:delay=1m30s@1/2": {{Operation: GetQueueMetadata, Kind: FaultDelay, Every: 2, Delay: 90 * time.Second}},
		"*:delay=200ms@10% update:duplicate@1%; delete:drop@#3,7,put:503,": {
			{Kind: FaultDelay, Rate: 0.1, Delay: 200 * time.Millisecond},
			{Operation: UpdateMessage, Kind: FaultDuplicate, Rate: 0.01},
			{Operation: DeleteMessage, Kind: FaultDrop, At: []int64{3, 7}},
			{Operation: PutMessage, Kind: FaultBusy, Rate: 1},
		},
	} {
		got, err := ParseFaults(text)
		if strings.Contains(text, "100.%") {
			if err == nil {
				t.Errorf("ParseFaults(%q) = %v, want an error", text, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseFaults(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestParseFaultsErrors: an error quotes the invalid part and shows a correct form.
func TestParseFaultsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"dequeue":                        `fault "dequeue": missing colon: write operation:fault@when, such as dequeue:503@5%`,
		"put:503 pop:503":                `fault "pop:503": unknown operation "pop": write put, get, peek, update, delete or clear, * for all, or one of PutMessage, GetMessages,`,
		":503":                           `unknown operation ""`,
		"OpenWakeups:503":                `faults do not apply to OpenWakeups: write put, get`,
		"setfaults:503":                  `faults do not apply to SetFaults: write put, get`,
		"Unknown:503":                    `unknown operation "Unknown"`,
		"put:":                           `fault "put:": unknown fault "": write one of 503, 500, 408, 403, reset, drop, delay=200ms, duplicate`,
		"put:404@5%":                     `unknown fault "404"`,
		"put:delay":                      `"delay": only delay has a duration, and needs one, such as delay=200ms`,
		"put:503=1s":                     `"503=1s": only delay has a duration, and needs one`,
		"put:delay=200":                  `"200" is not a duration: write it like 200ms, 1.5s or 1m30s`,
		"put:delay=0s":                   `a delay of 0s is out of range: it must be more than 0 and at most 24h0m0s`,
		"put:delay=25h":                  `a delay of 25h0m0s`,
		"put:503@":                       `"" does not say when: write 5%, 1/100 or #3,7`,
		"put:503@5":                      `"5" does not say when`,
		"put:503@101%":                   `"101%" is not a percentage: write 0% to 100%, such as 5% or 0.1%`,
		"put:503@-1%":                    `"-1%" is not a percentage`,
		"put:503@1e1%":                   `"1e1%" is not a percentage`,
		"put:503@%":                      `"%" is not a percentage`,
		"put:503@1/0":                    `"1/0": write 1/100 for every hundredth`,
		"put:503@2/3":                    `"2/3" does not say when`,
		"put:503@#":                      `"#": write #3,7 for the third and the seventh request`,
		"put:503@#0":                     `"#0": write #3,7`,
		"put:503@#+1":                    `"#+1": write #3,7`,
		"put:503@#3, 7":                  `fault "7" is a lone number: numbers follow a #, without spaces, such as delete:drop@#3,7`,
		"put:503@5%,get@1":               `fault "get@1": missing colon`,
		"put:503@1/99999999999999999999": `write 1/100`,
		strings.Repeat("ä", 1000):        `ää…"`,
	} {
		got, err := ParseFaults(text)
		if err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("ParseFaults(%q) = %v, %v; want an error with %s", text, got, err, want)
		}
		if err != nil && len(err.Error()) > 700 {
			t.Errorf("ParseFaults(%q): got an error of %d bytes, want at most 700", text, len(err.Error()))
		}
	}
}

// anyFault draws valid rules.
func anyFault(t *rapid.T) Fault {
	f := Fault{
		Operation: rapid.SampledFrom(slices.DeleteFunc(append([]Operation{""}, operations[:len(operations)-1]...), func(op Operation) bool { return !op.isBilled() })).Draw(t, "operation"),
		Kind:      rapid.SampledFrom(faultKinds).Draw(t, "kind"),
	}
	if f.Kind == FaultDelay {
		f.Delay = time.Duration(rapid.Int64Range(1, int64(maxDelay)).Draw(t, "delay"))
	}
	switch rapid.IntRange(0, 2).Draw(t, "when") {
	case 0:
		f.Rate = rapid.Float64Range(0, 1).Draw(t, "rate")
	case 1:
		f.Every = rapid.Int64Min(1).Draw(t, "every")
	default:
		n := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "numbers") {
			n += rapid.Int64Range(1, 1<<40).Draw(t, "gap")
			f.At = append(f.At, n)
		}
	}
	return f
}

// TestFaultsRoundTrip: ParseFaults returns exactly the rules that String formatted.
func TestFaultsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(anyFault), 1, 5).Draw(t, "rules")
		var pieces []string
		for _, f := range rules {
			if err := f.check(); err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, f.String())
		}
		text := strings.Join(pieces, rapid.SampledFrom([]string{" ", ",", ";", ", ", "\n"}).Draw(t, "between"))
		got, err := ParseFaults(text)
		if err != nil || !reflect.DeepEqual(got, rules) {
			t.Fatalf("ParseFaults(%q) = %+v, %v; want %+v", text, got, err, rules)
		}
	})
}

func TestQuotasRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Quotas{
			Messages: rapid.IntRange(0, maxQuota).Draw(t, "messages"),
			Requests: rapid.IntRange(0, maxQuota).Draw(t, "requests"),
		}
		if got, err := ParseQuotas(l.String()); err != nil || got != l {
			t.Fatalf("ParseQuotas(%q) = %+v, %v; want %+v", l, got, err, l)
		}
	})
}

func TestParseQuotasErrors(t *testing.T) {
	for text, want := range map[string]string{
		"2000":                       `quota "2000": write messages=2000 (a second and queue) or requests=20000 (a second and account)`,
		"messages":                   `quota "messages": write messages=2000`,
		"bytes=1":                    `quota "bytes=1": write`,
		"messages=-1":                `"-1" is not a number from 0 to 1000000000`,
		"messages=1,requests=1e3":    `quota "requests=1e3": "1e3" is not a number`,
		"requests=1000000001":        `is not a number from 0 to`,
		"messages=1 messages=1":      `quota "messages=1": messages is given twice`,
		"requests=0;Requests=5":      `requests is given twice`,
		"messages=99999999999999999": `is not a number`,
	} {
		if got, err := ParseQuotas(text); err == nil || !strings.Contains(err.Error(), want) || got != (Quotas{}) {
			t.Errorf("ParseQuotas(%q) = %+v, %v; want an error with %s", text, got, err, want)
		}
	}
	for text, want := range map[string]Quotas{"": {}, "Messages=2000, requests=20000": {2000, 20000}, "requests=0": {}} {
		if got, err := ParseQuotas(text); err != nil || got != want {
			t.Errorf("ParseQuotas(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// FuzzParseFaults parses arbitrary texts. Accepted rules are valid and survive formatting and
// parsing; the error for other texts is one line.
func FuzzParseFaults(f *testing.F) {
	for _, text := range []string{"dequeue:503@5% *:delay=200ms@10% delete:drop@#3,7 put:500@1/100", "get:reset@2%;update:duplicate@1%",
		"put:503@#3, 7", "*:delay=1h@0.0000000000000000000001%", "put:408,get:408", "@#1,2", "put:503@#1,,2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseFaults(text)
		if err != nil {
			if rules != nil || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 1000 {
				t.Fatalf("ParseFaults returned %v with the error %q; want no rules and an error of one line", rules, err)
			}
			return
		}
		var pieces []string
		for _, rule := range rules {
			if err := rule.check(); err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, rule.String())
		}
		if again, err := ParseFaults(strings.Join(pieces, " ")); err != nil || !reflect.DeepEqual(again, rules) {
			t.Fatalf("parsed again: got %+v, %v; want %+v", again, err, rules)
		}
		if _, err := newFaultRules("Options.Faults", &Faults{Rules: rules}); err != nil && len(rules) < 1000 {
			t.Fatal(err)
		}
	})
}

// FuzzParseQuotas is FuzzParseFaults for quotas.
func FuzzParseQuotas(f *testing.F) {
	for _, text := range []string{"messages=2000,requests=20000", "requests=1", "messages=", "=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseQuotas(text)
		if err != nil {
			if l != (Quotas{}) || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 1000 {
				t.Fatalf("ParseQuotas returned %v with the error %q; want no quotas and an error of one line", l, err)
			}
			return
		}
		if again, err := ParseQuotas(l.String()); l.check() != nil || err != nil || again != l {
			t.Fatalf("parsed again: got %+v, %v; want %+v", again, err, l)
		}
	})
}
