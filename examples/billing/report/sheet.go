package report

import (
	"encoding/csv"
	"strings"
)

// sheet is a CSV file under way. The first error stays.
type sheet struct {
	file *file
	csv  *csv.Writer
}

func newSheet(folder, name string, columns ...string) (*sheet, error) {
	f, err := create(folder, name)
	if err != nil {
		return nil, err
	}
	s := &sheet{f, csv.NewWriter(f)}
	return s, s.csv.Write(columns)
}

// row writes a row. Texts from outside go through guarded first.
func (s *sheet) row(cells ...string) error { return s.csv.Write(cells) }

// done writes what is left, through to the disk.
func (s *sheet) done() error {
	s.csv.Flush()
	if err := s.csv.Error(); err != nil {
		return err
	}
	return s.file.done()
}

const (
	formulaStarts  = "=+-@＝＋－＠" // also as wide as Chinese characters are
	cellSeparators = ",;\t|\r\n"
	skipped        = " \"'\u00a0\u3000" // between a separator and a formula
)

// guarded puts ' before what a spreadsheet could take for a formula: what begins a text, or what follows a
// character at which a spreadsheet of some country begins a new cell, quoted or not.
func guarded(text string) string {
	if !strings.ContainsAny(text, formulaStarts) {
		return text
	}
	var b strings.Builder
	begins := true
	for _, r := range text {
		if begins && strings.ContainsRune(formulaStarts, r) {
			b.WriteByte('\'')
		}
		begins = strings.ContainsRune(cellSeparators, r) || begins && strings.ContainsRune(skipped, r)
		b.WriteRune(r)
	}
	return b.String()
}
