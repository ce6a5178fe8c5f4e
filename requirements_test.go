package millrace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheTableOfRequirementsIsTrue holds that every test which docs/requirements.md names
// exists in the package that it names.
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
		if !declares(t, where, test) {
			t.Errorf("%s: package %s has no test %s", strings.TrimSpace(cells[1]), where, test)
		}
	}
	if rows < 60 {
		t.Errorf("the table has %d rows", rows)
	}
}

func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc "+test+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
