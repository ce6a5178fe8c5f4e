package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"github.com/shopspring/decimal"
)

const header = "id,time,account,tariff,quantity\n"

// readAll returns what Read gives: the records, the rejections, and the error that ended it.
func readAll(r io.Reader, file string) (all []Record, rejected []Rejection, err error) {
	for record, err := range Read(r, file) {
		var rejection *Rejection
		switch {
		case errors.As(err, &rejection):
			rejected = append(rejected, *rejection)
		case err != nil:
			return all, rejected, err
		default:
			all = append(all, record)
		}
	}
	return all, rejected, nil
}

// good is a record of line n with its line of CSV.
func good(n int) (Record, string) {
	r := Record{
		Line: n, ID: fmt.Sprintf("g%d", n), Time: time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC),
		Account: "Meier", Tariff: "water", Quantity: decimal.New(125, -1),
	}
	return r, r.ID + ",2026-11-21T08:30:00Z,Meier,water,12.5\n"
}

func equalRecords(a, b Record) bool {
	equal := a.Quantity.Equal(b.Quantity)
	a.Quantity, b.Quantity = decimal.Decimal{}, decimal.Decimal{}
	return equal && a == b
}

func TestARecordHasEverythingOfItsLine(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       Record
	}{
		{"plain", header + "u1,2026-11-21T08:30:00.25Z,Meier & Co,water-de,0012.500\n",
			Record{2, "u1", time.Date(2026, 11, 21, 8, 30, 0, 250e6, time.UTC), "Meier & Co", "water-de", decimal.New(125, -1)}},
		{"other order, other columns, BOM, CRLF, quotes, no end", "\ufeffnote,quantity,\"tariff\",account,time,id\r\n\"a,b\",1000000000000,t,\"Koch, \"\"K\"\"\",2026-11-21T00:30:00+01:00,ü",
			Record{2, "ü", time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC), `Koch, "K"`, "t", decimal.New(1, 12)}},
		{"empty lines", "\n\r\n" + header + "\n\nu,2026-11-21T08:30:00Z,a,t,0\n\n",
			Record{6, "u", time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC), "a", "t", decimal.Decimal{}}},
		{"more digits than an int64 has", header + "u,2026-11-21T08:30:00Z,a,t,9999999999.999999999",
			Record{2, "u", time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC), "a", "t", decimal.RequireFromString("9999999999.999999999")}},
		{"all digits", header + "u,2026-11-21T08:30:00Z,a,t,999999999999.123456789",
			Record{2, "u", time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC), "a", "t", decimal.RequireFromString("999999999999.123456789")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.file), iotest.OneByteReader(strings.NewReader(c.file))} {
				all, rejected, err := readAll(r, "u.csv")
				if err != nil || len(rejected) > 0 || len(all) != 1 || !equalRecords(all[0], c.want) {
					t.Errorf("got %+v, %v, %v; want %+v", all, rejected, err, c.want)
				}
			}
		})
	}
}

