package records

import (
	"bytes"
	"encoding/csv"
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzRead: whatever is in a file, each line is a record in bounds, a rejection, or empty; a good line at the end is always read.
func FuzzRead(f *testing.F) {
	for _, c := range badLines {
		f.Add(c.line)
	}
	_, line := good(2)
	f.Add(line + "\"\n\r\n" + line)
	f.Fuzz(func(t *testing.T, body string) {
		_, end := good(0)
		file := header + body + "\n" + end
		all, rejected, err := readAll(strings.NewReader(file), "u.csv")
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		lines := strings.Count(file, "\n")
		if len(all)+len(rejected) > lines-1 {
			t.Errorf("got %d records and %d rejections of %d lines", len(all), len(rejected), lines)
		}
		if last := all[len(all)-1]; last.ID != "g0" || last.Line != lines {
			t.Errorf("last: got %+v, want that of line %d", last, lines)
		}
		before := 1
		var piece []byte
		for i, r := range all {
			if r.Line <= before || r.Quantity.IsNegative() || r.Quantity.GreaterThan(largest) || checkText("", r.ID)+checkText("", r.Account)+checkText("", r.Tariff) != "" {
				t.Errorf("got %+v after line %d", r, before)
			}
			before = r.Line
			piece = AppendPiece(piece, &all[i])
		}
		for _, r := range rejected {
			if r.Reason == "" || len(r.Error()) > 1000 || strings.ContainsAny(r.Error(), "\n\r\x00") {
				t.Errorf("got %q, want a short line", r.Error())
			}
		}
		if again, _, err := readPiece(bytes.NewReader(piece)); err != nil || !slices.EqualFunc(again, all, equalRecords) {
			t.Errorf("as a piece: got %+v, %v; want %+v", again, err, all)
		}
	})
}

// FuzzHeader: no beginning of a file panics, and an error ends it.
func FuzzHeader(f *testing.F) {
	f.Add("\ufeff" + header)
	f.Add("id,time,account,tariff,quantity,id\n")
	f.Add("\xff\xfei\x00d\x00")
	f.Fuzz(func(t *testing.T, file string) {
		ended := false
		for _, err := range Read(strings.NewReader(file), "u.csv") {
			if ended {
				t.Fatal("got more after an error")
			}
			var rejection *Rejection
			ended = err != nil && !errors.As(err, &rejection)
		}
	})
}

// FuzzFields compares the fields of a line with those of encoding/csv.
func FuzzFields(f *testing.F) {
	f.Add(`a,"b,""c""",,`)
	f.Add(`"a"b,c`)
	f.Add(`a"b`)
	f.Add(`"a`)
	f.Fuzz(func(t *testing.T, line string) {
		if line == "" || strings.ContainsAny(line, "\r\n") {
			t.Skip("not a line")
		}
		r := csv.NewReader(strings.NewReader(line))
		want, err := r.Read()
		got, reason := splitFields(nil, line)
		if (err == nil) != (reason == "") || err == nil && !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %s; want %q, %v", line, got, reason, want, err)
		}
		if reason != "" {
			return
		}
		var again []byte
		for i, field := range got {
			if i > 0 {
				again = append(again, ',')
			}
			again = appendFields(again, field)
		}
		if twice, reason := splitFields(nil, string(again)); reason != "" || !slices.Equal(twice, got) {
			t.Errorf("%q: written as %q and read again: got %q, %s", line, again, twice, reason)
		}
	})
}

// FuzzReadTariffs: tariffs that are read are written and read again, to the same bytes.
func FuzzReadTariffs(f *testing.F) {
	f.Add(tariffHeader + "a,kWh,EUR,1\na,kWh,EUR,2\nb,m³,JPY,1e9")
	f.Add(string(builtInTariffs))
	f.Fuzz(func(t *testing.T, file string) {
		tariffs, _, err := ReadTariffs(strings.NewReader(file), "t.csv")
		if err != nil {
			return
		}
		var one, other bytes.Buffer
		if err := tariffs.WriteCSV(&one); err != nil {
			t.Fatal(err)
		}
		again, rejected, err := ReadTariffs(bytes.NewReader(one.Bytes()), "t.csv")
		if err != nil || len(rejected) > 0 {
			t.Fatalf("%q: got %v, %v", one.String(), rejected, err)
		}
		if err := again.WriteCSV(&other); err != nil || one.String() != other.String() {
			t.Errorf("got %q, then %q, %v", one.String(), other.String(), err)
		}
	})
}

// FuzzReadPiece: a piece that is read is written and read again, to the same bytes.
func FuzzReadPiece(f *testing.F) {
	r, _ := good(2)
	f.Add(string(AppendPiece(nil, &r)))
	f.Add("7,u,2026-11-21T08:30:00Z,\"a,\"\"b\"\"\",t,1.50\n\n8,")
	f.Fuzz(func(t *testing.T, piece string) {
		all, _, err := readPiece(strings.NewReader(piece))
		if err != nil {
			return
		}
		var one, other []byte
		for i := range all {
			one = AppendPiece(one, &all[i])
		}
		again, _, err := readPiece(bytes.NewReader(one))
		for i := range again {
			other = AppendPiece(other, &again[i])
		}
		if err != nil || !bytes.Equal(one, other) {
			t.Errorf("got %q, then %q, %v", one, other, err)
		}
	})
}
