package natswakeup_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup/natswakeup"
)

type Order struct{ ID string }

func ship(context.Context, *listener.Message[Order]) error { return nil }

// These are the lines of docs/wakeups.md, so that they compile.
func _(q queue.Queue) error {
	conn, err := nats.Connect("nats://127.0.0.1:4222", nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	wakeups, err := natswakeup.New(conn, nil)
	if err != nil {
		return err
	}
	p := producer.New(q, &producer.Options[Order]{Wakeups: wakeups})
	l := listener.New(q, ship, &listener.Options[Order]{Wakeups: wakeups})
	_, _ = p, l
	return nil
}

func TestTheSnippetOfTheWakeUpsPageCompiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/wakeups.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("document_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, found := strings.Cut(string(page), "```go\nconn, err := nats.Connect")
	snippet, _, closed := strings.Cut(snippet, "```")
	if !found || !closed {
		t.Fatal("docs/wakeups.md: got no snippet with NATS, want one")
	}
	for line := range strings.Lines("conn, err := nats.Connect" + snippet) {
		if !strings.Contains(string(own), "\n\t"+line) {
			t.Errorf("docs/wakeups.md has the line %q, which is not compiled here", line)
		}
	}
}
