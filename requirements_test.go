package millrace

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRequirementsNameTheirTests checks that every test named in docs/requirements.md exists in
// its package and cites its requirements.
func TestRequirementsNameTheirTests(t *testing.T) {
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
		for _, id := range requirementID.FindAllString(cells[1], -1) {
			if !strings.Contains(source, id) {
				t.Errorf("%s: got no citation of %s, want one in its comment or body", test, id)
			}
		}
	}
	if rows < 60 {
		t.Errorf("rows with a test: got %d, want at least 60", rows)
	}
}

// requirementID matches the id of a requirement, such as L-22.
var requirementID = regexp.MustCompile(`\b(A|B|BL|C|L|M|N|O|P|PM|Q|R|S|T|V|X)-[0-9]{2}\b`)

// TestEveryCitedRequirementIsListed checks that docs/requirements.md resolves the ids in Go files
// and in the other documents.
func TestEveryCitedRequirementIsListed(t *testing.T) {
	const page = "docs/requirements.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, id := range requirementID.FindAllString(cells[1], -1) {
				listed[id] = true
			}
		}
	}
	cited := 0
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == page || !strings.HasSuffix(path, ".go") && filepath.Dir(path) != "docs" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, id := range requirementID.FindAllString(string(text), -1) {
			if cited++; !listed[id] {
				t.Errorf("%s cites %s: got no row in %s, want one", path, id, page)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if cited < 100 {
		t.Errorf("citations: got %d, want at least 100", cited)
	}
}

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
