package records

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

func readPiece(r io.Reader) (all []Record, rejected []Rejection, err error) {
	for record, err := range ReadPiece(r, "2026-11-21/1") {
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

// drawRecord draws any record that Read may return.
func drawRecord(rt *rapid.T) Record {
	word := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune(`a," é山`)), rapid.RuneFrom([]rune("xyz0189-=+@")))).
		Filter(func(s string) bool { return checkText("", s) == "" })
	return Record{
		Line: rapid.IntRange(1, 1<<40).Draw(rt, "line"),
		ID:   word.Draw(rt, "id"),
		Time: time.Unix(rapid.Int64Range(0, 253402300799).Draw(rt, "seconds"),
			rapid.Int64Range(0, 999_999_999).Draw(rt, "nanoseconds")).UTC(),
		Account:  word.Draw(rt, "account"),
		Tariff:   word.Draw(rt, "tariff"),
		Quantity: decimal.New(rapid.Int64Range(0, 1e18).Draw(rt, "units"), -rapid.Int32Range(6, 9).Draw(rt, "decimals")),
	}
}

func TestPiecesAndUsageFilesGiveBackTheirRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(drawRecord)).Draw(rt, "records")
		var piece []byte
		for i := range want {
			piece = AppendPiece(piece, &want[i])
		}
		if got, _, err := readPiece(bytes.NewReader(piece)); err != nil || !slices.EqualFunc(got, want, equalRecords) {
			rt.Errorf("piece %q: got %+v, %v; want %+v", piece, got, err, want)
		}
		got, rejected, err := readAll(usageFile(slices.Values(want)), "u.csv")
		for i := range want {
			want[i].Line = i + 2
		}
		if err != nil || len(rejected) > 0 || !slices.EqualFunc(got, want, equalRecords) {
			rt.Errorf("file: got %+v, %v, %v; want %+v", got, rejected, err, want)
		}
	})
}

// TestEqualRecordsGiveTheSameBytes: a batch that is sent again has the same pieces.
func TestEqualRecordsGiveTheSameBytes(t *testing.T) {
	const want = "2,u,2026-11-20T23:30:00Z,\"a,b\",t,1.5\n"
	for _, line := range []string{
		`u,2026-11-21T00:30:00+01:00,"a,b",t,1.500`,
		`"u","2026-11-20T23:30:00.000Z","a,b","t","001.5"`,
	} {
		all, rejected, err := readAll(strings.NewReader(header+line), "u.csv")
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: got %v, %v, %v", line, all, rejected, err)
		}
		if got := string(AppendPiece(nil, &all[0])); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestADamagedPieceIsAnError(t *testing.T) {
	const fine = "7,u,2026-11-21T08:30:00Z,a,t,1\n"
	for _, c := range []struct{ line, want string }{
		{"7,u,2026-11-21T08:30:00Z,a,t", "piece 2026-11-21/1:2: the line has 5 fields, not 6 or 4"},
		{"0,u,2026-11-21T08:30:00Z,a,t,1", `piece 2026-11-21/1:2: line "0" is not the number of a line`},
		{"-1,u,2026-11-21T08:30:00Z,a,t,1", `piece 2026-11-21/1:2: line "-1" is not the number of a line`},
		{"99999999999999999999,u,2026-11-21T08:30:00Z,a,t,1", `piece 2026-11-21/1:2: line "99999999999999999999" is not the number of a line`},
		{"7,u,2026-11-21T08:30:00Z,a,t,1e9", `piece 2026-11-21/1:2: quantity "1e9" is not written out: exponents are not read`},
		{`7,"u,2026-11-21T08:30:00Z,a,t,1`, "piece 2026-11-21/1:2: a quote is not closed before the end of the line"},
		{"7,u\x00,2026-11-21T08:30:00Z,a,t,1", "piece 2026-11-21/1:2: byte 4 is a control character, 0x00"},
	} {
		all, _, err := readPiece(strings.NewReader(fine + c.line + "\n" + fine))
		if err == nil || err.Error() != c.want || len(all) != 1 {
			t.Errorf("%s: got %v, %v; want %s", c.line, all, err, c.want)
		}
	}
	broken := errors.New("the line is cut")
	if all, _, err := readPiece(io.MultiReader(strings.NewReader(fine+"7,u"), iotest.ErrReader(broken))); !errors.Is(err, broken) || len(all) != 1 {
		t.Errorf("got %v, %v; want the error after one record", all, err)
	}
	for range ReadPiece(strings.NewReader(fine+fine), "1") {
		break
	}
}
