package shipping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/blob"
)

// Container is the container of manifests and pieces in a blob.Store.
const Container = "billing-batches"

// handedOverKey is the metadata of a manifest with the time of its first store, in RFC 3339 with nanoseconds: stores may
// keep whole seconds of a clock of their own.
const handedOverKey = "handed_over"

func manifestRef(batch string) blob.Ref {
	return blob.Ref{Container: Container, Name: batch + "/manifest.json"}
}

func pieceRef(batch string, n int) blob.Ref {
	return blob.Ref{Container: Container, Name: fmt.Sprintf("%spiece-%05d.csv", piecePrefix(batch), n)}
}

func piecePrefix(batch string) string { return batch + "/pieces/" }

// ReadManifest returns the manifest of a batch, and when its batch was handed over: when the server stored
// it for the first time. The error is [blob.ErrMissing] if there is none.
func ReadManifest(ctx context.Context, store blob.Store, batch string) (m Manifest, handedOver time.Time, err error) {
	if err := CheckBatch(batch); err != nil {
		return Manifest{}, time.Time{}, err
	}
	r, err := store.Open(ctx, manifestRef(batch))
	if err != nil {
		return Manifest{}, time.Time{}, fmt.Errorf("read the manifest of batch %s: %w", batch, err)
	}
	m, err = ParseManifest(r)
	err = errors.Join(err, r.Close())
	if err == nil {
		handedOver, err = time.Parse(time.RFC3339Nano, r.Metadata[handedOverKey])
	}
	if err == nil && m.Batch != batch {
		err = badManifest("it is that of batch %s", m.Batch)
	}
	if err != nil {
		return Manifest{}, time.Time{}, fmt.Errorf("read the manifest of batch %s: %w", batch, err)
	}
	return m, handedOver, nil
}

// OpenPiece opens piece n of a batch, whose size and checksum are those of the manifest. The caller closes it.
// The error is [blob.ErrMissing] if it has not arrived or was deleted.
func OpenPiece(ctx context.Context, store blob.Store, batch string, n int) (io.ReadCloser, error) {
	if err := checkPiece(batch, n); err != nil {
		return nil, err
	}
	r, err := store.Open(ctx, pieceRef(batch, n))
	if err != nil {
		return nil, fmt.Errorf("open piece %d of batch %s: %w", n, batch, err)
	}
	return r, nil
}

// Delete deletes the pieces of a batch that is in the books, and can be repeated. The manifest stays, so that
// another batch of the same day is recognized. [ServerOptions.Reported] must return true for the batch before.
func Delete(ctx context.Context, store blob.Store, batch string, pieces int) error {
	for n := range pieces {
		if err := checkPiece(batch, n); err != nil {
			return err
		}
		if err := store.Delete(ctx, pieceRef(batch, n)); err != nil {
			return fmt.Errorf("delete piece %d of batch %s: %w", n, batch, err)
		}
	}
	return nil
}

func checkPiece(batch string, n int) error {
	if err := CheckBatch(batch); err != nil {
		return err
	}
	if n < 0 || n >= MaxPieces {
		return fmt.Errorf("a batch has no piece %d: pieces are numbered from 0 to %d", n, MaxPieces-1)
	}
	return nil
}
