package millrace

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinksInDocumentsLeadToFiles checks relative links.
func TestLinksInDocumentsLeadToFiles(t *testing.T) {
	for _, page := range append(documents(t), "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		prose := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`").ReplaceAllString(string(text), "")
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)`).FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// The tests that run the console blocks of a page. Some are in cmd/millrace.
var consoleTests = map[string]string{
	"README.md":      "TestTheFirstJobOfTheReadmeRuns",
	"docs/pause.md":  "TestThePausePageRuns",
	"docs/serve.md":  "TestTheServePageShowsTheStartupText",
	"docs/agent.md":  "TestAgentPageShowsADryRun and its neighbours",
	"docs/bodies.md": "TestTheBodiesPageIsAsItRuns",
	"docs/cost.md":   "TestCostPageShowsTheOutput",
	"docs/poison.md": "TestTheNightIsAsDocumented",
}

// TestConsoleBlocksOfDocumentsAreRun: a page with console blocks has a test that runs them.
func TestConsoleBlocksOfDocumentsAreRun(t *testing.T) {
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(text), "\n```console\n"); has != (consoleTests[page] != "") {
			t.Errorf("%s has console blocks: %v; the test that runs them is %q", page, has, consoleTests[page])
		}
	}
}

// TestTheReadmeIsShort: the front page stays one that people read.
func TestTheReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 7<<10 {
		t.Errorf("README.md: got %d bytes, want at most 7 KiB", len(text))
	}
}

// TestNoDocumentSaysTheSameTwice: a row of a table, an item of a list and a heading occur once in a page. Merges
// of two branches that add the same lines keep both.
func TestNoDocumentSaysTheSameTwice(t *testing.T) {
	for _, page := range append(documents(t), "CONTRIBUTING.md", "examples/README.md", "CHANGELOG.md") {
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
