package web

import (
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// TestTextCanBeReadInBothSchemes computes the contrast of the colours of text and of what they are on, as WCAG does.
func TestTextCanBeReadInBothSchemes(t *testing.T) {
	sheet, err := fs.ReadFile(files, "static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	type pair [2]string // light and dark
	colours := make(map[string]pair)
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)`).FindAllStringSubmatch(string(sheet), -1) {
		colours[m[1]] = pair{m[2], m[3]}
	}
	const text, control = 4.5, 3
	for _, c := range []struct {
		front, back string
		least       float64
	}{
		{"ink", "paper", text}, {"ink", "sheet", text}, {"ink", "well", text}, {"ink", "alarm-wash", text},
		{"soft", "paper", text}, {"soft", "sheet", text},
		{"accent", "paper", text}, {"accent", "sheet", text}, {"on-accent", "accent", text},
		{"alarm", "paper", text}, {"alarm", "alarm-wash", text},
		{"edge", "paper", control}, {"edge", "sheet", control}, {"accent", "line", control},
	} {
		front, ok := colours[c.front]
		back, found := colours[c.back]
		if !ok || !found {
			t.Fatalf("the style has no colour %s or %s", c.front, c.back)
		}
		for i, scheme := range []string{"light", "dark"} {
			a, b := luminance(t, front[i]), luminance(t, back[i])
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < c.least {
				t.Errorf("%s on %s, %s: contrast %.2f, want %v or more", c.front, c.back, scheme, got, c.least)
			}
		}
	}
}

// luminance is the relative luminance of a colour such as 1b2125.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

func TestNumbersAreWrittenAsTheScriptDoes(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 2880: "2,880", 123456: "123,456", 400000000: "400,000,000", -1234: "-1,234", -123: "-123"} {
		if got := countText(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
