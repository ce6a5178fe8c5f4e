package millrace

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTableOfRequirementsIsTrue checks that every test named in docs/requirements.md exists
// in its package and names its requirements.
func TestTheTableOfRequirementsIsTrue(t *testing.T) {
	text, err := os.ReadFile("docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[3], "`Test") {
			continue
		}
		rows++
		test, where := strings.Trim(strings.TrimSpace(cells[3]), "`"), strings.TrimSpace(cells[4])
		source, found := declaration(t, where, test)
		if !found {
			t.Errorf("%s: package %s has no test %s", strings.TrimSpace(cells[1]), where, test)
			continue
		}
		for _, id := range identifier.FindAllString(cells[1], -1) {
			if !strings.Contains(source, id) && !strings.Contains(test, strings.ReplaceAll(id, "-", "")) {
				t.Errorf("neither the name of %s nor what it says names %s", test, id)
			}
		}
	}
	if rows < 60 {
		t.Errorf("the table has %d rows", rows)
	}
}

// identifier is the id of a requirement, such as L-22.
var identifier = regexp.MustCompile(`[A-Z]+-[0-9]+`)

// declaration returns a test with the comment before it.
func declaration(t *testing.T, dir, test string) (source string, found bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, after, found := strings.Cut(string(text), "\nfunc "+test+"(t *testing.T) {")
		if !found {
			continue
		}
		comment := before[max(strings.LastIndex(before, "\n}\n"), 0):]
		body, _, _ := strings.Cut(after, "\n}\n")
		return comment + body, true
	}
	return "", false
}
