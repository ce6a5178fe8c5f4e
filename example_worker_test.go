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

// TestTheReadmeWorkerCompiles builds the program that the README shows and counts its lines.
func TestTheReadmeWorkerCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```go\npackage main\n")
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md: got no Go program, want one")
	}
	code = "package main\n" + code

	lines := 0
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines > 24 {
		t.Errorf("lines of the README's worker: got %d, want at most 24", lines)
	}
	if formatted, err := format.Source([]byte(code)); err != nil || !bytes.Equal(formatted, []byte(code)) {
		t.Errorf("gofmt (error %v): got\n%swant\n%s", err, code, formatted)
	}

	// Inside the module, so that it is built with our go.mod and code; the dot hides it from
	// ./... patterns.
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
		t.Errorf("go vet: got %v, want no error\n%s", err, out)
	}
}

// By default five attempts take nearly six minutes.
func TestTheReadmeIsRightAboutRetries(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const claim = "By default a job has five attempts, with\nabout 1 s, 16 s, 81 s and 4 min between them: nearly six minutes"
	if !strings.Contains(string(readme), claim) || poison.DefaultMaxAttempts != 5 {
		t.Errorf("README.md lacks %q, or DefaultMaxAttempts is not 5 but %d", claim, poison.DefaultMaxAttempts)
	}
	var total time.Duration
	for attempt, about := range []time.Duration{time.Second, 16 * time.Second, 81 * time.Second, 256 * time.Second} {
		delay := listener.RetryCurve(attempt + 1)
		if delay < about*9/10 || delay > about*11/10 {
			t.Errorf("delay after attempt %d: got %v, want about %v", attempt+1, delay, about)
		}
		total += delay
	}
	if total < 5*time.Minute || total > 7*time.Minute {
		t.Errorf("time until a job is poison: got %v, want 5 to 7 min", total)
	}
}
