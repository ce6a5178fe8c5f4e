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

// Messages only refer to blobs, so programs that share the queues must share the store. A
// store has an id, kept in it. The account is bound to one store: its id is in the metadata
// of the queue of image requests. A program with another store is refused when it opens the
// account, unless no message is left of those who bound it; then the account is bound anew.
// Two programs that begin at the same moment may both be let in. So every message carries
// the id of its store as well, and the program that the account is not bound to ends as soon
// as it meets a message of the other or hears nothing of its own.

// Names of the metadata that bind an account.
const (
	boundStore = "blobstore" // the id of the store
	boundPlace = "blobplace" // where it is, for people; escaped, as metadata is ASCII
)

// maxPlace bounds the escaped place: metadata has bounds, and others are in it too.
const maxPlace = 2 << 10

// ElsewhereError means that the account is in use with other blobs than this program's.
type ElsewhereError struct {
	Here, There string // where the blobs of this program and of the others are; "" when not known
	Messages    int64  // of theirs that are left, about; 0 when not known
}

// Error says where both keep their blobs.
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

// identify returns the id of a store, which is given one if it has none.
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
		// Another program was quicker.
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

// binding is which store the account is bound to.
type binding struct {
	queue queue.Queue // that carries it
	store uuid.UUID   // of this program
	place string
}

// read returns the store that the account is bound to, uuid.Nil when it is to none, and
// where that is.
func (b *binding) read(ctx context.Context) (uuid.UUID, string, error) {
	found, err := b.queue.Properties(ctx)
	if err != nil {
		return uuid.Nil, "", err
	}
	id, place := parseBinding(found.Metadata)
	return id, place, nil
}

// parseBinding takes what makes no sense for none.
func parseBinding(metadata map[string]string) (id uuid.UUID, place string) {
	for name, value := range metadata { // HTTP does not keep the case of names
		switch strings.ToLower(name) {
		case boundStore:
			id, _ = uuid.Parse(value)
		case boundPlace:
			place, _ = url.PathUnescape(value)
		}
	}
	return id, place
}

// bind binds the account to the store of this program, or says that it is in use with
// another. The metadata and the messages left are those that were found.
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
		return nil // messages tell, if they must
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
		logger.Warn("the account cannot be bound to the blobs of this program, so others that look elsewhere are found out late", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return b.check(ctx)
}

// check returns an [*ElsewhereError] when the account is bound to another store.
func (b *binding) check(ctx context.Context) error {
	id, place, err := b.read(ctx)
	if err == nil && id != uuid.Nil && id != b.store {
		err = &ElsewhereError{Here: b.place, There: place}
	}
	return err
}

// strange tells whether a message has its blobs in another store. Those of earlier releases
// do not say.
func (b *binding) strange(h Head) bool {
	return h.Blobs != uuid.Nil && h.Blobs != b.store
}

// strange decides what becomes of a message, before anything else does. One whose blobs are
// in another store is poison if the account is bound to ours: its program finds out that it
// is not the one. Otherwise the message is left to the others, and this program ends.
func (b *Broker) strange(ctx context.Context, h Head) error {
	if !b.binding.strange(h) {
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

// end ends this program, which cannot do its work.
func (b *Broker) end(err error) {
	b.mislead.Do(func() {
		b.elsewhere = err
		close(b.misled)
	})
}

// misled is a [millrace.Runner] that ends with an error when the program looks for blobs in
// the wrong place.
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
