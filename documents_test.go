package millrace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoDocumentSaysTheSameTwice: a row of a table, an item of a list and a heading occur once in a page. Merges
// of two branches that add the same lines keep both.
func TestNoDocumentSaysTheSameTwice(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 {
		t.Fatalf("pages in docs: got %d, want at least 10", len(pages))
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "examples/README.md", "CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{} // the first line of each
		section, code, written := "", false, false
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if strings.HasPrefix(line, "<!-- ") { // tables that a program writes begin and end with a mark
				written = strings.Contains(line, "written by")
			}
			if strings.HasPrefix(line, "## ") {
				section = line
			}
			key := line
			switch {
			case code || written || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---"): // the head of a table
				continue
			case strings.HasPrefix(line, "### "):
				key = section + line // each version of the changelog has an Added
			case !strings.HasPrefix(line, "#") && (len(line) < 30 || !strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "- ")):
				continue
			}
			if first, found := seen[key]; found {
				t.Errorf("%s:%d: %q is also on line %d", page, i+1, line, first)
			}
			seen[key] = i + 1
		}
	}
}
