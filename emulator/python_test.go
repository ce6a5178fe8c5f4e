package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
)

// pythonJob has keys and values that both sides could spoil.
type pythonJob struct {
	ID   int    `json:"id"`
	Note string `json:"note"`
}

var pythonJobs = []pythonJob{{1, "plain"}, {2, `<&> "quoted" 'too'`}, {3, "привет 🐍"}, {4, "two\nlines\r\n\tand a tab"}, {5, ""}}

// TestPython (N-07): a component in Python, with Microsoft's client and any of its policies for texts, is
// on either side of a Millrace program.
func TestPython(t *testing.T) {
	python := azuritetest.StorageQueuePython(t)
	e, err := must(New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	run := func(command string, policies ...string) string {
		t.Helper()
		settings, err := json.Marshal(map[string]any{"connection": e.ConnectionString(), "jobs": pythonJobs, "policies": policies})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, python, "testdata/storage-queue.py", command)
		c.Env = append(os.Environ(), "MILLRACE_TEST="+string(settings))
		var output, errorLog bytes.Buffer
		c.Stdout, c.Stderr = &output, &errorLog
		if err := c.Run(); err != nil {
			t.Fatalf("%s: %v after %q: %s", command, err, output.String(), errorLog.String())
		}
		return output.String()
	}

	// Python sends. The listener needs no setting: it recognises the texts.
	policies := []string{"text", "textbase64", "binarybase64"}
	run("send", policies...)
	for _, policy := range policies {
		q, err := azurequeue.Open(e.ConnectionString(), "from-python-"+policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := handlePython(t, q); !reflect.DeepEqual(got, pythonJobs) {
			t.Errorf("handled from %s: got %+v, want %+v", policy, got, pythonJobs)
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("%s at the end: got %+v, %v; want depth 0", policy, p, err)
		}
	}

	// Python receives. It knows no envelopes.
	formats := map[string]codec.Format{"text": codec.Plain, "textbase64": codec.Base64, "binarybase64": codec.Base64}
	for _, policy := range policies {
		q, err := azurequeue.Open(e.ConnectionString(), "to-python-"+policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := producer.New(q, &producer.Options[pythonJob]{Format: formats[policy], Create: true})
		for _, job := range pythonJobs {
			if _, err := p.Send(t.Context(), job, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(run("receive", policies...)), "\n")
	if len(lines) != len(policies) {
		t.Fatalf("received: got %q, want a line for each of %v", lines, policies)
	}
	for n, policy := range policies {
		var got []pythonJob
		if err := json.Unmarshal([]byte(lines[n]), &got); err != nil || !reflect.DeepEqual(got, pythonJobs) {
			t.Errorf("received as %s: got %s, %v; want %+v", policy, lines[n], err, pythonJobs)
		}
	}
}

// handlePython runs a listener until it has settled as many messages as there are jobs. It returns the
// handled jobs by their ids.
func handlePython(t *testing.T, q *azurequeue.Queue) []pythonJob {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	handled, settled := make([]pythonJob, len(pythonJobs)), 0
	o := &listener.Options[pythonJob]{Logger: slog.New(slog.DiscardHandler)}
	o.Observer.Settled = func(d listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if outcome != listener.Deleted {
			t.Errorf("message %s: got %v, want deleted", d.ID, outcome)
		}
		if settled++; settled == len(pythonJobs) {
			stop()
		}
	}
	l := listener.New(q, func(_ context.Context, m *listener.Message[pythonJob]) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Body.ID > 0 && m.Body.ID <= len(handled) {
			handled[m.Body.ID-1] = m.Body
		}
		return nil
	}, o)
	if err := l.Run(ctx); err != nil {
		t.Errorf("run: %v", err)
	}
	return handled
}
