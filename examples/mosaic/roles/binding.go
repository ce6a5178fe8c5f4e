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

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// Messages only refer to blobs, so programs that share the queues must share the store. A store
// has an id, which is kept in it. The account is bound to one store, whose id is in the metadata
// of the queue of image requests. A program with another store is refused when it opens the
// account. If no messages are left, it binds the account to its own store instead. Two programs
// that start at the same moment may both succeed. So every message has the id of its store too,
// and a program with the wrong store ends as soon as it receives a message of the other program,
// or when its own orders make no progress.

// Names of the metadata that bind an account.
const (
	boundStore = "blobstore" // the id of the store
	boundPlace = "blobplace" // its place, for people; escaped, because metadata is ASCII
)

// maxPlace is the maximum length of the escaped place, which shares the limit of the metadata with
// other values.
const maxPlace = 2 << 10

// ElsewhereError means that the account is in use with another blob store than this program's.
type ElsewhereError struct {
	Here, There string // places of the blobs of this program and of the others; "" if unknown
	Messages    int64  // about how many messages of the others are left; 0 if unknown
}

// Error returns the places of both stores.
func (e *ElsewhereError) Error() string {
	left := ""
	if e.Messages > 0 {
		left = fmt.Sprintf(", and have about %d of its messages", e.Messages)
	}
	return fmt.Sprintf("the queues of this account are in use with the blobs in %s%s, but this program looks in %s",
		known(e.There), left, known(e.Here))
}

func known(place string) string {
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
		err = store.Create(ctx, storeRef, bytes.NewReader([]byte(id.String())))
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

// bind binds the account to the store of this program. It fails with an [*ElsewhereError] if the
// account is in use with another store. It takes the metadata and the number of messages that were
// found.
func (b *binding) bind(ctx context.Context, metadata map[string]string, left int64, logger *slog.Logger) error {
	id, place := parseBinding(metadata)
	if id == b.store {
		return nil
	}
	if id != uuid.Nil && left > 0 {
		return &ElsewhereError{b.place, place, left}
	}
	m, ok := b.queue.(queue.Manager)
	if !ok {
		return nil // a mismatch is detected by the ids in messages
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
		logger.Warn("the account cannot be bound to the blobs of this program, so programs with other blobs are detected late", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return b.check(ctx)
}

// check returns an [*ElsewhereError] if the account is bound to another store.
func (b *binding) check(ctx context.Context) error {
	id, place, err := b.read(ctx)
	if err == nil && id != uuid.Nil && id != b.store {
		err = &ElsewhereError{Here: b.place, There: place}
	}
	return err
}

// foreign reports whether a message has its blobs in another store. Messages of earlier releases have
// no store id and count as ours.
func (b *binding) foreign(h Head) bool {
	return h.Blobs != uuid.Nil && h.Blobs != b.store
}

// refuseForeign refuses a message whose blobs are in another store, before it is handled. If the
// account is bound to our store the message is poison, which tells its program. Otherwise the message
// is left to the others, and this program ends.
func (b *Broker) refuseForeign(ctx context.Context, h Head) error {
	if !b.binding.foreign(h) {
		return nil
	}
	id, place, err := b.binding.read(ctx)
	if err != nil {
		return err
	}
	if id == b.binding.store {
		return dispatcher.Poison(fmt.Errorf("its blobs are in another store, and the account is in use with the blobs in %s", known(b.binding.place)))
	}
	b.end(&ElsewhereError{Here: b.binding.place, There: place})
	return dispatcher.Snooze(standBack)
}

// end ends this program, because its store is not that of the account.
func (b *Broker) end(err error) {
	b.mislead.Do(func() {
		b.elsewhere = err
		close(b.misled)
	})
}

// misled is a [millrace.Runner] that fails when the program turns out to use the wrong store.
type misled struct{ broker *Broker }

func (m misled) Run(ctx context.Context) error {
	select {
	case <-m.broker.misled:
		return m.broker.elsewhere
	case <-ctx.Done():
		return nil
	}
}

// Halt does nothing: Run returns when its context ends.
func (misled) Halt() {}
