package filequeue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
)

// The formats of a log. Every release reads the logs of the release before it. The tree names
// the format, so that a damaged header loses nothing; the header names it for people, and for
// releases that do not know it.
const (
	noLogs       uint64 = iota // the tree has everything
	firstFormat                // up to commit f8d9a14: shorter record headers, no end marks
	secondFormat               // up to commit cdcf2f8: no header
	logFormat                  // the current one
)

// start returns the position of the first record.
func (l *wal) start() int64 {
	if l.format <= secondFormat {
		return 0
	}
	return sector
}

// headerText is the content of a header: the format, the release that began the log, and the
// checksum of both. It is text, so that `head -1` shows it.
const headerText = "Millrace queue log, format %d, written by %s"

func logHeader() []byte {
	text := fmt.Sprintf(headerText, logFormat, release())
	text = text[:min(len(text), sector-10)]
	header := bytes.Repeat([]byte{' '}, sector)
	copy(header, fmt.Sprintf("%s\n%08x", text, crc32.Checksum([]byte(text), castagnoli)))
	header[sector-1] = '\n'
	return header
}

// readLogHeader returns the format of a log and the release that began it, or noLogs if the
// sector is not a header.
func readLogHeader(header []byte) (format uint64, by string) {
	text, rest, _ := bytes.Cut(header, []byte{'\n'})
	if len(rest) < 8 || string(rest[:8]) != fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) {
		return noLogs, ""
	}
	if _, err := fmt.Sscanf(string(text), headerText, &format, &by); err != nil {
		return noLogs, ""
	}
	return format, by
}

// release names the release of this module in the running program.
func release() string {
	const module = "github.com/millrace/millrace"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

// checkFormats returns ErrNewer if a later release wrote a log.
func (d *directory) checkFormats() error {
	for i := range 2 {
		f, err := d.open(walName(i+1), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		header := make([]byte, sector)
		n, _ := f.ReadAt(header, 0) // a log that cannot be read is found later
		if err := f.Close(); err != nil {
			return err
		}
		if format, by := readLogHeader(header[:n]); format > logFormat {
			return fmt.Errorf("%w: %s has format %d, written by %s; this program reads formats up to %d",
				ErrNewer, f.Name(), format, by, logFormat)
		}
	}
	return nil
}

// firstHeader is the size of a record's header in the first format: number, length, checksum.
const firstHeader = 8 + 4 + crc32.Size

func (r *walScan) firstFormatEntryAt(at int64) (walEntry, bool) {
	h := r.data[at:]
	f := walEntry{number: binary.BigEndian.Uint64(h), log: r.log, at: at, end: at + sector}
	length := int64(binary.BigEndian.Uint32(h[8:]))
	if f.number == 0 || length > int64(len(h)-firstHeader) {
		return f, false
	}
	fields := h[firstHeader:][:length]
	if binary.BigEndian.Uint32(h[12:]) != r.log.checksum(h[:12], fields) {
		return f, false
	}
	f.kind, f.fields = completeRecord, fields
	f.end = at + (firstHeader+length+sector-1)/sector*sector
	return f, true
}

// firstFormatTail is tail for the first format, which shows an interrupted commit only by its
// number, and does not show a truncation.
func (r *walScan) firstFormatTail(number uint64, at int64) tailState {
	if at+sector <= int64(len(r.data)) && binary.BigEndian.Uint64(r.data[at:]) == number+1 {
		return tailTorn
	}
	return tailIntact
}
