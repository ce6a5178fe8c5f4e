package millrace

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamplesAreShortTestedAndListed checks the claims of examples/README.md.
func TestExamplesAreShortTestedAndListed(t *testing.T) {
	readme, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("examples")
	if err != nil {
		t.Fatal(err)
	}
	const maxLines = 130 // of a small example
	programs := 0
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == "internal" { // what the large ones share
			continue
		}
		programs++
		name := entry.Name()
		if !strings.Contains(string(readme), "| [`"+name+"`]("+name+") |") {
			t.Errorf("examples/README.md does not list %s", name)
		}
		if name == "billing" || name == "microblog" || name == "mosaic" || name == "regions" || name == "video" { // the large ones
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
		if lines == 0 || lines > maxLines {
			t.Errorf("lines of examples/%s: got %d, want 1 to %d", name, lines, maxLines)
		}
		if tests == 0 && name != "firstjob" { // the test of the README runs that one
			t.Errorf("test files of examples/%s: got 0, want at least 1", name)
		}
	}
	if programs < 8 {
		t.Errorf("examples: got %d, want at least 8", programs)
	}
}

var exampleFunction = regexp.MustCompile(`(?m)^func Example[A-Za-z_]*\(\) \{`)

// notImported matches packages that users do not import.
var notImported = regexp.MustCompile(`^(internal|examples|cmd)/`)

// Every package that users import has an example that runs, in its folder or in that of the package it belongs to:
// a package without other tests would link a test binary for an example alone.
func TestEveryPackageHasAnExample(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := short(p.ImportPath)
		if notImported.MatchString(name) {
			continue
		}
		dir := "."
		if name != "millrace" {
			dir = name
		}
		found := false
		for _, folder := range []string{dir, filepath.Dir(dir)} {
			for file, text := range sources(t, folder) {
				found = found || strings.HasSuffix(file, "_test.go") &&
					exampleFunction.MatchString(text) && strings.Contains(text, "// Output:") &&
					(folder == dir || strings.Contains(text, "\t"+filepath.Base(dir)+".") || strings.Contains(text, " "+filepath.Base(dir)+"."))
			}
		}
		if !found {
			t.Errorf("package %s: got no example with output, want at least 1", name)
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
