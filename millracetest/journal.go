package millracetest

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// journals holds the journals of the queues of one account.
type journals struct {
	mu     sync.Mutex
	byName map[string]*journal // guarded by mu
}

func (all *journals) of(name string) *journal {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byName[name] == nil {
		all.byName[name] = &journal{entries: map[queue.ID]*entry{}}
	}
	return all.byName[name]
}

// journal records what one queue holds, hidden or not.
type journal struct {
	mu      sync.Mutex
	entries map[queue.ID]*entry // guarded by mu
	added   int                 // messages ever added
}

type entry struct {
	place   int // position in the order of arrival
	text    string
	expires time.Time // zero for never
}

// change records a change of the queue made by do. It holds the lock over the change, so that
// the journal and the queue agree; the change does not block.
func (j *journal) change(do func(*journal)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do(j)
}

// add records a message. It requires mu, as the other methods below do.
func (j *journal) add(id queue.ID, text string, life time.Duration) {
	j.added++
	e := &entry{place: j.added, text: text}
	if life != queue.Forever {
		e.expires = time.Now().Add(time.Duration(queue.Seconds(life)) * time.Second)
	}
	j.entries[id] = e
}

func (j *journal) rewrite(id queue.ID, text string) { j.entries[id].text = text }
func (j *journal) remove(id queue.ID)               { delete(j.entries, id) }
func (j *journal) clear()                           { clear(j.entries) }

// texts returns the texts of the messages that have not expired, in the order of arrival.
func (j *journal) texts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	var texts []string
	for _, e := range slices.SortedFunc(maps.Values(j.entries), func(a, b *entry) int { return cmp.Compare(a.place, b.place) }) {
		if e.expires.IsZero() || now.Before(e.expires) {
			texts = append(texts, e.text)
		}
	}
	return texts
}
