package poison_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// groupText is a group in which item 0 is done and item 1 failed for good.
const groupText = "millrace/2?id=7&n=2&s=3&gr=3&gd=AQ&gf=Ag&gs=Ag&ge=rejected+item+1\n1:a\n1:b\n1:c\n"

// A redriven group handles what is not done, also what had failed for good.
func TestARedrivenGroupKeepsWhatIsDone(t *testing.T) {
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: "test", Queue: "jobs"})
	from := q.Sibling(poison.Suffix)
	for _, one := range []queue.Queue{q, from} {
		if err := one.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	r := poisonrecord.New(q.Name(), queue.Message{Text: groupText}, 2, poison.ReasonRejected, nil)
	if err := (poisonrecord.Policy{Queue: from}).Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := poison.Redrive(t.Context(), q, nil); err != nil {
		t.Fatal(err)
	}
	batch, err := q.Peek(t.Context(), 2)
	if want := "millrace/2?id=7&gr=3&gd=AQ\n1:a\n1:b\n1:c\n"; err != nil || len(batch) != 1 || batch[0].Text != want {
		t.Errorf("got %+v, %v, want %q", batch, err, want)
	}
}

// A group has no one body that could stand for it.
func TestABareGroupStaysInItsEnvelope(t *testing.T) {
	from := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs-poison"})
	r := poisonrecord.New(queue.Name{Account: "test", Queue: "jobs"}, queue.Message{Text: groupText}, 2, poison.ReasonRejected, nil)
	if err := (poisonrecord.Policy{Queue: from, Bare: true}).Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	batch, err := from.Peek(t.Context(), 1)
	if err != nil || len(batch) != 1 || batch[0].Text != groupText {
		t.Fatalf("got %+v, %v", batch, err)
	}
	if h, _, _, err := envelope.Open(batch[0].Text, codec.Auto, envelope.Groups); err != nil || h.Items != 3 {
		t.Errorf("got %+v, %v", h, err)
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// The body of a record is that of the job, however the message carried it.
func TestARecordHasItsBody(t *testing.T) {
	for text, want := range map[string]string{
		"millrace/2?id=7&kd=ship\n{\"N\":7}": `{"N":7}`,
		"eyJOIjo3fQ==":                       `{"N":7}`,
		"just words":                         "just words",
		"millrace/2?id=7&gr=2\n1:a\n1:b\n":   "1:a\n1:b\n",
	} {
		if body, err := (poison.Record{Text: text}).Body(); err != nil || string(body) != want {
			t.Errorf("%q: got %q, %v; want %q", text, body, err, want)
		}
	}
	for text, want := range map[string]string{
		"millrace/2?id=7&cl=blob-7\n": "stored elsewhere: \"blob-7\"",
		"millrace/9?id=7\n{}":         "newer version",
	} {
		if body, err := (poison.Record{Text: text}).Body(); err == nil || !strings.Contains(err.Error(), want) || string(body) != text {
			t.Errorf("%q: got %q, %v; want the text and %q", text, body, err, want)
		}
	}
}
