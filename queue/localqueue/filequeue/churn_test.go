package filequeue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// TestPagesSplitAndMergeWithoutDamage commits many changes of messages in random order, so that
// pages of the tree split, merge and become empty at every level. The file must then be sound, with
// every message.
func TestPagesSplitAndMergeWithoutDamage(t *testing.T) {
	const queues, most = 20, 400
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	dir := memoryDirectory(t)
	random := rand.New(rand.NewPCG(1, 2))
	var have []localengine.MessageKey
	next := make([]uint64, queues+1)
	for round := range rounds {
		s, err := openStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		checkKeys(t, saved, s.Found(), have)
		var changes []localengine.Change
		if round == 0 {
			changes = append(changes, localengine.SecretSaved{1})
			for q := range uint64(queues) {
				changes = append(changes, localengine.QueueSaved{Ordinal: q + 1, Name: queue.Name{Account: account, Queue: fmt.Sprintf("queue-%d", q)}})
			}
		}
		for range random.IntN(5) { // commits
			for range random.IntN(most) {
				switch n := random.IntN(10); {
				case n < 4+round%3 || len(have) == 0: // grows, stays, shrinks
					q := 1 + random.Uint64N(queues)
					next[q]++
					key := localengine.MessageKey{Queue: q, Sequence: next[q]}
					have = append(have, key)
					changes = append(changes, localengine.MessageAdded{MessageState: localengine.MessageState{MessageKey: key}, Text: text[:random.IntN(len(text))]})
				case n < 8:
					i := random.IntN(len(have))
					changes = append(changes, localengine.MessageRemoved(have[i]))
					have = slices.Delete(have, i, i+1)
				default:
					changes = append(changes, localengine.MessagesUpdated{{MessageKey: have[random.IntN(len(have))], Due: 1, Dequeues: 1}})
				}
			}
			if _, err := s.Commit(changes); err != nil {
				t.Fatal(err)
			}
			changes = nil
		}
		if changes != nil {
			if _, err := s.Commit(changes); err != nil {
				t.Fatal(err)
			}
		}
		if round%2 == 0 {
			s.abandon(t)
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkKeys(t *testing.T, saved localengine.Saved, found Found, want []localengine.MessageKey) {
	t.Helper()
	if found.Damaged > 0 || found.Messages != len(want) {
		t.Fatalf("found %+v, want %d messages", found, len(want))
	}
	keys := make(map[localengine.MessageKey]bool, len(want))
	for m := range saved.Messages {
		keys[m.MessageKey] = true
	}
	for _, k := range want {
		if !keys[k] {
			t.Fatalf("%v is lost", k)
		}
	}
}
