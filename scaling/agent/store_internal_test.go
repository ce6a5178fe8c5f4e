package agent

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/scaling"
)

// samples generates a history.
func samples(t *rapid.T) (h scaling.History) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range rapid.IntRange(0, 20).Draw(t, "samples") {
		at = at.Add(time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "later")))
		s := scaling.Sample{At: at, Instances: rapid.IntRange(0, 100).Draw(t, "instances")}
		if rapid.Bool().Draw(t, "known") {
			s.Depth, s.Arrival = scaling.Known(rapid.Int64().Draw(t, "depth")), scaling.Known(rapid.Float64Range(0, 1e12).Draw(t, "arrival"))
			s.HeadAge = scaling.Known(time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "age")))
		}
		h = append(h, s)
	}
	return h
}

// What is written is read again, and no part of a file passes for a whole one.
func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := samples(t)
		text, err := formatHistory("pool", h)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		got, err := parseHistory(text, "pool", now)
		if err != nil || !slices.Equal(got, h) {
			t.Fatalf("got %v, %v, want %v", got, err, h)
		}
		cut := rapid.IntRange(0, len(text)-2).Draw(t, "cut") // a last line break alone may be missing
		if got, err := parseHistory(text[:cut], "pool", now); err == nil {
			t.Fatalf("of %d bytes %d: got %d samples, want an error", len(text), cut, len(got))
		}
		// What lies in the future is left out.
		if len(h) > 0 {
			i := rapid.IntRange(0, len(h)-1).Draw(t, "now")
			if got, err := parseHistory(text, "pool", h[i].At); err != nil || len(got) != i+1 {
				t.Fatalf("read at the time of sample %d: got %d samples, %v", i, len(got), err)
			}
		}
	})
}

// A file may have anything in it.
func FuzzParseHistory(f *testing.F) {
	h := scaling.History{{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Instances: 3, Depth: scaling.Known[int64](5)}}
	text, err := formatHistory("pool", h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("\n\n\n"))
	f.Add(bytes.Replace(text, []byte(`{"samples":1}`), []byte(`{"samples":null}`), 1))
	f.Add(bytes.Replace(text, []byte(`"instances":3`), []byte(`"instances":1e99`), 1))
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHistory(text, "pool", now)
		if err != nil {
			return
		}
		for i := range h {
			if h[i].At.After(now) || i > 0 && !h[i].At.After(h[i-1].At) {
				t.Errorf("sample %d is out of order: %v", i, h)
			}
		}
		again, err := formatHistory("pool", h)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseHistory(again, "pool", now); err != nil || len(got) != len(h) {
			t.Errorf("written and read again: got %d samples, %v, want %d", len(got), err, len(h))
		}
	})
}

// What is appended is read again. A kill in the middle of it costs the sample that was appended, and no other.
func TestASampleIsAppended(t *testing.T) {
	s, err := openStore(t.TempDir(), "pool")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := scaling.History{{At: at, Instances: 1}}
	if s.append(t.Context(), h); s.lines != 0 {
		t.Fatal("appended to a file that this process has not written")
	}
	if err := s.write(t.Context(), h, false); err != nil {
		t.Fatal(err)
	}
	text := make([][]byte, 4) // with so many samples
	for n := 1; n < len(text); n++ {
		if text[n], err = os.ReadFile(s.new); err != nil {
			t.Fatal(err)
		}
		h = append(h, scaling.Sample{At: at.Add(time.Duration(n) * time.Second), Instances: n + 1})
		s.append(t.Context(), h)
		s.append(t.Context(), h) // the same again
	}
	got, err := readHistory(s.new, "pool", at.Add(time.Hour))
	if err != nil || !slices.Equal(got, h) {
		t.Fatalf("got %v, %v, want %v", got, err, h)
	}
	for n := 2; n < len(text); n++ {
		for cut := len(text[n-1]); cut < len(text[n])-1; cut++ { // a last line break alone may be missing
			got, err := parseHistory(text[n][:cut], "pool", at.Add(time.Hour))
			if err != nil || !slices.Equal(got, h[:n-1]) {
				t.Fatalf("of %d bytes %d: got %v, %v, want %v", len(text[n]), cut, got, err, h[:n-1])
			}
		}
	}
	if err := os.Remove(s.new); err != nil {
		t.Fatal(err)
	}
	h = append(h, scaling.Sample{At: at.Add(time.Minute)})
	if s.append(t.Context(), h); s.lines != 0 {
		t.Error("appends go on although one has failed")
	}
	if err := s.write(t.Context(), h, false); err != nil || s.lines != len(h) {
		t.Errorf("the next write: got %d lines, %v, want %d", s.lines, err, len(h))
	}
}

// A kill between the writes of the two files leaves some samples in both. They are read once, and what is in the large file is not
// written to the small one again.
func TestAKillBetweenTheTwoFiles(t *testing.T) {
	folder := t.TempDir()
	s, err := openStore(folder, "pool")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var h scaling.History
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	add := func(minutes int) {
		for range minutes {
			at = at.Add(time.Minute)
			h = append(h, scaling.Sample{At: at, Instances: len(h)})
		}
	}
	write := func(s *store) {
		t.Helper()
		if err := s.write(t.Context(), h, false); err != nil {
			t.Fatal(err)
		}
	}
	add(115)
	write(s)
	before, err := os.ReadFile(s.new)
	if err != nil {
		t.Fatal(err)
	}
	add(10)
	write(s) // moves what is older than an hour
	if err := os.WriteFile(s.new, before, 0o600); err != nil {
		t.Fatal(err)
	}
	next := &store{pool: s.pool, folder: s.folder, lock: s.lock, old: s.old, new: s.new}
	got, errs := next.read(at)
	if len(errs) != 0 || !slices.Equal(got, h[:115]) {
		t.Fatalf("got %d samples, %v, want the 115 before the kill", len(got), errs)
	}
	write(next)
	small, err := readHistory(s.new, "pool", at)
	if err != nil || len(small) != 60 || !small[len(small)-1].At.Equal(at) {
		t.Errorf("the small file: got %d samples, %v, want the 60 that are not in the large one", len(small), err)
	}
}
