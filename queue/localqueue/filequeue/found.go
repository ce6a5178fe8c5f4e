package filequeue

import (
	"fmt"

	"github.com/millrace/millrace/queue"
)

// Found is what [Open] found in the directory. The zero value is a new store's.
type Found struct {
	Queues   int
	Messages int
	Bytes    int64 // of their texts

	// Damage is what was wrong, at most the first 1,000 pieces of it; nil when
	// all was well.
	Damage []Damage

	// Damaged counts all that was wrong.
	Damaged int

	// SetAside counts the records in Damage that were taken out and are kept in
	// the file, since the directory was made.
	Quarantined int

	// Torn says that the log ends in the middle of a commit, as a kill or a power cut
	// leaves it. Then nothing is lost that was acknowledged. But damage at the end of
	// the log can look the same, and then the last commits are lost, which may have been
	// acknowledged.
	Torn bool

	// Copy is the path of the file as it was found, kept because parts of it
	// could not be read. "" when all could.
	Copy string
}

// maxDamage is how many pieces of damage [Found] lists.
const maxDamage = 1000

// Damage is one thing that was wrong.
type Damage struct {
	// Queue is whose; zero when that is not known or no queue's.
	Queue queue.Name

	// Sequence is which message of the queue, counted from the first ever
	// enqueued; 0 when it was no message.
	Sequence uint64

	// What is wrong, and what became of it, in words.
	What string
}

// String says it in one line.
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
