package roles

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/poison"
)

// A poison message stops its batch alone, loudly, and the batch is reported when the message is sent back.
func TestABatchWithAPoisonMessageIsReportedWhenThatIsSentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ship(w.submitter(), day1, generate(1, 100), 50)
		damaged := blob.Ref{Container: shipping.Container, Name: day1 + "/pieces/piece-00001.csv"}
		r, err := w.store.Open(t.Context(), damaged)
		if err != nil {
			t.Fatal(err)
		}
		good, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		w.put(damaged, bytes.Replace(good, []byte("Z,"), []byte("z,"), 1))
		p := w.start(Options{Roles: All, Group: 10}, nil)
		w.ship(p.System, day2, generate(2, 100), 50)
		synctest.Wait() // the queue is created
		if _, err := w.queue(WorkQueue).Enqueue(t.Context(), "no item at all", nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if w.books.bill(day1) != nil || w.books.bill(day2) == nil {
			t.Fatalf("got batches %v in the books, want %s alone", w.books.bills, day2)
		}
		log := p.log.String()
		for _, want := range []string{"batch=" + day1, "piece 1 of batch " + day1 + " is damaged", "millrace poison redrive " + BatchesQueue, "test/" + WorkQueue} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}

		w.put(damaged, good)
		report, err := poison.Redrive(t.Context(), w.queue(BatchesQueue+poison.Suffix), &poison.RedriveOptions{Account: w.account})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("redrive: got %+v and error %v, want 1 message", report, err)
		}
		w.settle()
		p.end()
		if err := w.queue(WorkQueue + poison.Suffix).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.check()
	})
}

func (w *world) put(ref blob.Ref, content []byte) {
	w.Helper()
	if err := w.store.Put(w.Context(), ref, bytes.NewReader(content), nil); err != nil {
		w.Fatal(err)
	}
}
