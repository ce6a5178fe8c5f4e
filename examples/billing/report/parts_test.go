package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// M-02: percentiles by nearest rank, against a published example and the definition.
func TestPercentilesAreByNearestRank(t *testing.T) {
	published := []time.Duration{15, 20, 35, 40, 50}
	for p, want := range map[int]time.Duration{5: 15, 30: 20, 40: 20, 50: 35, 100: 50} {
		if got := percentile(published, p); got != want {
			t.Errorf("percentile %d: got %d, want %d", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("none has a percentile")
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 50), func(n int) time.Duration { return time.Duration(n) }), 1, 300).Draw(t, "all")
		slices.Sort(all)
		p := rapid.IntRange(1, 100).Draw(t, "p")
		got := percentile(all, p)
		notAbove, below := 0, 0
		for _, one := range all {
			if one <= got {
				notAbove++
			}
			if one < got {
				below++
			}
		}
		// It is the least value that at least p per cent do not exceed.
		if 100*notAbove < p*len(all) || 100*below >= p*len(all) || !slices.Contains(all, got) {
			t.Fatalf("percentile %d of %v: %d", p, all, got)
		}
	})
}

func TestFormulasAreTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"acme":                    "acme",
		"a=b, c-d and e@f":        "a=b, c-d and e@f",
		"=1+1":                    "'=1+1",
		"+49 30":                  "'+49 30",
		"-5":                      "'-5",
		"@SUM(A1)":                "'@SUM(A1)",
		"＝1":                      "'＝1",
		"\t=1":                    "\t'=1",
		"\r\n=1":                  "\r\n'=1",
		"  =1":                    "  '=1",
		`"=1`:                     `"'=1`,
		"acme;=cmd|' /C calc'!A0": "acme;'=cmd|' /C calc'!A0",
		"acme, =1":                "acme, '=1",
		"a\n\"-1":                 "a\n\"'-1",
	} {
		if got := guarded(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzFormulasAreTexts(f *testing.F) {
	for _, seed := range []string{"=1", ";=1", "a\t +1", "''=1", "\xff=1"} {
		f.Add(seed)
	}
	dangerous := regexp.MustCompile("(^|[,;\t|\r\n])[ \"\u00a0\u3000]*[=+\\-@＝＋－＠]")
	f.Fuzz(func(t *testing.T, text string) {
		got := guarded(text)
		if dangerous.MatchString(got) {
			t.Errorf("%q stays %q", text, got)
		}
		if strings.ReplaceAll(got, "'", "") != strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "'", "") && strings.ToValidUTF8(text, "") == text {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

// TestChartsStayInTheirFrame: whatever the values, and labels of lines do not overlap.
func TestChartsStayInTheirFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 0, 100).Draw(t, "values")
		var bars []bar
		for _, v := range values {
			bars = append(bars, bar{value: v})
		}
		var lines []line
		for _, v := range rapid.SliceOfN(rapid.Float64Range(0, 1e9), 0, 4).Draw(t, "lines") {
			lines = append(lines, line{value: v})
		}
		c := columns("", bars, lines, short, [3]string{})
		for _, one := range c.Columns {
			if one.Y < plotTop-1e-6 || one.Y+one.Height > c.Base+1e-6 || one.X < 0 || one.X+one.Width > 100+1e-6 || one.Height < 0.99 {
				t.Fatalf("a column is outside: %+v of %+v", one, c)
			}
		}
		for n, one := range c.Lines {
			if one.Y < plotTop-1e-6 || one.Y > c.Base+1e-6 || one.LabelY < 10 || one.LabelY > c.Height+1e-6 {
				t.Fatalf("a line is outside: %+v of %+v", one, c)
			}
			if n > 0 && math.Abs(one.LabelY-c.Lines[n-1].LabelY) < labelHeight-1e-6 {
				t.Fatalf("labels overlap: %+v", c.Lines)
			}
		}
		if len(c.Ticks) < 2 || len(c.Ticks) > 7 {
			t.Fatalf("%d ticks: %+v", len(c.Ticks), c.Ticks)
		}
	})
}

func TestALineFarAboveDoesNotFlattenTheRest(t *testing.T) {
	c := columns("", []bar{{value: 1}, {value: 2}}, []line{{value: 3600, label: "SLA"}, {value: 3.5, label: "near"}}, short, [3]string{})
	if len(c.Lines) != 1 || c.Lines[0].Label != "near" || c.Columns[1].Height < plotHeight/4 {
		t.Errorf("got %+v", c)
	}
}

func TestNumbersAreForPeople(t *testing.T) {
	for _, one := range []struct{ got, want string }{
		{grouped("1234567.89"), "1,234,567.89"}, {grouped("-123"), "-123"}, {grouped("-1234"), "-1,234"}, {grouped("12"), "12"},
		{count(0), "0"}, {plural(1, "batch", "batches"), "1 batch"}, {plural(1000, "batch", "batches"), "1,000 batches"},
		{duration(0), "0 s"}, {duration(350 * time.Millisecond), "350 ms"}, {duration(4213 * time.Millisecond), "4.21 s"},
		{duration(59999 * time.Millisecond), "1 min"}, {duration(125 * time.Second), "2 min 5 s"}, {duration(3*time.Hour + 20*time.Minute), "3 h 20 min"},
		{duration(50 * time.Hour), "2 d 2 h"}, {duration(-time.Second), "−1 s"},
		{dollars(0), "$0"}, {dollars(1234.5), "$1,234.50"}, {dollars(0.0123), "$0.0123"}, {dollars(0.00005), "$0.000050"},
		{percent(1, 3), "33.3\u00a0%"}, {percent(30, 30), "100\u00a0%"}, {percent(99999, 100000), "99.9\u00a0%"}, {percent(0, 0), "0\u00a0%"},
		{short(0.25), "0.25"}, {short(25553.3), "25,553"}, {short(12.345), "12.3"},
	} {
		if one.got != one.want {
			t.Errorf("got %q, want %q", one.got, one.want)
		}
	}
}

// TestColoursHaveContrast computes the contrast of WCAG 2: 4.5 for text, 3 for what else must be told apart.
func TestColoursHaveContrast(t *testing.T) {
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(pageStyle, -1)
	if len(schemes) != 3 {
		t.Fatalf("got %d schemes, want light, dark and print", len(schemes))
	}
	for n, scheme := range schemes {
		colours := map[string]float64{}
		for _, c := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(scheme[1], -1) {
			colours[c[1]] = luminance(t, c[2])
		}
		for _, one := range []struct {
			front, back string
			least       float64
		}{
			{"ink", "paper", 7}, {"soft", "paper", 4.5}, {"data", "paper", 4.5}, {"alarm", "paper", 4.5}, {"ink", "alarm-wash", 4.5},
			{"data", "track", 3}, {"contrast", "track", 3}, {"contrast", "paper", 3},
		} {
			a, b := colours[one.front], colours[one.back]
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < one.least {
				t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %v", n, one.front, one.back, got, one.least)
			}
		}
	}
}

func luminance(t *testing.T, hex string) (sum float64) {
	t.Helper()
	if len(hex) == 3 {
		hex = fmt.Sprintf("%c%c%c%c%c%c", hex[0], hex[0], hex[1], hex[1], hex[2], hex[2])
	}
	for n, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v, err := strconv.ParseUint(hex[2*n:2*n+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(v) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
