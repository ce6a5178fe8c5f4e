package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// Messages only refer to blobs, so programs that work together must share the store. A store has an
// id, which is kept in it, and every message has the id of its store. A program leaves messages of
// other stores to others: it gives them back, again and again. So programs with different stores can
// use the queues at the same time, and none fails a request of another.
//
// People who start programs on one account usually want them to work together. So the metadata of
// the queue of image requests name the store of the account, and a program with another store says
// where the blobs of the others are, once. The account is bound to the store of the first program, and
// to another one when no messages are left.

// Names of the metadata that bind an account.
const (
	boundStore = "blobstore" // the id of the store
	boundPlace = "blobplace" // its place, for people; escaped, because metadata is ASCII
)

// maxPlace is the maximum length of the escaped place, which shares the limit of the metadata with
// other values.
const maxPlace = 2 << 10

// named returns the place of a store for people.
func named(place string) string {
	if place == "" {
		return "another place"
	}
	return place
}

// identify returns the id of a store, after creating one if it has none.
func identify(ctx context.Context, store blob.Store) (uuid.UUID, error) {
	for {
		id, err := readID(ctx, store)
		if !errors.Is(err, blob.ErrMissing) {
			return id, err
		}
		id = uuid.New()
		err = store.Create(ctx, storeRef, bytes.NewReader([]byte(id.String())), nil)
		if !errors.Is(err, blob.ErrExists) {
			return id, err
		}
		// Another program has just created it.
	}
}

func readID(ctx context.Context, store blob.Store) (uuid.UUID, error) {
	r, err := store.Open(ctx, storeRef)
	if err != nil {
		return uuid.Nil, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(r, 100))
	if err != nil {
		return uuid.Nil, err
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("read %v: %w", storeRef, err)
	}
	return id, nil
}

// binding binds an account to a store.
type binding struct {
	queue queue.Queue // its metadata holds the binding
	store uuid.UUID   // of this program
	place string

	mu   sync.Mutex
	told map[uuid.UUID]bool // stores that were told about; guarded by mu
}

// read returns the id of the store that the account is bound to, uuid.Nil if there is none, and its
// place.
func (b *binding) read(ctx context.Context) (uuid.UUID, string, error) {
	found, err := b.queue.Properties(ctx)
	if err != nil {
		return uuid.Nil, "", err
	}
	id, place := parseBinding(found.Metadata)
	return id, place, nil
}

// parseBinding returns uuid.Nil for an invalid id, as if there were none.
func parseBinding(metadata map[string]string) (id uuid.UUID, place string) {
	for name, value := range metadata { // HTTP does not preserve the case of names
		switch strings.ToLower(name) {
		case boundStore:
			id, _ = uuid.Parse(value)
		case boundPlace:
			place, _ = url.PathUnescape(value)
		}
	}
	return id, place
}

// bind binds the account to the store of this program, or says that it is in use with another store. It
// takes the metadata and the number of messages that were found.
func (b *binding) bind(ctx context.Context, metadata map[string]string, left int64, logger *slog.Logger) error {
	id, place := parseBinding(metadata)
	if id == b.store {
		return nil
	}
	if id != uuid.Nil && left > 0 {
		b.tell(id, place, logger)
		return nil
	}
	m, ok := b.queue.(queue.Manager)
	if !ok {
		return nil // the ids in messages say enough
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	maps.DeleteFunc(metadata, func(name, _ string) bool {
		return strings.EqualFold(name, boundStore) || strings.EqualFold(name, boundPlace)
	})
	metadata[boundStore] = b.store.String()
	if escaped := url.PathEscape(b.place); escaped != "" && len(escaped) <= maxPlace {
		metadata[boundPlace] = escaped
	}
	err := persist(ctx, func(ctx context.Context) error { return m.SetMetadata(ctx, metadata) })
	if errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrInvalid) {
		return nil
	}
	return err
}

// maxTold limits how many stores are told about: their ids come from messages.
const maxTold = 16

// tell says, once for each store, that the account is in use with another store.
func (b *binding) tell(id uuid.UUID, place string, logger *slog.Logger) {
	b.mu.Lock()
	known := b.told[id] || len(b.told) >= maxTold
	if !known {
		if b.told == nil {
			b.told = make(map[uuid.UUID]bool)
		}
		b.told[id] = true
	}
	b.mu.Unlock()
	if !known {
		logger.Warn("other programs use these queues with other blobs: their messages are left to them, and only programs with the same blobs work together",
			"their_blobs", named(place), "our_blobs", named(b.place))
	}
}

// isTold reports whether tell would say nothing about a store.
func (b *binding) isTold(id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[id] || len(b.told) >= maxTold
}

// check says so if the account is bound to another store. Its errors are ignored: it only helps people.
func (b *binding) check(ctx context.Context, logger *slog.Logger) {
	if id, place, err := b.read(ctx); err == nil && id != uuid.Nil && id != b.store {
		b.tell(id, place, logger)
	}
}

// foreign reports whether the blobs of a message are in another store, and says so the first time. Messages
// of earlier releases have no store id and count as ours.
func (b *Broker) foreign(ctx context.Context, h Head) bool {
	if h.Blobs == uuid.Nil || h.Blobs == b.binding.store {
		return false
	}
	if !b.binding.isTold(h.Blobs) {
		id, place, err := b.binding.read(ctx)
		if err != nil || id != h.Blobs {
			place = "" // only the store of the account is known by its place
		}
		b.binding.tell(h.Blobs, place, b.logger)
	}
	return true
}
