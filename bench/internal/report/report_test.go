package report

import (
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{{hundred, 50, 50}, {hundred, 95, 95}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred[:3], 50, 2}, {hundred[:10], 99, 10}} {
		if got := Percentile(c.sorted, c.percent); got != c.want {
			t.Errorf("%d %% of %d: got %d, want %d", c.percent, len(c.sorted), got, c.want)
		}
	}
}

// TestTimesBeyondTheAxisAreAtItsEnds: and each power of ten is as wide as the next.
func TestTimesBeyondTheAxisAreAtItsEnds(t *testing.T) {
	axis := TimeAxis{Left: 190, Right: 830}
	for d, want := range map[time.Duration]float64{-1: 190, shortest: 190, time.Millisecond: 318, 10 * time.Millisecond: 446, longest: 830, time.Hour: 830} {
		if got := axis.Position(d); math.Abs(got-want) > 0.01 {
			t.Errorf("position of %v: got %v, want %v", d, got, want)
		}
	}
}

// TestAPageWithoutMarksIsLeftAlone: the error names the mark that is missing.
func TestAPageWithoutMarksIsLeftAlone(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.Mkdir(filepath.Join(filepath.Dir(page), "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Report{name: "speed", page: page}
	begin, end := r.marks()
	for _, text := range []string{"no marks\n", begin, end} {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.Write(io.Discard, "", "table", "plot"); err == nil || !strings.Contains(err.Error(), "speed: end") {
			t.Errorf("a page of %q: got %v, want an error that names the marks", text, err)
		}
		if got, err := os.ReadFile(page); err != nil || string(got) != text {
			t.Errorf("a page of %q: got %q, %v after the error", text, got, err)
		}
	}
}

// TestThePlotIsWhereItWasAskedFor: in the file of -svg, and with -page in the images of the page.
func TestThePlotIsWhereItWasAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.svg")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	r := New("speed", flags)
	if err := flags.Parse([]string{"-svg", file}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.Write(&out, "above", "table", "plot"); err != nil || out.String() != "table" {
		t.Errorf("got %v and the output %q, want the table alone", err, out.String())
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "plot" {
		t.Errorf("-svg: got %q, %v, want the plot", got, err)
	}
	if err := (&Report{svg: filepath.Join(file, "none")}).Write(io.Discard, "", "", ""); err == nil {
		t.Error("a file that cannot be written: got no error")
	}
}
