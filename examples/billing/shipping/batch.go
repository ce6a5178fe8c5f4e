package shipping

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/millrace/millrace/examples/billing/records"
)

// Batch is the usage records of a day, ready to be shipped, from [Spool.Batches]. It is safe for concurrent use, if nobody
// changes the manifest, until its spool is closed.
type Batch struct {
	Manifest Manifest

	path string  // of the file with the pieces one after the other
	at   []int64 // where the pieces begin
}

// readPiece reads piece n into the buffer, or a larger one.
func (b *Batch) readPiece(n int, buffer []byte) ([]byte, error) {
	p := b.Manifest.Pieces[n]
	piece := slices.Grow(buffer[:0], int(p.Bytes))[:p.Bytes]
	f, err := os.Open(b.path)
	if err != nil {
		return nil, fmt.Errorf("read piece %d: %w", n, err)
	}
	_, err = f.ReadAt(piece, b.at[n])
	err = errors.Join(err, f.Close())
	if err == nil && digestOf(piece) != p.SHA256 {
		err = fmt.Errorf("%s was changed; consolidate again", b.path)
	}
	if err != nil {
		return nil, fmt.Errorf("read piece %d: %w", n, err)
	}
	return piece, nil
}

// origin is where a record is from.
type origin struct {
	file int // index of the source
	line int
}

// cutter makes the batch of a day from its spool file.
type cutter struct {
	spool *Spool
	batch *Batch
	seen  map[idHash]origin // where the ids of the day came first
	to    *bufio.Writer

	file     int // of the lines that come
	piece    Piece
	from     int // file of the piece
	sum      hash.Hash
	written  int64
	records  int // duplicates included
	rejected int // bytes of the named rejections
}

func newCutter(s *Spool, to io.Writer) *cutter {
	return &cutter{spool: s, batch: new(Batch), seen: make(map[idHash]origin), to: bufio.NewWriterSize(to, 256<<10), sum: sha256.New()}
}

// maxRejectedBytes is the size of the rejections that a manifest names, so that it stays under its limit.
const maxRejectedBytes = MaxManifest / 2

// cut makes the batch of a day, and deletes its spool file.
func (s *Spool) cut(ctx context.Context, name string, seen map[idHash]origin) (*Batch, error) {
	in, err := s.folder.Open(name + daySuffix)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // nothing was written
	out, err := s.folder.Create(name + batchSuffix)
	if err != nil {
		return nil, err
	}
	c := newCutter(s, out)
	c.seen = seen
	c.batch.Manifest.Batch, c.batch.Manifest.MoreRejected = name, s.days[name].early
	c.batch.path = s.batchPath(name)
	err = c.lines(ctx, bufio.NewReaderSize(in, 256<<10))
	if err == nil && c.records != s.days[name].records {
		err = fmt.Errorf("the spool file has %d records, %d were written: something else changed it", c.records, s.days[name].records)
	}
	if e := c.to.Flush(); err == nil {
		err = e
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err == nil {
		_, _, err = c.batch.Manifest.encode() // its limits
	}
	if err != nil {
		return nil, err
	}
	return c.batch, s.folder.Remove(name + daySuffix)
}

// lines reads the spool file.
func (c *cutter) lines(ctx context.Context, in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return c.endPiece()
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err == nil:
			err = context.Cause(ctx)
		}
		if err == nil {
			err = c.line(line[0], line[1:])
		}
		if err != nil {
			return err
		}
	}
}

func (c *cutter) line(mark byte, rest []byte) (err error) {
	switch mark {
	case fileMark:
		c.file, err = strconv.Atoi(string(bytes.TrimSpace(rest)))
		if err == nil && (c.file < 0 || c.file >= len(c.spool.files)) {
			err = fmt.Errorf("the spool file names source %d", c.file)
		}
		return err
	case rejectionMark:
		var r records.Rejection
		if err := json.Unmarshal(rest, &r); err != nil {
			return err
		}
		c.reject(r, len(rest))
		return nil
	case recordMark:
		return c.record(rest)
	}
	return fmt.Errorf("a line of the spool file begins with %q", mark)
}

// reject names a rejection in the manifest, while there is room.
func (c *cutter) reject(r records.Rejection, size int) {
	m := &c.batch.Manifest
	if len(m.Rejected) == MaxRejected || c.rejected+size > maxRejectedBytes {
		m.MoreRejected++
		return
	}
	c.rejected += size
	m.Rejected = append(m.Rejected, r)
}

// record appends a record to the piece, unless its id came before.
func (c *cutter) record(rest []byte) error {
	var id idHash
	digits := hex.EncodedLen(len(id))
	if _, err := hex.Decode(id[:], rest[:min(digits, len(rest))]); err != nil {
		return err
	}
	number, line, _ := bytes.Cut(rest[min(digits, len(rest)):], []byte{' '})
	n, err := strconv.Atoi(string(number))
	if err != nil {
		return err
	}
	c.records++
	if first, ok := c.seen[id]; ok {
		return c.duplicate(n, line, first)
	}
	c.seen[id] = origin{c.file, n}
	return c.add(line)
}

// add appends a line to the piece, or to the next one.
func (c *cutter) add(line []byte) error {
	full := c.piece.Records == MaxPieceRecords || c.piece.Bytes+int64(len(line)) > MaxPieceBytes
	if c.piece.Records > 0 && (full || c.from != c.file) {
		if err := c.endPiece(); err != nil {
			return err
		}
	}
	c.from = c.file
	c.piece.Records++
	c.piece.Bytes += int64(len(line))
	c.sum.Write(line)
	_, err := c.to.Write(line)
	return err
}

// endPiece adds the piece to the manifest.
func (c *cutter) endPiece() error {
	m := &c.batch.Manifest
	file := c.spool.files[c.from]
	if len(m.Pieces) == 0 {
		m.File = file
	} else if file != m.File {
		c.piece.File = file
	}
	c.piece.SHA256 = hex.EncodeToString(c.sum.Sum(nil))
	m.Pieces = append(m.Pieces, c.piece)
	c.batch.at = append(c.batch.at, c.written)
	c.written += c.piece.Bytes
	c.piece = Piece{}
	c.sum.Reset()
	return nil
}

// duplicate rejects a record whose id came before.
func (c *cutter) duplicate(n int, line []byte, first origin) error {
	id, err := idOf(line)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("line %d", first.line)
	if first.file != c.file {
		where += " of " + c.spool.files[first.file]
	}
	rejection := records.Rejection{
		File: c.spool.files[c.file], Line: n, ID: id,
		Reason: fmt.Sprintf("the id %s was on %s before", id, where),
	}
	c.spool.rejected++
	c.spool.options.Rejected(rejection)
	c.reject(rejection, len(rejection.File)+len(rejection.Reason)+len(rejection.ID))
	return nil
}

// idOf returns the id of a record from its line in a piece.
func idOf(line []byte) (string, error) {
	for r, err := range records.ReadPiece(bytes.NewReader(line), "of a duplicate") {
		return r.ID, err
	}
	return "", errors.New("a record has an empty line")
}