// badLines are lines that are rejected, with their ids and reasons.
var badLines = []struct{ line, id, reason string }{
	{`"x,2026-11-21T08:30:00Z,a,t,1`, "", "a quote is not closed before the end of the line"},
	{`x,2026-11-21T08:30:00Z,a,"t,1`, "", "a quote is not closed before the end of the line"},
	{`x,2026-11-21T08:30:00Z,a"b,t,1`, "", "field 3 has a quote but does not begin with one"},
	{`x,2026-11-21T08:30:00Z,"a"b,t,1`, "", "there is text after a closing quote"},
	{"x,2026-11-21T08:30:00Z,a,t", "", "the line has 4 fields, the header 5"},
	{"x,2026-11-21T08:30:00Z,a,t,1,5", "", "the line has 6 fields, the header 5"},
	{"x;2026-11-21T08:30:00Z;a;t;1", "", "the line has 1 fields, the header 5"},
	{"x,2026-11-21T08:30:00Z,a\x00,t,1", "", "byte 25 is a control character, 0x00"},
	{"x,2026-11-21T08:30:00Z,a\tb,t,1", "", "byte 25 is a control character, 0x09"},
	{"x,2026-11-21T08:30:00Z,a\rb,t,1", "", "byte 25 is a control character, 0x0d"},
	{"x,2026-11-21T08:30:00Z,\xff,t,1", "", "byte 24, 0xff, is not UTF-8"},
	{"x,2026-11-21T08:30:00Z,\u00e9\xc3,t,1", "", "byte 26, 0xc3, is not UTF-8"},
	{",2026-11-21T08:30:00Z,a,t,1", "", "id is empty"},
	{" x,2026-11-21T08:30:00Z,a,t,1", "", `id " x" begins or ends with a space`},
	{"x,,a,t,1", "x", "time is empty"},
	{"x,21.11.2026,a,t,1", "x", `time "21.11.2026" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T08:30:00,a,t,1", "x", `time "2026-11-21T08:30:00" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-02-30T08:30:00Z,a,t,1", "x", `time "2026-02-30T08:30:00Z" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T8:30:00Z,a,t,1", "x", `time "2026-11-21T8:30:00Z" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T08:30:00,5Z,a,t,1", "", "the line has 6 fields, the header 5"},
	{`x,"2026-11-21T08:30:00,5Z",a,t,1`, "x", `time "2026-11-21T08:30:00,5Z" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T08:30:00+24:00,a,t,1", "x", `time "2026-11-21T08:30:00+24:00" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T08:30:00+01:60,a,t,1", "x", `time "2026-11-21T08:30:00+01:60" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,2026-11-21T23:59:60Z,a,t,1", "x", `time "2026-11-21T23:59:60Z" is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00`},
	{"x,1970-01-01T00:00:00+00:01,a,t,1", "x", `time "1970-01-01T00:00:00+00:01" is not between 1970 and 9999`},
	{"x,9999-12-31T23:59:59-00:01,a,t,1", "x", `time "9999-12-31T23:59:59-00:01" is not between 1970 and 9999`},
	{"x,2026-11-21T08:30:00Z,,t,1", "x", "account is empty"},
	{"x,2026-11-21T08:30:00Z,a ,t,1", "x", `account "a " begins or ends with a space`},
	{"x,2026-11-21T08:30:00Z,a\u202eb,t,1", "x", `account "a\u202eb" has a character that cannot be printed`},
	{"x,2026-11-21T08:30:00Z," + strings.Repeat("ü", 65) + ",t,1", "x",
		`account "` + strings.Repeat("ü", 40) + `…" has 65 characters, at most 64 are allowed`},
	{"x,2026-11-21T08:30:00Z,a,,1", "x", "tariff is empty"},
	{"x,2026-11-21T08:30:00Z,a,t,", "x", "quantity is empty"},
	{"x,2026-11-21T08:30:00Z,a,t,-5", "x", `quantity "-5" is negative`},
	{"x,2026-11-21T08:30:00Z,a,t,-0.01", "x", `quantity "-0.01" is negative`},
	{"x,2026-11-21T08:30:00Z,a,t,1e999999999", "x", `quantity "1e999999999" is not written out: exponents are not read`},
	{"x,2026-11-21T08:30:00Z,a,t,1E3", "x", `quantity "1E3" is not written out: exponents are not read`},
	{"x,2026-11-21T08:30:00Z,a,t,1000000000000.000000001", "x", `quantity "1000000000000.000000001" is more than 1000000000000`},
	{"x,2026-11-21T08:30:00Z,a,t,10000000000000", "x", `quantity "10000000000000" is more than 1000000000000`},
	{"\ufeffx,2026-11-21T08:30:00Z,a,t,1", "", `id "\ufeffx" has a character that cannot be printed`},
	{"x,2026-11-21T08:30:00Z,a,t,1000000000001", "x", `quantity "1000000000001" is more than 1000000000000`},
	{"x,2026-11-21T08:30:00Z,a,t," + strings.Repeat("9", 60), "x", `quantity "` + strings.Repeat("9", 40) + `…" is more than 1000000000000`},
	{"x,2026-11-21T08:30:00Z,a,t,0.1234567891", "x", `quantity "0.1234567891" has 10 decimals, at most 9 are allowed`},
	{"x,2026-11-21T08:30:00Z,a,t,NaN", "x", `quantity "NaN" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,Infinity", "x", `quantity "Infinity" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,0x10", "x", `quantity "0x10" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,+1", "x", `quantity "+1" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,.5", "x", `quantity ".5" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,5.", "x", `quantity "5." is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,1.2.3", "x", `quantity "1.2.3" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,1_000", "x", `quantity "1_000" is not a number such as 12.5`},
	{`x,2026-11-21T08:30:00Z,a,t,"1,5"`, "x", `quantity "1,5" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t, 1", "x", `quantity " 1" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t,١٢", "x", `quantity "١٢" is not a number such as 12.5`},
	{"x,2026-11-21T08:30:00Z,a,t," + strings.Repeat("1", maxLine), "", fmt.Sprintf("the line has %d bytes, at most %d are read", maxLine+28, maxLine)},
}

// TestABadLineIsRejectedAndTheRestGoesOn: each bad line stands between two good ones.
func TestABadLineIsRejectedAndTheRestGoesOn(t *testing.T) {
	for _, c := range badLines {
		t.Run(c.reason, func(t *testing.T) {
			before, first := good(2)
			after, last := good(4)
			all, rejected, err := readAll(strings.NewReader(header+first+c.line+"\n"+last), "usage.csv")
			if err != nil || !slices.EqualFunc(all, []Record{before, after}, equalRecords) {
				t.Errorf("records: got %+v, %v; want the good ones before and after", all, err)
			}
			if len(rejected) != 1 {
				t.Fatalf("rejected: got %+v, want one line", rejected)
			}
			got := rejected[0]
			if want := (Rejection{"usage.csv", 3, c.id, c.reason, got.Text}); got != want {
				t.Errorf("rejected: got %+v, want %+v", got, want)
			}
			if len(c.line) < maxLine && got.Text == "" || len(got.Text) > 3*maxRejected || strings.ContainsFunc(got.Text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("text: got %.100q, want the line, printable", got.Text)
			}
			again := AppendRejection(AppendPiece(nil, &all[0]), &got)
			if _, back, err := readPiece(bytes.NewReader(again)); err != nil || len(back) != 1 || back[0].Text != got.Text || back[0].Reason != printable(got.Reason) || back[0].Line != 3 {
				t.Errorf("in a piece: got %+v, %v", back, err)
			}
		})
	}
}

func TestARejectionNamesFileLineAndReason(t *testing.T) {
	r := Rejection{File: "usage.csv", Line: 7, ID: "u6", Reason: "id is empty"}
	if got, want := r.Error(), "usage.csv:7: id is empty"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNothingIsReadOfAFileWithoutItsColumns(t *testing.T) {
	_, line := good(2)
	const nothing = "; nothing of the file was read"
	for _, c := range []struct{ file, want string }{
		{"", "u.csv is empty: its first line must name the columns id,time,account,tariff,quantity"},
		{"\ufeff\n\n", "u.csv is empty: its first line must name the columns id,time,account,tariff,quantity"},
		{line, "u.csv:1: there is no header: the first line must name the columns id,time,account,tariff,quantity" + nothing},
		{"id,account,tariff\n" + line, "u.csv:1: the header lacks the columns time, quantity" + nothing},
		{"Id,time,account,tariff,quantity\n", "u.csv:1: the header lacks the columns id" + nothing},
		{"id,time,account,tariff,quantity,tariff\n", "u.csv:1: the header names the column tariff twice" + nothing},
		{"id;time;account;tariff;quantity\n", "u.csv:1: the fields must be separated by commas" + nothing},
		{"id\ttime\taccount\ttariff\tquantity\n", "u.csv:1: the fields must be separated by commas" + nothing},
		{"id,time,account,tariff,quantity\rx,y,z\r", "u.csv:1: byte 32 is a control character, 0x0d" + nothing},
		{"\"id,time,account,tariff,quantity\n", "u.csv:1: a quote is not closed before the end of the line" + nothing},
		{"id,time,account,tariff,quantity,\x00\n", "u.csv:1: byte 33 is a control character, 0x00" + nothing},
		{"\xff\xfei\x00d\x00,\x00\n\x00", "u.csv:1: byte 1, 0xff, is not UTF-8" + nothing},
		{"\xfe\xff\x00i\x00d\x00,\x00\n", "u.csv:1: byte 1, 0xfe, is not UTF-8" + nothing},
		{"\x1f\x8b\x08\x00\n", "u.csv:1: byte 1 is a control character, 0x1f" + nothing},
		{"PK\x03\x04\n", "u.csv:1: byte 3 is a control character, 0x03" + nothing},
		{"\n" + strings.Repeat("x", maxLine+1), fmt.Sprintf("u.csv:2: the line has %d bytes, at most %d are read", maxLine+1, maxLine) + nothing},
	} {
		all, rejected, err := readAll(strings.NewReader(c.file), "u.csv")
		if err == nil || err.Error() != c.want || len(all)+len(rejected) > 0 {
			t.Errorf("%.40q: got %v, %v, %v; want %s", c.file, all, rejected, err, c.want)
		}
	}
}

// TestAFileThatCannotBeReadToItsEndIsAnError: what was read of it must not be taken for all of it, nor the beginning of a number for the
// number.
func TestAFileThatCannotBeReadToItsEndIsAnError(t *testing.T) {
	first, line := good(2)
	broken := errors.New("the disk is broken")
	for _, c := range []struct {
		file string
		want string
	}{
		{header + line + "x,2026-11-21T08:30:00Z,a,t,12", "reading u.csv after line 2: the disk is broken"},
		{header + line, "reading u.csv after line 2: the disk is broken"},
		{header, "reading u.csv after line 1: the disk is broken"},
		{"id,ti", "reading u.csv after line 0: the disk is broken"},
	} {
		all, rejected, err := readAll(io.MultiReader(strings.NewReader(c.file), iotest.ErrReader(broken)), "u.csv")
		if !errors.Is(err, broken) || err.Error() != c.want || len(rejected) > 0 {
			t.Errorf("%q: got %v, %v; want %s", c.file, rejected, err, c.want)
		}
		if strings.Contains(c.file, line) && (len(all) != 1 || !equalRecords(all[0], first)) {
			t.Errorf("%q: got %+v, want the record before the error", c.file, all)
		}
	}
}

// zeros is a line without end.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(z.left, int64(len(p)))
	for i := range p[:n] {
		p[i] = '0'
	}
	z.left -= n
	return int(n), nil
}

func TestALineOfAnyLengthTakesConstantMemory(t *testing.T) {
	const length = 64 << 20
	last, line := good(3)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, rejected, err := readAll(io.MultiReader(strings.NewReader(header), &zeros{length}, strings.NewReader("\n"+line)), "u.csv")
	runtime.ReadMemStats(&after)
	if err != nil || len(rejected) != 1 || len(all) != 1 || !equalRecords(all[0], last) {
		t.Fatalf("got %+v, %v, %v; want a rejection and a record", all, rejected, err)
	}
	if want := fmt.Sprintf("the line has %d bytes, at most %d are read", length+1, maxLine); rejected[0].Reason != want {
		t.Errorf("reason: got %q, want %q", rejected[0].Reason, want)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("allocated: got %d bytes, want at most 1 MiB", got)
	}
}

// TestReadingTakesConstantMemory reads files of 20,000 and 200,000 records while they are made, and compares the live heap.
func TestReadingTakesConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a large file")
	}
	peak := func(records int) (most uint64) {
		n := 0
		for _, err := range Read(usageFile(Generate(1, records, 3)), "u.csv") {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(records/4) == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
		if n != records {
			t.Errorf("records: got %d, want %d", n, records)
		}
		return most
	}
	if small, large := peak(20_000), peak(200_000); large > small+1<<20 {
		t.Errorf("live heap: got %d bytes with 200,000 records, %d with 20,000; want at most 1 MiB more", large, small)
	}
}

func TestReadingStopsWhenNoMoreIsAskedFor(t *testing.T) {
	_, line := good(2)
	r := strings.NewReader(header + line + "bad\n" + strings.Repeat(line, 10_000))
	for range 2 { // after a record, and after a rejection
		for range Read(r, "u.csv") {
			break
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range Read(r, "u.csv") {
		if n++; n == 2 {
			break
		}
	}
	if r.Len() == 0 {
		t.Error("got the whole file read, want it read as far as was asked for")
	}
}

// TestTheFileOfBadLines compares testdata/bad.csv, which the README shows, with what is said of it.
func TestTheFileOfBadLines(t *testing.T) {
	file, err := os.ReadFile("../testdata/bad.csv")
	if err != nil {
		t.Fatal(err)
	}
	all, rejected, err := readAll(bytes.NewReader(file), "bad.csv")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range rejected {
		fmt.Fprintln(&got, r.Error())
	}
	want, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("rejections: got\n%s\nwant\n%s", got.String(), want)
	}
	if lines := bytes.Count(file, []byte("\n")); len(all)+len(rejected) != lines-1 || len(all) < 3 {
		t.Errorf("got %d records and %d rejections of %d lines, want one for each line but the header", len(all), len(rejected), lines)
	}
}
