package records

import (
	"bytes"
	"io"
	"slices"
	"testing"
)

// benchRecords are the records of a day of moderate size.
const benchRecords = 10_000

// perSecond reports how many records an iteration handled in a second.
func perSecond(b *testing.B, records int) {
	b.Helper()
	b.ReportMetric(float64(b.N)*float64(records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkRead(b *testing.B) {
	var file bytes.Buffer
	if err := WriteCSV(&file, Generate(1, benchRecords, 1)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range Read(bytes.NewReader(file.Bytes()), "usage.csv") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != benchRecords {
			b.Fatalf("records: got %d, want %d", n, benchRecords)
		}
	}
	perSecond(b, benchRecords)
}

func BenchmarkReadPiece(b *testing.B) {
	var piece []byte
	for record := range Generate(1, benchRecords, 1) {
		piece = AppendPiece(piece, &record)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range ReadPiece(bytes.NewReader(piece), "1") {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	perSecond(b, benchRecords)
}

func BenchmarkAppendPiece(b *testing.B) {
	all := slices.Collect(Generate(1, benchRecords, 1))
	var piece []byte
	b.ReportAllocs()
	for b.Loop() {
		piece = piece[:0]
		for i := range all {
			piece = AppendPiece(piece, &all[i])
		}
	}
	perSecond(b, benchRecords)
}

func BenchmarkCharge(b *testing.B) {
	all, tariffs := slices.Collect(Generate(1, benchRecords, 1)), BuiltInTariffs()
	b.ReportAllocs()
	for b.Loop() {
		for i := range all {
			if _, _, err := tariffs.Charge(&all[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	perSecond(b, benchRecords)
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		for range Generate(1, benchRecords, 1) {
		}
	}
	perSecond(b, benchRecords)
}

func BenchmarkWriteCSV(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := WriteCSV(io.Discard, Generate(1, benchRecords, 1)); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b, benchRecords)
}
