package shipping

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/examples/billing/records"
)

// Limits of a batch. A server refuses what exceeds them.
const (
	MaxPieceRecords = 5000
	MaxPieceBytes   = 512 << 10
	MaxPieces       = 20_000  // 100 million records a day
	MaxRejected     = 10_000  // lines that a manifest names
	MaxManifest     = 8 << 20 // bytes of its JSON
	MaxFile         = 1024    // bytes of a file's name
)

// ErrBadManifest means that a text is no manifest, or that a [Manifest] cannot be right.
var ErrBadManifest = errors.New("bad manifest")

// Manifest describes a batch: the usage records of a day, cut into pieces. It is sent before them.
type Manifest struct {
	Batch        string              `json:"batch"` // the name of the batch, such as 2026-11-21
	File         string              `json:"file"`  // where the records are from, for messages; the first of several
	Pieces       []Piece             `json:"pieces"`
	Rejected     []records.Rejection `json:"rejected,omitempty"`     // lines that are not in the pieces
	MoreRejected int                 `json:"moreRejected,omitempty"` // how many more there are than Rejected names
}

// Piece is a part of a batch, of whole lines of one file.
type Piece struct {
	File    string `json:"file,omitempty"` // where its records are from, unless that is Manifest.File: see [Manifest.FileOf]
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"` // in lower-case hexadecimal digits
	Records int    `json:"records"`
}

// Records returns the number of records in the pieces.
func (m *Manifest) Records() int {
	n := 0
	for _, p := range m.Pieces {
		n += p.Records
	}
	return n
}

// Bytes returns the size of all pieces.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, p := range m.Pieces {
		n += p.Bytes
	}
	return n
}

// FileOf returns the file that the records of piece n are from, for messages. It panics if there is no such piece.
func (m *Manifest) FileOf(n int) string {
	if f := m.Pieces[n].File; f != "" {
		return f
	}
	return m.File
}

// Check fails with [ErrBadManifest] if m exceeds a limit or cannot be right.
func (m *Manifest) Check() error {
	switch {
	case CheckBatch(m.Batch) != nil:
		return badManifest("%w", CheckBatch(m.Batch))
	case len(m.Pieces) == 0:
		return badManifest("it has no pieces")
	case len(m.Pieces) > MaxPieces:
		return badManifest("it has %d pieces, the limit is %d", len(m.Pieces), MaxPieces)
	case len(m.Rejected) > MaxRejected:
		return badManifest("it names %d rejected lines, the limit is %d", len(m.Rejected), MaxRejected)
	case m.MoreRejected < 0:
		return badManifest("the number of rejected lines is negative")
	}
	if err := checkFile(m.File); err != nil {
		return err
	}
	for n := range m.Pieces {
		if err := m.Pieces[n].check(); err != nil {
			return fmt.Errorf("%w (piece %d)", err, n)
		}
	}
	return nil
}

func (p *Piece) check() error {
	switch sum, err := hex.DecodeString(p.SHA256); {
	case err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != p.SHA256:
		return badManifest("the checksum %.80q is not %d lower-case hexadecimal digits", p.SHA256, 2*sha256.Size)
	case p.Records < 1 || p.Records > MaxPieceRecords:
		return badManifest("a piece has %d records and needs 1 to %d", p.Records, MaxPieceRecords)
	case p.Bytes < int64(p.Records) || p.Bytes > MaxPieceBytes:
		return badManifest("a piece of %d records has %d bytes and needs %d to %d", p.Records, p.Bytes, p.Records, MaxPieceBytes)
	}
	return checkFile(p.File)
}

func checkFile(name string) error {
	if len(name) > MaxFile || !utf8.ValidString(name) {
		return badManifest("the name of the file has %d bytes and needs at most %d, in UTF-8", len(name), MaxFile)
	}
	return nil
}

func badManifest(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrBadManifest, fmt.Errorf(format, args...))
}

// CheckBatch fails unless the name is that of a day, such as 2026-11-21. Nothing else becomes part of a
// blob's name, a file's or a URL.
func CheckBatch(name string) error {
	if day, err := time.Parse(time.DateOnly, name); err != nil || day.Format(time.DateOnly) != name {
		return fmt.Errorf("the name of a batch is a day such as 2026-11-21, not %.40q", name)
	}
	return nil
}

// ParseManifest reads a manifest of at most [MaxManifest] bytes and checks it. An error is that of r, or
// [ErrBadManifest].
func ParseManifest(r io.Reader) (Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxManifest+1))
	if err != nil {
		return Manifest{}, err
	}
	return parseManifest(text)
}

func parseManifest(text []byte) (Manifest, error) {
	if len(text) > MaxManifest {
		return Manifest{}, badManifest("it has more than %d bytes", MaxManifest)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Manifest{}, badManifest("%w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Manifest{}, badManifest("there is something after it")
	}
	return m, m.Check()
}

// encode returns the one text of the manifest, and its digest, by which batches of one day are compared.
func (m *Manifest) encode() (text []byte, digest string, err error) {
	if err := m.Check(); err != nil {
		return nil, "", err
	}
	text, err = json.Marshal(m)
	if err != nil {
		return nil, "", err
	}
	if len(text) > MaxManifest {
		return nil, "", badManifest("it has %d bytes, the limit is %d", len(text), MaxManifest)
	}
	sum := sha256.Sum256(text)
	return text, hex.EncodeToString(sum[:]), nil
}
