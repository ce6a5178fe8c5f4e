package millrace_test

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
)

// TestTheWorkerOfTheReadmeCompiles builds the program that the README shows, so that
// it stays true, and counts its lines.
func TestTheWorkerOfTheReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```go\npackage main\n")
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md shows no program")
	}
	code = "package main\n" + code

	lines := 0
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines > 24 {
		t.Errorf("the worker of the README has %d lines, want at most 24", lines)
	}
	if formatted, err := format.Source([]byte(code)); err != nil || !bytes.Equal(formatted, []byte(code)) {
		t.Errorf("it is not as gofmt would have it: %v", err)
	}

	// In a directory of the module, so that it is built with our go.mod and code; the
	// dot keeps it out of everybody's ./...
	dir, err := os.MkdirTemp(".", ".readme-worker-") //nolint:usetesting // t.TempDir is outside the module
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "vet", "./"+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("it does not compile: %v\n%s", err, out)
	}
}

// TestTheReadmeIsRightAboutRetries: five attempts take nearly six minutes by default.
func TestTheReadmeIsRightAboutRetries(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const claim = "By default a job has five attempts, with\nabout 1 s, 16 s, 81 s and 4 min between them: nearly six minutes"
	if !strings.Contains(string(readme), claim) || poison.DefaultMaxAttempts != 5 {
		t.Errorf("README.md does not say %q, or it is not so", claim)
	}
	var all time.Duration
	for attempt, about := range []time.Duration{time.Second, 16 * time.Second, 81 * time.Second, 256 * time.Second} {
		delay := listener.RetryCurve(attempt + 1)
		if delay < about*9/10 || delay > about*11/10 {
			t.Errorf("%v after attempt %d, want about %v", delay, attempt+1, about)
		}
		all += delay
	}
	if all < 5*time.Minute || all > 7*time.Minute {
		t.Errorf("%v until it is poison", all)
	}
}
