package emulator

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseFaults(t *testing.T) {
	for text, want := range map[string][]Fault{
		"":                                   nil,
		" ; , ":                              nil,
		"get:503@5%":                         {{Operation: GetMessages, Kind: FaultBusy, Rate: 0.05}},
		"*:delay=200ms@10%":                  {{Kind: FaultDelay, Delay: 200 * time.Millisecond, Rate: 0.1}},
		"delete:drop@#3+#7":                  {{Operation: DeleteMessage, Kind: FaultDrop, At: []int{3, 7}}},
		"put:500@1/100":                      {{Operation: PutMessage, Kind: FaultInternal, Every: 100}},
		"get:reset@2%;update:duplicate@1%":   {{Operation: GetMessages, Kind: FaultReset, Rate: 0.02}, {Operation: UpdateMessage, Kind: FaultDuplicate, Rate: 0.01}},
		" PUTMESSAGE : 408 @ 100% , *:RESET": {{Operation: PutMessage, Kind: FaultTimeout, Rate: 1}, {Kind: FaultReset}},
		"getqueueacl:timeout@0.1%+1/7+#2":    {{Operation: GetQueueACL, Kind: FaultTimeout, Rate: 0.001, Every: 7, At: []int{2}}},
	} {
		if got, err := ParseFaults(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestParseFaultsSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"get:503,503":                   `fault "503": no colon: write operation:kind@when`,
		"got:503":                       `"got" is no operation: use * for all, or put (PutMessage), get (GetMessages)`,
		":503":                          `"" is no operation`,
		"Unknown:503":                   `"Unknown" is no operation`,
		"get:404":                       `"404" is no kind of fault: use 503`,
		"get:":                          `"" is no kind of fault`,
		"get:delay":                     `"" is not how long to wait`,
		"get:delay=-1s":                 `"-1s" is not how long`,
		"get:drop=1s":                   `drop has no duration`,
		"get:503@":                      `"" does not say when`,
		"get:503@5":                     `"5" does not say when: write 5% for a share`,
		"get:503@0%":                    `"0%" is not a share of requests: write more than 0%`,
		"get:503@101%":                  `"101%" is not a share`,
		"get:503@1e1%":                  `"1e1%" is not a share`,
		"get:503@NaN%":                  `"NaN%" is not a share`,
		"get:503@1%+2%":                 `"2%" is the second share`,
		"get:503@1/0":                   `"1/0" is not every so many`,
		"get:503@1/2+1/3":               `"1/3" is the second of its kind`,
		"get:503@#0":                    `"#0" is not the number of a request`,
		"get:503@#99999999999999999999": `is not the number of a request`,
	} {
		if got, err := ParseFaults(text); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]Limits{
		"":                             {},
		"messages=2000,requests=20000": {Messages: 2000, Requests: 20000},
		";Requests = 5 ;":              {Requests: 5},
	} {
		if got, err := ParseLimits(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"message=1":             `"message" is no limit: use messages=2000`,
		"messages":              `"" is not how many a second`,
		"messages=0":            `"0" is not how many`,
		"requests=1000000001":   `from 1 to 1000000000`,
		"requests=1,requests=2": `requests is there twice`,
	} {
		if got, err := ParseLimits(text); err == nil || got != (Limits{}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

// validFault draws any rule that check accepts.
func validFault(t *rapid.T) Fault {
	f := Fault{
		Operation: rapid.SampledFrom(append([]Operation{""}, operations...)).Draw(t, "operation"),
		Kind:      rapid.SampledFrom(faultKinds).Draw(t, "kind"),
		Rate:      rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1)).Draw(t, "rate"),
		Every:     rapid.OneOf(rapid.Just(0), rapid.IntRange(1, math.MaxInt)).Draw(t, "every"),
	}
	if at := rapid.SliceOfN(rapid.IntRange(1, math.MaxInt), 0, 3).Draw(t, "at"); len(at) > 0 {
		f.At = at
	}
	if f.Kind == FaultDelay {
		f.Delay = time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "delay"))
	}
	return f
}

func TestFaultsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(validFault), 1, 3).Draw(t, "rules")
		var texts []string
		for _, f := range want {
			texts = append(texts, f.String())
		}
		text := strings.Join(texts, rapid.SampledFrom([]string{",", "; "}).Draw(t, "separator"))
		if got, err := ParseFaults(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, %v", text, got, err)
		}
	})
}

func TestInvalidRulesPanic(t *testing.T) {
	for _, f := range []Fault{
		{}, {Kind: "404"}, {Operation: Unknown, Kind: FaultBusy}, {Kind: FaultBusy, Rate: math.NaN()}, {Kind: FaultBusy, Rate: 1.1},
		{Kind: FaultBusy, Every: -1}, {Kind: FaultBusy, At: []int{1, 0}}, {Kind: FaultDelay}, {Kind: FaultBusy, Delay: 1},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "Options.Faults.Rules[0]") {
					t.Errorf("%+v: %q", f, text)
				}
			}()
			New(nil, &Options{Faults: &Faults{Rules: []Fault{f}}})
		}()
	}
}

// FuzzParseFaults holds that what is accepted is valid and means the same when
// it is written and read again.
func FuzzParseFaults(f *testing.F) {
	for _, text := range []string{"get:503@5%, *:delay=200ms@10%;delete:drop@#3+#7", "put:500@1/100", "*:408", "update:duplicate@0.001%+1/2+#1", "x", "get:503@.%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseFaults(text)
		if err != nil {
			return
		}
		var texts []string
		for _, rule := range rules {
			if err := rule.check(); err != nil {
				t.Errorf("%s: %v", rule, err)
			}
			texts = append(texts, rule.String())
		}
		if again, err := ParseFaults(strings.Join(texts, ",")); err != nil || !reflect.DeepEqual(again, rules) {
			t.Errorf("%q became %q: %+v, %v", text, texts, again, err)
		}
	})
}

func FuzzParseLimits(f *testing.F) {
	for _, text := range []string{"messages=2000,requests=20000", "requests=1", "messages=-1", ";"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLimits(text)
		if err != nil {
			if l != (Limits{}) {
				t.Errorf("%q: %+v with %v", text, l, err)
			}
			return
		}
		if l.Messages < 0 || l.Messages > maxLimitRate || l.Requests < 0 || l.Requests > maxLimitRate {
			t.Errorf("%q: %+v", text, l)
		}
	})
}
