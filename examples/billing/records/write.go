package records

import (
	"bufio"
	"io"
	"iter"
	"strings"
	"time"
)

// WriteCSV writes a usage file, as [Read] reads it.
func WriteCSV(w io.Writer, all iter.Seq[Record]) error {
	buffered := bufio.NewWriterSize(w, maxLine)
	if _, err := buffered.WriteString(strings.Join(usageColumns, ",") + "\n"); err != nil {
		return err
	}
	var line []byte
	for record := range all {
		line = appendRecord(line[:0], &record)
		if _, err := buffered.Write(line); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// appendRecord appends the line of a usage file.
func appendRecord(dst []byte, r *Record) []byte {
	dst = appendField(dst, r.ID)
	dst = append(dst, ',')
	dst = r.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, ',')
	dst = appendField(dst, r.Account)
	dst = append(dst, ',')
	dst = appendField(dst, r.Tariff)
	dst = append(dst, ',')
	dst = append(dst, r.Quantity.String()...)
	return append(dst, '\n')
}
