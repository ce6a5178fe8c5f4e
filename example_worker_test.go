package millrace_test

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
