package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/queue"
)

func queuesCommand() *command {
	var (
		account accountFlag
		asJSON  bool
	)
	f := newFlags("queues")
	account.add(f)
	f.BoolVar(&asJSON, "json", false, "print one JSON object per queue, each on its own line, with the metadata")
	return &command{name: "queues", args: "[PREFIX]", does: "list the queues of an account", flags: f, maxArgs: 1,
		more: "It lists the queues whose names begin with the prefix, one a line.\n",
		run: func(ctx context.Context, c *console, args []string) error {
			prefix := strings.Join(args, "")
			if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				return usageError{fmt.Errorf("no queue name begins with %s: names have lower-case letters, digits and hyphens", quote(prefix))}
			}
			return c.onAccount(ctx, &account, func(ctx context.Context, t *task) error { return t.list(ctx, prefix, asJSON) })
		}}
}

// list prints queues page by page.
func (t *task) list(ctx context.Context, prefix string, asJSON bool) error {
	out := bufio.NewWriter(t.console.out)
	listed := 0
	for q, err := range queue.ListAll(ctx, t.account, prefix) {
		if err == nil {
			listed++
			err = printListed(out, q, asJSON)
		}
		if err != nil {
			_ = out.Flush() // the first error counts
			return err
		}
	}
	if listed == 0 && !asJSON {
		what := "no queues"
		if prefix != "" {
			what = fmt.Sprintf("no queues whose names begin with %q", prefix)
		}
		printf(t.console.err, "There are %s in account %s; create one with millrace create QUEUE.\n", what, t.account.Name())
	}
	return out.Flush()
}

func printListed(out io.Writer, q queue.Listed, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintln(out, escapeControls(q.Name))
		return err
	}
	return printJSON(out, struct {
		Name string `json:"name"`
		pauseFields
		Metadata map[string]string `json:"metadata"`
	}{q.Name, pauseFieldsOf(q.Metadata), nonNil(q.Metadata)})
}

// printJSON prints one object on a line.
func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// nonNil returns metadata that is {} in JSON, not null.
func nonNil(metadata map[string]string) map[string]string {
	if metadata == nil {
		return map[string]string{}
	}
	return metadata
}
