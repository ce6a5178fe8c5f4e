package filequeue

import (
	"fmt"

	"github.com/millrace/millrace/queue"
)

// Found is what [Open] found in the directory. The zero value is that of a new store.
type Found struct {
	Queues   int
	Messages int
	Bytes    int64 // of their texts

	// Damage lists the damage, at most the first 1,000 pieces; nil if there was none.
	Damage []Damage

	// Damaged is the number of pieces of damage.
	Damaged int

	// Quarantined is the number of damaged records kept in the file since the directory was
	// made.
	Quarantined int

	// Torn means that the log ends in the middle of a commit, as a kill or a power cut leaves
	// it. Normally no acknowledged change is lost then. But damage at the end of the log can
	// look the same, and then the last commits are lost, which may have been acknowledged.
	Torn bool

	// Copy is the path of a copy of the damaged file, as it was. "" means that every page
	// could be read.
	Copy string
}

// maxDamage is how many pieces of damage [Found] lists.
const maxDamage = 1000

// Damage is one piece of damage.
type Damage struct {
	// Queue is the queue concerned; zero if it is not known or there is none.
	Queue queue.Name

	// Sequence is the number of the message within its queue, from 1; 0 if no message is
	// concerned.
	Sequence uint64

	// What says what is damaged and what was done about it.
	What string
}

// String returns the damage as one line.
func (d Damage) String() string {
	switch {
	case d.Queue == (queue.Name{}):
		return d.What
	case d.Sequence == 0:
		return fmt.Sprintf("queue %v: %s", d.Queue, d.What)
	default:
		return fmt.Sprintf("queue %v, message %d: %s", d.Queue, d.Sequence, d.What)
	}
}

func (f *Found) damage(d Damage) {
	f.Damaged++
	if len(f.Damage) < maxDamage {
		f.Damage = append(f.Damage, d)
	}
}
