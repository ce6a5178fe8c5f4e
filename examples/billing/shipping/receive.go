package shipping

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/blob"
)

// putManifest stores the manifest of a batch, unless there is one.
func (s *Server) putManifest(r *http.Request, batch string) (any, error) {
	select {
	case s.large <- struct{}{}:
		defer func() { <-s.large }()
	default:
		return nil, busy
	}
	m, err := s.readManifest(r, batch)
	if err != nil {
		return nil, err
	}
	text, digest, err := m.encode()
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "%v", err)
	}
	d := &description{digest, m.Pieces}
	now := map[string]string{handedOverKey: time.Now().UTC().Format(time.RFC3339Nano)}
	err = s.store.Create(r.Context(), manifestRef(batch), bytes.NewReader(text), &blob.PutOptions{Metadata: now})
	switch {
	case errors.Is(err, blob.ErrExists):
		if d, err = s.same(r.Context(), batch, digest); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		s.known.put(batch, d)
	}
	return s.status(r.Context(), batch, d)
}

// readManifest reads and checks the body of a request.
func (s *Server) readManifest(r *http.Request, batch string) (*Manifest, error) {
	body, err := limited(r, MaxManifest)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, brokenBody(err)
	}
	if got := contentDigest(digestOf(text)); r.Header.Get(digestHeader) != got {
		return nil, refuse(http.StatusUnprocessableEntity, "the manifest of batch %s arrived damaged: its %s is %s", batch, digestHeader, got)
	}
	m, err := parseManifest(text)
	if err == nil && m.Batch != batch {
		err = badManifest("it is that of batch %s", m.Batch)
	}
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "the manifest of batch %s is refused: %v", batch, err)
	}
	return &m, nil
}

// same returns the description of the stored manifest if it has that digest.
func (s *Server) same(ctx context.Context, batch, digest string) (*description, error) {
	d, err := s.describe(ctx, batch)
	if err != nil {
		return nil, err
	}
	if d.digest != digest {
		return nil, refuse(http.StatusConflict, "another batch of %s was sent before", batch)
	}
	return d, nil
}

// putPiece stores a piece, unless it is there.
func (s *Server) putPiece(r *http.Request, batch string) (any, error) {
	d, err := s.describe(r.Context(), batch)
	if err != nil {
		return nil, err
	}
	n, ok := pieceNumber(r.PathValue("piece"))
	if !ok || n >= len(d.pieces) {
		return nil, refuse(http.StatusNotFound, "batch %s has no piece %.20q: its %d pieces are numbered from 0", batch, r.PathValue("piece"), len(d.pieces))
	}
	p := d.pieces[n]
	if r.ContentLength >= 0 && r.ContentLength != p.Bytes {
		return nil, wrongPiece("its size is %d bytes and not %d", r.ContentLength, p.Bytes)
	}
	body := &verifier{from: http.MaxBytesReader(nil, r.Body, p.Bytes), want: p, sum: sha256.New()}
	err = s.store.Create(r.Context(), pieceRef(batch, n), body, nil)
	switch {
	case err == nil:
		err = s.undoIfReported(r.Context(), batch, n)
	case errors.Is(err, blob.ErrExists):
		err = nil
	case body.broken != nil:
		err = brokenBody(body.broken)
	}
	return struct{}{}, err
}

// undoIfReported deletes a piece that came after its batch was reported, and maybe after the pieces were deleted: nobody
// would delete it anymore. A batch is recorded as reported before its pieces are deleted, so one of the two
// deletes it.
func (s *Server) undoIfReported(ctx context.Context, batch string, n int) error {
	reported, err := s.options.Reported(ctx, batch)
	if err == nil && reported {
		err = s.store.Delete(ctx, pieceRef(batch, n))
	}
	return err
}

// verifier reads a piece. At its end it fails unless that is the piece of the manifest, and then the store keeps
// nothing.
type verifier struct {
	from io.Reader
	want Piece
	sum  hash.Hash

	size   int64
	lines  int
	last   byte
	broken error // of from
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	if n > 0 {
		v.size += int64(n)
		v.lines += bytes.Count(p[:n], []byte{'\n'})
		v.last = p[n-1]
		v.sum.Write(p[:n])
	}
	if err == io.EOF {
		if wrong := v.verify(); wrong != nil {
			return n, wrong
		}
	} else if err != nil {
		v.broken = err
	}
	return n, err
}

func (v *verifier) verify() error {
	switch {
	case v.size != v.want.Bytes:
		return wrongPiece("its size is %d bytes and not %d", v.size, v.want.Bytes)
	case hex.EncodeToString(v.sum.Sum(nil)) != v.want.SHA256:
		return wrongPiece("its checksum is not that of the manifest")
	case v.lines != v.want.Records || v.last != '\n':
		return wrongPiece("it has %d lines and not %d", v.lines, v.want.Records)
	}
	return nil
}

func wrongPiece(format string, args ...any) error {
	return refuse(http.StatusUnprocessableEntity, "the piece is refused: %s", fmt.Sprintf(format, args...))
}

// brokenBody is the error for a body that could not be read to its end, which is no fault of the Initiator.
func brokenBody(err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return err
	}
	return refuse(http.StatusRequestTimeout, "the body broke off or took too long; try again")
}
