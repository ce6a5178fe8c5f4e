package localqueue_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"sync"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// memory is the smallest store: it "survives" as long as the variable does. A commit makes a new
// texts map, so that views keep theirs, and cannot fail, so nothing need be undone.
type memory struct {
	saved    storage.Saved // without queues, accounts, names and messages
	accounts map[string]storage.AccountState
	queues   map[uint64]storage.QueueState
	deleting map[queue.Name]storage.DeletingName
	messages map[storage.MessageKey]storage.MessageState

	mu    sync.Mutex
	texts texts // guarded by mu; never modified
}

func newMemory() *memory {
	return &memory{
		accounts: map[string]storage.AccountState{}, queues: map[uint64]storage.QueueState{},
		deleting: map[queue.Name]storage.DeletingName{}, messages: map[storage.MessageKey]storage.MessageState{},
	}
}

func (s *memory) Load() (storage.Saved, error) {
	saved := s.saved
	saved.Accounts = slices.Collect(maps.Values(s.accounts))
	saved.Queues = slices.Collect(maps.Values(s.queues))
	saved.Deleting = slices.Collect(maps.Values(s.deleting))
	saved.Messages = maps.Values(s.messages)
	return saved, nil
}

func (s *memory) Commit(changes []storage.Change) (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = maps.Clone(s.texts)
	if s.texts == nil {
		s.texts = texts{}
	}
	for _, c := range changes {
		s.apply(c)
	}
	return false, nil
}

func (s *memory) apply(c storage.Change) {
	switch c := c.(type) {
	case storage.SecretSaved:
		s.saved.Secret = c
	case storage.CommittedAt:
		s.saved.Time = int64(c)
	case storage.AccountSaved:
		s.accounts[c.Name] = storage.AccountState(c)
	case storage.QueueSaved:
		delete(s.deleting, c.Name)
		s.queues[c.Ordinal] = storage.QueueState(c)
		s.saved.Ordinal = max(s.saved.Ordinal, c.Ordinal)
	case storage.QueueCleared:
		s.remove(func(k storage.MessageKey) bool { return k.Queue == c.Queue && k.Sequence <= c.Sequence })
	case storage.QueueDropped:
		delete(s.queues, c.Ordinal)
		s.remove(func(k storage.MessageKey) bool { return k.Queue == c.Ordinal })
		if c.Deleting.Until != 0 {
			s.deleting[c.Deleting.Name] = c.Deleting
		}
	case storage.MessageAdded:
		s.messages[c.MessageKey], s.texts[c.MessageKey] = c.MessageState, c.Text
	case storage.MessageRewritten:
		s.messages[c.MessageKey], s.texts[c.MessageKey] = c.MessageState, c.Text
	case storage.MessagesUpdated:
		for _, m := range c {
			s.messages[m.MessageKey] = m
		}
	case storage.MessagesExpired:
		s.remove(func(k storage.MessageKey) bool { return slices.Contains(c, k) })
	case storage.MessageRemoved:
		s.remove(func(k storage.MessageKey) bool { return k == storage.MessageKey(c) })
	case storage.MessageQuarantined: // a text that cannot be read; a store on a disk keeps it apart
		s.remove(func(k storage.MessageKey) bool { return k == storage.MessageKey(c) })
	}
}

func (s *memory) remove(gone func(storage.MessageKey) bool) {
	maps.DeleteFunc(s.messages, func(k storage.MessageKey, _ storage.MessageState) bool { return gone(k) })
	maps.DeleteFunc(s.texts, func(k storage.MessageKey, _ string) bool { return gone(k) })
}

func (s *memory) View() (storage.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts, nil
}

func (s *memory) Close() error { return nil }

type texts map[storage.MessageKey]string

func (t texts) Text(k storage.MessageKey) (string, error) {
	text, ok := t[k]
	if !ok {
		return "", storage.ErrDamaged
	}
	return text, nil
}

func (t texts) Close() {}

// A store in memory, and two engines over it, one after the other. Receipts of the first are
// valid in the second.
func Example_store() {
	ctx := context.Background()
	orders := queue.Name{Account: "local", Queue: "orders"}
	store := newMemory()

	first, err := localqueue.Open(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	q := first.Queue(orders)
	if err := q.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"ship 41", "ship 42"} {
		if _, err := q.Enqueue(ctx, text, nil); err != nil {
			log.Fatal(err)
		}
	}
	batch, err := q.Dequeue(ctx, 1, queue.MaxVisibility)
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Close(); err != nil {
		log.Fatal(err)
	}

	second, err := localqueue.Open(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	q = second.Queue(orders)
	fmt.Println("delete", batch[0].Text, q.Delete(ctx, batch[0].Lease))
	left, err := q.Peek(ctx, queue.MaxBatch)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(left), "left:", left[0].Text)
	if err := second.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// delete ship 41 <nil>
	// 1 left: ship 42
}
