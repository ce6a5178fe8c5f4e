package filequeue

import (
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// textsOf reads all texts of a queue, visible or not, from the file itself.
func textsOf(t *testing.T, s *Store, q *localqueue.Queue) (texts []string) {
	t.Helper()
	err := s.db.View(func(tx *bolt.Tx) error {
		var ordinal uint64
		err := tx.Bucket(queues).ForEach(func(key, record []byte) error {
			state, err := readQueue(key, record)
			if err == nil && state.Name == q.Name() {
				ordinal = state.Ordinal
			}
			return err
		})
		if err != nil {
			return err
		}
		return tx.Bucket(bodies).ForEach(func(key, record []byte) error {
			m, text, err := readBody(key, record)
			if err == nil && m.Queue == ordinal {
				texts = append(texts, string(text))
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
