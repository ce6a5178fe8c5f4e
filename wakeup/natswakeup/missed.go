package natswakeup

import (
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// maxMissed bounds how many events are kept while the connection is down.
const maxMissed = 1024

// missedKey tells events that are kept from others; the rest is added up.
type missedKey struct {
	queue queue.Name
	due   time.Time
}

// keep keeps an event until the connection is there again. Subscribers dequeue when they connect, but
// they may do so earlier than this process.
func (t *Transport) keep(e wakeup.Event) error {
	key := missedKey{e.Queue, due(e)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.missed[key]; !known && len(t.missed) >= maxMissed {
		return ErrDisconnected
	}
	t.missed[key] += max(0, e.Bytes)
	t.wakeController() // it may be there again by now
	return nil
}

// sendMissed publishes what was kept, if the connection is there.
func (t *Transport) sendMissed() {
	if !t.conn.IsConnected() {
		return // a status follows
	}
	t.mu.Lock()
	missed := t.missed
	t.missed = make(map[missedKey]int64)
	t.mu.Unlock()
	for key, bytes := range missed {
		_ = t.publish(wakeup.Event{Queue: key.queue, Bytes: bytes, Due: key.due}) // keeps it if the connection has broken
	}
}

// due returns the due time of an event in the form in which it is sent.
func due(e wakeup.Event) time.Time { return e.Due.Round(0).UTC() }
