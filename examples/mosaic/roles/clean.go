package roles

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
)

// CleanAge is the age from which [Clean] deletes blobs. It is longer than any request takes.
const CleanAge = 24 * time.Hour

// Clean deletes the blobs of requests, and the tile libraries, that are older than [CleanAge]: those of killed clients, the
// ends of requests, and mosaics that nobody has fetched. It returns how many blobs it deleted and their size. It may run while
// roles work, and it may be repeated.
func Clean(ctx context.Context, store blob.Store) (blobs int, bytes int64, err error) {
	for _, container := range []string{imageInput, imageLibrary, sliceRequests, sliceResponses, imageOutput, jobState} {
		for b, err := range store.List(ctx, container, "") {
			if err != nil {
				return blobs, bytes, fmt.Errorf("list the blobs in %s: %w", container, err)
			}
			name, _, _ := strings.Cut(b.Ref.Name, "/")
			name, extension, _ := strings.Cut(name, ".")
			_, foreign := uuid.Parse(name)
			if time.Since(b.Modified) < CleanAge || foreign != nil && (container != imageLibrary || extension != "tar") {
				continue
			}
			if err := store.Delete(ctx, b.Ref); err != nil {
				return blobs, bytes, err
			}
			blobs++
			bytes += b.Size
		}
	}
	return blobs, bytes, nil
}
