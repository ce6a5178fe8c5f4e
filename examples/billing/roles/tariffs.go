package roles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/records"
)

const (
	maxTariffs      = 16 << 20 // bytes of their CSV
	maxKnownTariffs = 8        // of which a process keeps the tables
)

// tariffStore keeps tariffs as CSV under the digest of that, so that a message can name them and they never change. It is
// safe for concurrent use.
type tariffStore struct {
	store blob.Store

	mu    sync.Mutex
	known map[string]*records.Tariffs // by digest; guarded by mu
}

func newTariffStore(store blob.Store) *tariffStore {
	return &tariffStore{store: store, known: make(map[string]*records.Tariffs)}
}

func tariffsRef(digest string) blob.Ref {
	return blob.Ref{Container: "billing-tariffs", Name: digest + ".csv"}
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// put stores tariffs, unless they are stored, and returns their digest.
func (s *tariffStore) put(ctx context.Context, t *records.Tariffs) (digest string, err error) {
	var text bytes.Buffer
	if err := t.WriteCSV(&text); err != nil {
		return "", err
	}
	if text.Len() > maxTariffs {
		return "", fmt.Errorf("the tariffs have %d bytes as CSV, the limit is %d", text.Len(), maxTariffs)
	}
	digest = digestOf(text.Bytes())
	err = s.store.Create(ctx, tariffsRef(digest), &text, nil)
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return "", fmt.Errorf("store the tariffs: %w", err)
	}
	s.keep(digest, t)
	return digest, nil
}

// get returns the tariffs with the digest.
func (s *tariffStore) get(ctx context.Context, digest string) (*records.Tariffs, error) {
	s.mu.Lock()
	t := s.known[digest]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	text, err := readAll(ctx, s.store, tariffsRef(digest), maxTariffs)
	if err != nil {
		return nil, fmt.Errorf("read the tariffs: %w", err)
	}
	if got := digestOf(text); got != digest {
		return nil, fmt.Errorf("%v is damaged: its SHA-256 is %s", tariffsRef(digest), got)
	}
	t, rejected, err := records.ReadTariffs(bytes.NewReader(text), tariffsRef(digest).String())
	if err == nil && len(rejected) > 0 {
		err = &rejected[0]
	}
	if err != nil {
		return nil, fmt.Errorf("read the tariffs: %w", err)
	}
	s.keep(digest, t)
	return t, nil
}

func (s *tariffStore) keep(digest string, t *records.Tariffs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[digest] == nil && len(s.known) == maxKnownTariffs {
		clear(s.known) // tariffs change rarely, so any that is still used is soon back
	}
	s.known[digest] = t
}
