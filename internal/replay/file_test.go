package replay

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestReadDefaultsAndSettings(t *testing.T) {
	got, err := Read(strings.NewReader("# handling: 250ms\n\narrivals\n60\n\n120\n"), "mine.csv")
	want := Trace{
		Name: "mine.csv", Step: time.Minute, Arrivals: []float64{60, 120}, Handling: 250 * time.Millisecond, Slots: 64, Start: 30 * time.Second,
		SLA: 2 * time.Minute, Initial: 1, Max: 20,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if err := got.Check(); err != nil {
		t.Errorf("the trace of a file with defaults: got %v, want no error", err)
	}
	got, err = Read(strings.NewReader("\ufeff# trace: mondays\r\n# a remark\r\n# another: one\r\n# step: 5s\r\n# slots: 3\r\n# start: 1m\r\n# vary: 0.5\r\n# sla: 1h\r\n"+
		"# initial: 2\r\n# max: 50\r\n# accounts: one, two\r\n# noise: 0.1\r\n# missing: 0.01\r\n# seed: 9\r\n"+
		"Time, Poison , arrivals,handling\r\n10:00,1,2,3s\r\n10:01,0,0.5,4s"), "mine.csv")
	want = Trace{
		Name: "mondays", Step: 5 * time.Second, Arrivals: []float64{2, 0.5}, Poison: []float64{1, 0}, Handlings: []time.Duration{3 * time.Second, 4 * time.Second},
		Slots: 3, Start: time.Minute, Vary: 0.5, SLA: time.Hour, Initial: 2, Max: 50, Accounts: []string{"one", "two"}, Noise: 0.1, Missing: 0.01, Seed: 9,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// Errors name the file, the line and the reason.
func TestReadNamesMistakes(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over mistakes")
	}
	for text, want := range map[string]string{
		"":                                 "mine.csv: there are no steps",
		"arrivals\n":                       "mine.csv: there are no steps",
		"arrivals\n1\n":                    "mine.csv: nothing says how long a message is handled",
		"1,2\n":                            `mine.csv:1: column "1"`,
		"poison\n":                         "mine.csv:1: there is no column arrivals",
		"arrivals,arrivals\n":              `mine.csv:1: column "arrivals": it is there twice`,
		"# handling: 1s\narrivals\nmany\n": `mine.csv:3: arrivals is "many"`,
		"arrivals\n-1\n":                   `mine.csv:2: arrivals is "-1"`,
		"arrivals\nNaN\n":                  `mine.csv:2: arrivals is "NaN"`,
		"arrivals,poison\n1\n":             "mine.csv:2: there are 1 values in 2 columns",
		"arrivals,poison\n1,x\n":           `mine.csv:2: poison is "x"`,
		"arrivals,handling\n1,0s\n":        `mine.csv:2: handling is "0s"`,
		"# step: fast\n":                   `mine.csv:1: step is "fast"`,
		"# slots: 1.5\n":                   `mine.csv:1: slots is "1.5"`,
		"# vary: some\n":                   `mine.csv:1: vary is "some"`,
		"# accounts: a,,b\n":               `mine.csv:1: accounts are "a,,b"`,
		"# accounts: a, a\n":               "different names",
		"# trace:\n":                       "mine.csv:1: trace has no name",
		"# seed: -1\n":                     `mine.csv:1: seed is "-1"`,
		"arrivals\n" + strings.Repeat("1", 2<<20):      "mine.csv: bufio.Scanner: token too long",
		strings.Repeat("# remark remark\n", 5_000_000): "mine.csv: it is longer than 64 MiB",
	} {
		if _, err := Read(strings.NewReader(text), "mine.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
}

func TestWriteAndReadAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := traces(t)
		trace.Name = rapid.SampledFrom([]string{"drawn", "two words", "a: colon", "#"}).Draw(t, "name")
		trace.Accounts = rapid.SampledFrom([][]string{nil, {"one"}, {"one", "two words"}}).Draw(t, "accounts")
		if trace.Handlings != nil {
			trace.Handling = 0 // is not used, and zero is not written
		}
		var b bytes.Buffer
		if err := trace.Write(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		got, err := Read(&b, "file")
		if err != nil || !reflect.DeepEqual(got, trace) {
			t.Errorf("got %+v, %v\nwant %+v\nfrom\n%s", got, err, trace, text)
		}
	})
}

func TestWriteRefusesNamesThatReadWouldChange(t *testing.T) {
	for _, change := range []func(*Trace){
		func(t *Trace) { t.Name = "two\nlines" }, func(t *Trace) { t.Name = " space" }, func(t *Trace) { t.Name = "" },
		func(t *Trace) { t.Accounts = []string{"a,b"} }, func(t *Trace) { t.Accounts = []string{""} },
	} {
		trace := perSecond(1)
		change(&trace)
		if err := trace.Write(&bytes.Buffer{}); err == nil {
			t.Errorf("%q, %q: got no error, want one", trace.Name, trace.Accounts)
		}
	}
}

// What is read is refused or replayed; it never panics, and is the same after writing and reading it.
func FuzzRead(f *testing.F) {
	f.Add("# handling: 250ms\narrivals,poison\n60,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := Read(strings.NewReader(text), "file")
		if err != nil {
			return
		}
		if trace.Check() == nil && len(trace.Arrivals) < 100 && trace.Step <= time.Minute && trace.longest() < 600 && trace.Max < 1000 {
			if _, err := Run(trace, KEDA{}.Rule("keda")); err != nil {
				t.Errorf("a trace that is right: got %v", err)
			}
		}
		var b bytes.Buffer
		if trace.Write(&b) != nil {
			return // a name that was not written so
		}
		again, err := Read(&b, "file")
		if err != nil {
			t.Fatalf("what was written of %q: %v", text, err)
		}
		if trace.Check() == nil && !reflect.DeepEqual(again, trace) {
			t.Errorf("got %+v\nwant %+v", again, trace)
		}
	})
}
