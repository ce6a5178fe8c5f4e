package dispatcher

import (
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
)

// The mark of a poison message that no handler saw accounts for all deliveries before it, so that
// the delays of its moves begin at the first; any other give-back accounts for its own delivery only.
func TestAMarkAccountsForTheDeliveriesBeforeIt(t *testing.T) {
	text, err := envelope.Seal(envelope.Head{Settled: 1}, []byte("{}"), codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{dispatcher: &Dispatcher{}, queued: queue.Message{Text: text, DequeueCount: 7}}
	if err := o.read(); err != nil {
		t.Fatal(err)
	}
	for poison, want := range map[string]int64{"lost": 7, "": 2} {
		head := o.head
		head.Poison = poison
		recorded, _, _, err := envelope.Open(o.recordedText(head, 0, false), codec.Envelope)
		if err != nil || recorded.Settled != want {
			t.Errorf("poison %q: got %d deliveries settled and error %v, want %d", poison, recorded.Settled, err, want)
		}
	}
}
