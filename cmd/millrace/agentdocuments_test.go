package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const agentPage = "docs/agent.md"

// updating guards the page while MILLRACE_UPDATE_GOLDEN lets tests rewrite it.
var updating sync.Mutex

// shown returns the output that docs/agent.md shows for a command line.
func shown(t *testing.T, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(document(t, agentPage), "```console\n$ millrace "+line+"\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("%s does not show millrace %s", agentPage, line)
	}
	return block
}

// compareShown compares what docs/agent.md shows for a command line with what it prints.
func compareShown(t *testing.T, line, got string) {
	t.Helper()
	updating.Lock()
	defer updating.Unlock()
	want := shown(t, line)
	if got == want {
		return
	}
	if os.Getenv("MILLRACE_UPDATE_GOLDEN") == "" {
		t.Errorf("%s, millrace %s: got\n%s\nwant\n%s", agentPage, line, got, want)
		return
	}
	head := "$ millrace " + line + "\n"
	page := strings.Replace(document(t, agentPage), head+want+"```", head+got+"```", 1)
	if err := os.WriteFile(filepath.Join("..", "..", agentPage), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAgentPageShowsADryRun: 200 jobs come five minutes after it began, and have gone four minutes later.
func TestAgentPageShowsADryRun(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(document(t, agentPage), "```yaml\n")
	file, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("%s shows no file", agentPage)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{dryRun: true, length: time.Hour}, file, nil)
		done := make(chan error, 1)
		go func() { done <- b.run.Run(t.Context()) }()
		time.Sleep(5*time.Minute + time.Second)
		b.put(200)
		time.Sleep(4 * time.Minute)
		if err := b.queue.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if b.errs.Len() > 0 {
			t.Errorf("standard error: got %s, want nothing", &b.errs)
		}
		// The clock of a bubble begins with the year 2000.
		compareShown(t, "agent -config agent.yaml -dry-run", strings.ReplaceAll(b.out.String(), "2000-01-01T00:", "2026-11-22T10:"))
	})
}

// TestAgentPageShowsAReplay, and what it would be without beacons.
func TestAgentPageShowsAReplay(t *testing.T) {
	t.Parallel()
	const file, day = "../../docs/agent.yaml", "../../docs/agent-day.csv"
	compareShown(t, "agent -config agent.yaml -replay agent-day.csv -pool orders", invocation{}.ok(t, "agent", "-config", file, "-replay", day, "-pool", "orders"))
	example := document(t, "docs/agent.yaml")
	without := regexp.MustCompile(`(?m)^ *beacons:.*$`).ReplaceAllString(example, "")
	patient := strings.NewReplacer("utilization: 0.8", "utilization: 1", "# wait: 0s", "wait: 40s", "down_after: 10m", "down_after: 1m").Replace(example)
	for sentence, text := range map[string]string{"the same policy takes %s instance-hours": without, "it takes %s instance-hours, and none is late": patient} {
		out := strings.Split(invocation{}.ok(t, "agent", "-config", configure(t, text), "-replay", day, "-pool", "orders"), "\n")
		own := strings.Fields(out[3]) // this policy, late, worst, instance-hours
		want := fmt.Sprintf(sentence, own[4])
		if text == example || own[2] != "none" || !strings.Contains(strings.ReplaceAll(document(t, agentPage), "\n", " "), want) {
			t.Errorf("%s: got no %q and %s late, want it and none", agentPage, want, own[2])
		}
	}
}

// TestAgentPageShowsABeacon as the worker of these tests has it.
func TestAgentPageShowsABeacon(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(document(t, agentPage), "```go\n")
	snippet, _, _ := strings.Cut(rest, "\n```")
	worker := strings.Join(strings.Fields(document(t, "cmd/millrace/worker_test.go")), " ")
	if !found || !strings.Contains(worker, strings.Join(strings.Fields(snippet), " ")) {
		t.Errorf("%s: got the snippet %q, want what worker_test.go does", agentPage, snippet)
	}
}

// variable matches what differs between two runs: times, process ids, programs, queues, the reasons to remove instances, and what
// was measured in a few seconds.
var variable = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|process \d+|processes \S+|(devstoreaccount1|shop)/[a-z0-9-]+|→ 1: .*|In \d+s|  orders  \d.*|takes \d.*`)

// checkShownLines checks that every line that docs/agent.md shows for a command line is among those that were printed, but for what
// differs between two runs.
func checkShownLines(t *testing.T, line, printed string) {
	t.Helper()
	plain := func(text string) string { return variable.ReplaceAllString(text, "…") }
	printed = plain(printed)
	for one := range strings.Lines(shown(t, line)) {
		if one = strings.TrimSpace(plain(strings.TrimSuffix(one, "\n"))); one != "" && one != "^C" && !strings.Contains(printed, one) {
			t.Errorf("%s, millrace %s: got\n%s\nwant the line %q in it", agentPage, line, printed, one)
		}
	}
}
