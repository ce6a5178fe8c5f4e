package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/internal/replay"
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

// TestAgentPageShowsAReplay of the example and of the day beside the page.
func TestAgentPageShowsAReplay(t *testing.T) {
	t.Parallel()
	const file, day = "../../docs/agent.yaml", "../../docs/agent-day.csv"
	compareShown(t, "agent -config agent.yaml -replay agent-day.csv -pool orders", invocation{}.ok(t, "agent", "-config", file, "-replay", day, "-pool", "orders"))
}

// TestAgentPageIsRightAboutReplays: what it says of the same day without beacons, and with jobs that may wait.
func TestAgentPageIsRightAboutReplays(t *testing.T) {
	if testing.Short() {
		t.Skip("replays four days")
	}
	t.Parallel()
	example := document(t, "docs/agent.yaml")
	trace, err := readTrace("../../docs/agent-day.csv")
	if err != nil {
		t.Fatal(err)
	}
	play := func(text string, rule int) replay.Result {
		file, err := agentfile.Parse("agent.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		trace := trace
		bound(&trace, &file.Pools[0].Policy)
		result, err := replay.Run(trace, rules(&file.Pools[0], file.Interval, trace.Max)[rule])
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	usual := play(example, 0)
	without := play(regexp.MustCompile(`(?m)^ *beacons:.*$`).ReplaceAllString(example, ""), 0)
	if times := without.InstanceHours / usual.InstanceHours; times < 1.5 || times > 2.5 || without.Late > 0 {
		t.Errorf("without beacons: got %v times the instance-hours and %v late, want about twice, and none", times, without.Late)
	}
	patient := play(strings.NewReplacer("utilization: 0.8", "utilization: 1", "# wait: 0s", "wait: 40s", "down_after: 5m", "down_after: 1m").Replace(example), 0)
	const functions = 5 // the cheapest of those that are not late
	if other := play(example, functions); patient.Late > 0 || patient.InstanceHours >= other.InstanceHours || patient.InstanceHours >= usual.InstanceHours {
		t.Errorf("with jobs that may wait: got %v hours and %v late, want fewer than %v and %v, and none", patient.InstanceHours, patient.Late, usual.InstanceHours, other.InstanceHours)
	}
}

// variable matches what differs between two runs: times, process ids, programs, queues, how many instances are removed at
// once and why, and what was measured in a few seconds.
var variable = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|process \d+|processes \S+|(devstoreaccount1|shop)/[a-z0-9-]+|\d → 1: .*|In \d+s|  orders  \d.*|takes \d.*`)

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
