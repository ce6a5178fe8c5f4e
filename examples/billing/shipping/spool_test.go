package shipping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/billing/records"
)

// batches makes the batches that are left.
func batches(t *testing.T, s *Spool) []*Batch {
	t.Helper()
	var all []*Batch
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// recordsOf reads the records of a batch, as a worker does.
func recordsOf(t *testing.T, b *Batch) []records.Record {
	t.Helper()
	var all []records.Record
	for n, p := range b.Manifest.Pieces {
		piece, err := b.readPiece(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := len(all)
		for r, err := range records.ReadPiece(bytes.NewReader(piece), "piece") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		if got := len(all) - before; got != p.Records {
			t.Errorf("records of piece %d: got %d, want %d", n, got, p.Records)
		}
	}
	return all
}

// usage is a source with these lines of a usage file.
func usage(file string, lines ...string) Source {
	text := "id,time,account,tariff,quantity\n" + strings.Join(lines, "\n")
	return Source{File: file, Lines: records.Read(strings.NewReader(text), file)}
}

func TestEachDayIsABatchWhateverTheOrderOfItsLines(t *testing.T) {
	days := []string{"2026-11-19", "2026-11-21", "2026-11-24"}
	var all []records.Record
	want := make(map[string][]string)
	for _, day := range days {
		for n := range 50 {
			all = append(all, record(day, n))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, r := range all {
		want[r.Day()] = append(want[r.Day()], fmt.Sprint(r))
	}
	s := spoolOf(t, Records("f", slices.Values(all)))
	got := batches(t, s)
	if s.Records() != len(all) || s.Rejected() != 0 || len(got) != len(days) {
		t.Fatalf("got %d records, %d rejected lines and %d batches, want %d, 0 and %d", s.Records(), s.Rejected(), len(got), len(all), len(days))
	}
	for i, b := range got {
		var lines []string
		for _, r := range recordsOf(t, b) {
			lines = append(lines, fmt.Sprint(r))
		}
		if b.Manifest.Batch != days[i] || !slices.Equal(lines, want[days[i]]) {
			t.Errorf("batch %s: got %v, want %s with %v", b.Manifest.Batch, lines, days[i], want[days[i]])
		}
	}
	if again := batches(t, s); len(again) != 0 {
		t.Errorf("batches asked for again: got %d, want 0", len(again))
	}
}

func TestTheDayIsThatOfUTC(t *testing.T) {
	s := spoolOf(t, usage("f", "a,2026-11-21T00:30:00+01:00,x,power,1"))
	if got := batches(t, s); len(got) != 1 || got[0].Manifest.Batch != "2026-11-20" {
		t.Errorf("got %v, want a batch of 2026-11-20", got)
	}
}

func TestLinesThatAreNoRecordsAreRejectedWithTheirDay(t *testing.T) {
	var told []string
	bad := "b,2026-11-21T00:00:00Z,x,power,-1"
	sources := []Source{
		usage("one.csv", "nonsense", "a,2026-11-21T00:00:00Z,x,power,1", bad, "a,2026-11-22T00:00:00Z,x,power,1", bad),
		usage("two.csv", bad), // without any record: with the last one before
	}
	s, err := Consolidate(t.Context(), t.TempDir(), slices.Values(sources), &SpoolOptions{Rejected: func(r records.Rejection) { told = append(told, r.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := batches(t, s)
	if len(got) != 2 || s.Rejected() != 4 || len(told) != 4 {
		t.Fatalf("got %d batches, %d rejected lines and %v, want 2, 4 and 4", len(got), s.Rejected(), told)
	}
	for i, want := range [][]string{{"one.csv:2", "one.csv:4"}, {"one.csv:6", "two.csv:2"}} {
		var lines []string
		for _, r := range got[i].Manifest.Rejected {
			if lines = append(lines, fmt.Sprintf("%s:%d", r.File, r.Line)); r.Reason == "" {
				t.Errorf("rejection: got %v, want a reason", r)
			}
		}
		if !slices.Equal(lines, want) {
			t.Errorf("rejected lines of %s: got %v, want %v", got[i].Manifest.Batch, lines, want)
		}
	}
}

func TestADayWithoutRecordsIsNoBatch(t *testing.T) {
	s := spoolOf(t, usage("f", "nonsense"))
	if got := batches(t, s); len(got) != 0 || s.Rejected() != 1 {
		t.Errorf("got %d batches and %d rejected lines, want 0 and 1", len(got), s.Rejected())
	}
}

func TestADuplicateNamesTheLineOfTheFirst(t *testing.T) {
	s := spoolOf(t,
		usage("one.csv", `"a,""b""",2026-11-21T00:00:00Z,x,power,1`, "c,2026-11-21T00:00:00Z,x,power,1", `"a,""b""",2026-11-21T01:00:00Z,x,power,2`,
			"c,2026-11-22T00:00:00Z,x,power,1"), // on another day it is another record
		usage("two.csv", "c,2026-11-21T00:00:00Z,x,power,1"),
	)
	got := batches(t, s)
	want := []records.Rejection{
		{File: "one.csv", Line: 4, ID: `a,"b"`, Reason: `the id a,"b" was on line 2 before`},
		{File: "two.csv", Line: 2, ID: "c", Reason: "the id c was on line 3 of one.csv before"},
	}
	if len(got) != 2 || !slices.Equal(got[0].Manifest.Rejected, want) || got[0].Manifest.Records() != 2 {
		t.Fatalf("got %+v, want 2 records and %v", got[0].Manifest, want)
	}
	if got[1].Manifest.Records() != 1 || len(got[1].Manifest.Rejected) != 0 || s.Rejected() != 2 {
		t.Errorf("the next day: got %+v and %d rejected lines in all, want 1 record and 2", got[1].Manifest, s.Rejected())
	}
}

func TestPiecesEndAtTheirLimits(t *testing.T) {
	b := batches(t, spoolOf(t, Records("f", daily(today, 0, 2*MaxPieceRecords+1))))[0]
	for n, want := range []int{MaxPieceRecords, MaxPieceRecords, 1} {
		if got := b.Manifest.Pieces[n].Records; got != want {
			t.Errorf("records of piece %d: got %d, want %d", n, got, want)
		}
	}
	long := func(yield func(records.Record) bool) {
		for n := range 3000 {
			r := record(today, n)
			r.Account = strings.Repeat("€", 64)
			if !yield(r) {
				return
			}
		}
	}
	b = batches(t, spoolOf(t, Records("f", long)))[0]
	if len(b.Manifest.Pieces) < 2 || b.Manifest.Pieces[0].Bytes < MaxPieceBytes-1000 || b.Manifest.Check() != nil {
		t.Errorf("long lines: got %+v, want pieces of nearly %d bytes", b.Manifest.Pieces, MaxPieceBytes)
	}
	if got := len(recordsOf(t, b)); got != 3000 {
		t.Errorf("records: got %d, want 3000", got)
	}
}

func TestPiecesNameTheirFile(t *testing.T) {
	b := batches(t, spoolOf(t, Records("one", daily(today, 0, 2)), Records("two", daily(today, 2, 2))))[0]
	if len(b.Manifest.Pieces) != 2 || b.Manifest.FileOf(0) != "one" || b.Manifest.FileOf(1) != "two" || b.Manifest.File != "one" {
		t.Errorf("got %+v, want a piece of one and a piece of two", b.Manifest)
	}
}

func TestManyRejectedLinesAreCounted(t *testing.T) {
	bad := slices.Repeat([]string{"nonsense"}, MaxRejected+10)
	good := "a,2026-11-21T00:00:00Z,x,power,1"
	for name, lines := range map[string][]string{"before": append(slices.Clone(bad), good), "after": append([]string{good}, bad...)} {
		b := batches(t, spoolOf(t, usage("f", lines...)))[0]
		if len(b.Manifest.Rejected) != MaxRejected || b.Manifest.MoreRejected != 10 || b.Manifest.Check() != nil {
			t.Errorf("%s the record: got %d and %d more, want %d and 10 more", name, len(b.Manifest.Rejected), b.Manifest.MoreRejected, MaxRejected)
		}
	}
}

// A file without a single record has no day of its own, and its lines must be in a report all the same.
func TestRejectedLinesOfAFileWithoutRecordsGoToABatch(t *testing.T) {
	for _, name := range []string{"before", "after"} {
		sources := []Source{usage("bad", "nonsense", "more nonsense"), usage("good", "a,2026-11-21T00:00:00Z,x,power,1")}
		if name == "after" {
			slices.Reverse(sources)
		}
		b := batches(t, spoolOf(t, sources...))[0]
		if got := b.Manifest.Rejected; len(got) != 2 || got[0].File != "bad" || got[1].Line != got[0].Line+1 {
			t.Errorf("%s the record: got %v, want both lines", name, got)
		}
	}
}

// Rejections with long texts do not make a manifest that a server refuses.
func TestLongRejectionsLeaveTheManifestSmallEnough(t *testing.T) {
	lines := func(yield func(records.Record, error) bool) {
		if !yield(record(today, 0), nil) {
			return
		}
		for n := range MaxRejected {
			if !yield(records.Record{}, &records.Rejection{File: "f", Line: n, ID: strings.Repeat("\x00", 600), Reason: strings.Repeat("\xff", 9000)}) {
				return
			}
		}
	}
	b := batches(t, spoolOf(t, Source{File: "f", Lines: lines}))[0]
	text, _, err := b.Manifest.encode()
	if err != nil || len(b.Manifest.Rejected)+b.Manifest.MoreRejected != MaxRejected || b.Manifest.MoreRejected == 0 {
		t.Errorf("got %d bytes, %v, %d rejected lines and %d more", len(text), err, len(b.Manifest.Rejected), b.Manifest.MoreRejected)
	}
}

func TestAFileThatCannotBeReadMakesNoBatch(t *testing.T) {
	broken := errors.New("the disk is gone")
	half := func(yield func(records.Record, error) bool) {
		if yield(record(today, 0), nil) {
			yield(records.Record{}, broken)
		}
	}
	folder := t.TempDir()
	_, err := Consolidate(t.Context(), folder, slices.Values([]Source{{File: "half.csv", Lines: half}}), nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "half.csv") {
		t.Errorf("got %v, want the error of half.csv", err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, today+"*")); len(left) > 0 || err != nil {
		t.Errorf("left: got %v, %v, want nothing", left, err)
	}
}

func TestConsolidationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	lines := func(yield func(records.Record, error) bool) {
		for n := 0; yield(record(today, n), nil); n++ {
			if n == 10 {
				cancel(enough)
			}
		}
	}
	if _, err := Consolidate(ctx, t.TempDir(), slices.Values([]Source{{File: "f", Lines: lines}}), nil); !errors.Is(err, enough) {
		t.Errorf("got %v, want the cause", err)
	}
	s := spoolOf(t, Records("f", daily(today, 0, 3)))
	for b, err := range s.Batches(ctx) {
		if b != nil || !errors.Is(err, enough) {
			t.Errorf("batches: got %v, %v, want the cause", b, err)
		}
	}
}

// What another process left, of whatever content, is no part of a batch; what is no spool file stays.
func TestASpoolFolderIsCleanedOfNothingElse(t *testing.T) {
	folder := t.TempDir()
	foreign := []string{"notes.csv", "2026-02-30.csv", "2026-11-21.csv.bak", "spool"}
	for _, name := range append(slices.Clone(foreign), today+daySuffix, today+batchSuffix, "1999-01-01"+daySuffix) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("Rgarbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Consolidate(t.Context(), folder, slices.Values([]Source{Records("f", daily(today, 0, 3))}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := batches(t, s); len(got) != 1 || len(recordsOf(t, got[0])) != 3 {
		t.Errorf("got %d batches, want 1 of 3 records", len(got))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := append(slices.Clone(foreign), lockFile)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left: got %v, want %v", left, want)
	}
}

func TestASpoolFolderHasOneUser(t *testing.T) {
	folder := t.TempDir()
	s, err := Consolidate(t.Context(), folder, none, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Consolidate(t.Context(), folder, none, nil); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), folder) {
		t.Errorf("got %v, want that %s is in use", err, folder)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Consolidate(t.Context(), folder, none, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, today+daySuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Consolidate(t.Context(), folder, slices.Values([]Source{Records("f", daily(today, 0, 1))}), nil)
	if err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("got %v, want an error with the folder", err)
	}
}

// A spool file that loses bytes is an error, never a smaller batch.
func TestASpoolFileThatLostBytesMakesNoBatch(t *testing.T) {
	folder := t.TempDir()
	s, err := Consolidate(t.Context(), folder, slices.Values([]Source{Records("f", daily(today, 0, 3))}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(folder, today+daySuffix)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range text {
		if err := os.WriteFile(path, text[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		for b, err := range s.Batches(t.Context()) {
			if err == nil {
				t.Fatalf("the first %d bytes of %d: got %+v, want an error", size, len(text), b.Manifest)
			}
		}
	}
}

func TestABatchOfHundredsOfThousandsOfRecords(t *testing.T) {
	const n = 300_000
	s := spoolOf(t, Records("f", daily(today, 0, n)), Records("again", daily(today, 7, 1)))
	b := batches(t, s)[0]
	if b.Manifest.Records() != n || len(b.Manifest.Pieces) != n/MaxPieceRecords || len(b.Manifest.Rejected) != 1 || b.Manifest.Rejected[0].Line != 9 {
		t.Errorf("got %d records, %d pieces and %v", b.Manifest.Records(), len(b.Manifest.Pieces), b.Manifest.Rejected)
	}
}

// Days come in any order, so many that no buffer is full when it is written, and nothing is lost.
func TestAThousandDaysInRandomOrder(t *testing.T) {
	const days, each = 1000, 60
	first, _ := time.Parse(time.DateOnly, "2024-01-01")
	rng := rand.New(rand.NewPCG(3, 4))
	all := func(yield func(records.Record) bool) {
		for _, i := range rng.Perm(days * each) {
			r := record(today, i)
			r.Time = first.AddDate(0, 0, i%days)
			if !yield(r) {
				return
			}
		}
	}
	s := spoolOf(t, Records("f", all))
	got := batches(t, s)
	if len(got) != days {
		t.Fatalf("batches: got %d, want %d", len(got), days)
	}
	for _, b := range got {
		if b.Manifest.Records() != each {
			t.Fatalf("records of %s: got %d, want %d", b.Manifest.Batch, b.Manifest.Records(), each)
		}
	}
}

// Each line of any sources is either in exactly one piece or in exactly one rejection, if there is a record at all.
func TestNoLineIsLostOrDoubled(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		kind := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 60)
		var sources []Source
		want, days := 0, false
		for n := range rapid.IntRange(0, 4).Draw(r, "files") {
			var lines []string
			for _, k := range kind.Draw(r, "lines") {
				line := "nonsense"
				if k > 1 {
					line = fmt.Sprintf("id%d,2026-11-%02dT00:00:00Z,x,power,1", k, 20+k%3+rapid.IntRange(0, 1).Draw(r, "day"))
				}
				lines = append(lines, line)
			}
			want += len(lines)
			days = days || slices.ContainsFunc(lines, func(l string) bool { return l != "nonsense" })
			sources = append(sources, usage(fmt.Sprint(n), lines...))
		}
		if !days {
			want = 0 // there is no batch
		}
		s := spoolOf(t, sources...)
		got := make(map[string]int)
		for _, b := range batches(t, s) {
			for n := range b.Manifest.Pieces {
				piece, err := b.readPiece(n, nil)
				if err != nil {
					r.Fatal(err)
				}
				for record, err := range records.ReadPiece(bytes.NewReader(piece), "piece") {
					if err != nil {
						r.Fatal(err)
					}
					got[fmt.Sprint(b.Manifest.FileOf(n), ":", record.Line)]++
				}
			}
			for _, rejection := range b.Manifest.Rejected {
				got[fmt.Sprint(rejection.File, ":", rejection.Line)]++
			}
		}
		for line, times := range got {
			if times != 1 {
				r.Errorf("line %s: got it %d times", line, times)
			}
		}
		if len(got) != want {
			r.Errorf("lines: got %d, want %d", len(got), want)
		}
		if err := s.Close(); err != nil {
			r.Fatal(err)
		}
	})
}
