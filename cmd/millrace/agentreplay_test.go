package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/agentfile"
)

const replayFile = `
price: {instance_hour: 0.05}
pools:
  reporting:
    queues: [orders]
    beacons: [orders-control]
    policy: {max: 8, target: 30s}
  silent:
    queues: [parcels]
    policy: {max: 8, target: 30s}
`

// trace writes two hours with a peak in the second, and returns the path.
func trace(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("# trace: a peak\n# handling: 500ms\n# slots: 4\n# sla: 1m\n# seed: 1\narrivals\n")
	for minute := range 120 {
		n := 300
		if minute >= 70 && minute < 80 {
			n = 2400
		}
		fmt.Fprintln(&text, n)
	}
	path := filepath.Join(t.TempDir(), "peak.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replayed returns what -replay -json prints, by rule.
func replayed(t *testing.T, pool string) map[string]map[string]any {
	t.Helper()
	out := invocation{}.ok(t, "agent", "-config", configure(t, replayFile), "-replay", trace(t), "-pool", pool, "-json")
	results := map[string]map[string]any{}
	for line := range strings.Lines(out) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		results[one["rule"].(string)] = one
	}
	return results
}

// TestAgentReplaysATrace: the policy stands beside the rules that others use, all with the same bound, with and without reports.
func TestAgentReplaysATrace(t *testing.T) {
	t.Parallel()
	reporting, silent := replayed(t, "reporting"), replayed(t, "silent")
	own, blind, fixed := reporting["this policy"], silent["this policy"], reporting["fixed: 8"]
	if len(reporting) != 8 || own == nil || blind == nil || fixed == nil {
		t.Fatalf("got %v, want eight rules", reporting)
	}
	if own["jobs"].(float64) < 56_999 || own["trace"] != "a peak" {
		t.Errorf("got %v, want 57,000 jobs of the trace", own)
	}
	if own["late_share"].(float64) > 0.01 || own["instance_hours"].(float64) > fixed["instance_hours"].(float64)/2 {
		t.Errorf("got %v, want hardly any late, with half of the hours of %v", own, fixed)
	}
	if own["cost"].(float64) != own["instance_hours"].(float64)*0.05 {
		t.Errorf("got %v, want 0.05 for an hour", own)
	}
	if blind["requests"] == own["requests"] || blind["instance_hours"] == own["instance_hours"] {
		t.Errorf("without reports: got %v, want other decisions than %v", blind, own)
	}
	for rule, one := range reporting {
		if rule != "this policy" && one["instance_hours"] != silent[rule]["instance_hours"] {
			t.Errorf("%s: got %v and %v, want the same whether instances report or not", rule, one, silent[rule])
		}
	}
}

// TestTheIntervalOfTheFileIsReplayed, for the policy alone.
func TestTheIntervalOfTheFileIsReplayed(t *testing.T) {
	t.Parallel()
	byDefault, slow := rules(&agentfile.Pool{}, 0, 8), rules(&agentfile.Pool{}, 45*time.Second, 8)
	for i := range slow {
		want := byDefault[i].Interval
		if i == 0 {
			want = 45 * time.Second
		}
		if slow[i].Interval != want {
			t.Errorf("%s: got every %v, want %v", slow[i].Name, slow[i].Interval, want)
		}
	}
}

func TestAgentPrintsAReplayAsATable(t *testing.T) {
	t.Parallel()
	out := invocation{}.ok(t, "agent", "-config", configure(t, replayFile), "-replay", trace(t), "-pool", "reporting")
	lines := strings.Split(out, "\n")
	if len(lines) != 12 || lines[0] != "a peak: 57,000 jobs in 2h, each within 1m; 8 instances at most, which start in 30s." ||
		strings.Join(strings.Fields(lines[2]), " ") != "rule late worst instance-hours cost changes back and forth requests" || !strings.HasPrefix(lines[3], "  this policy ") {
		t.Errorf("got\n%s\nwant a table of eight rules", out)
	}
}

func TestAgentRefusesAReplayThatCannotBe(t *testing.T) {
	t.Parallel()
	path, dir := configure(t, replayFile), t.TempDir()
	wrong := filepath.Join(dir, "wrong.csv")
	if err := os.WriteFile(wrong, []byte("arrivals\nmany\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "short.csv")
	if err := os.WriteFile(short, []byte("# handling: 1s\n# step: 500ms\narrivals\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := invocation{}
	v.fails(t, exitUsage, []string{"-replay takes one policy: choose with -pool one of reporting, silent"}, "agent", "-config", path, "-replay", wrong)
	v.fails(t, exitUsage, []string{`has no pool "none": choose with -pool one of reporting, silent`}, "agent", "-config", path, "-replay", wrong, "-pool", "none")
	v.fails(t, exitFailure, []string{"no such file"}, "agent", "-config", path, "-replay", filepath.Join(dir, "none.csv"), "-pool", "silent")
	v.fails(t, exitFailure, []string{wrong, "2"}, "agent", "-config", path, "-replay", wrong, "-pool", "silent")
	v.fails(t, exitFailure, []string{"step"}, "agent", "-config", path, "-replay", short, "-pool", "silent")
}

func TestSmallSharesAreNotZero(t *testing.T) {
	for share, want := range map[float64]string{0: "none", 0.00001: "<0.01%", 0.001: "0.10%", 0.25: "25.0%", 1: "100.0%"} {
		if got := percent(share); got != want {
			t.Errorf("%v: got %s, want %s", share, got, want)
		}
	}
}
