package millrace

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheExamplesAreShortAndListed holds what examples/README.md says of them.
func TestTheExamplesAreShortAndListed(t *testing.T) {
	readme, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("examples")
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		programs++
		name := entry.Name()
		if !strings.Contains(string(readme), "| [`"+name+"`]("+name+") |") {
			t.Errorf("examples/README.md does not list %s", name)
		}
		if name == "mosaic" {
			continue
		}
		lines, tests := 0, 0
		for file, text := range sources(t, filepath.Join("examples", name)) {
			if strings.HasSuffix(file, "_test.go") {
				tests++
			} else {
				lines += strings.Count(text, "\n")
			}
		}
		if lines == 0 || lines >= 100 {
			t.Errorf("examples/%s has %d lines, want under a hundred", name, lines)
		}
		if tests == 0 && name != "firstjob" { // which is the README's, and run by its test
			t.Errorf("examples/%s has no test", name)
		}
	}
	if programs < 8 {
		t.Errorf("%d examples, want at least 8", programs)
	}
}

var exampleFunction = regexp.MustCompile(`(?m)^func Example[A-Za-z_]*\(\) \{`)

// TestEveryPackageHasAnExample: what a package is for is shown by code that runs.
func TestEveryPackageHasAnExample(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := short(p.ImportPath)
		if strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "cmd/") {
			continue
		}
		dir := "."
		if name != "millrace" {
			dir = name
		}
		found := false
		for file, text := range sources(t, dir) {
			found = found || strings.HasSuffix(file, "_test.go") && exampleFunction.MatchString(text) && strings.Contains(text, "// Output:")
		}
		if !found {
			t.Errorf("package %s has no example that runs", name)
		}
	}
}

// sources returns the texts of the Go files in a directory, by name.
func sources(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}
