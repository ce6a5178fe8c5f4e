package millrace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
		if !entry.IsDir() || entry.Name() == "internal" || entry.Name() == "browser" { // code and tests that large ones share
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
		if tests == 0 && name != "firstjob" && exampleOutput[name] == nil { // the test of the README runs that one
			t.Errorf("test files of examples/%s: got 0, want at least 1", name)
		}
	}
	if programs < 8 {
		t.Errorf("examples: got %d, want at least 8", programs)
	}
}

// exampleOutput has the lines of the examples that end by themselves, sorted, because handlers run concurrently and
// queues do not preserve order.
var exampleOutput = map[string][]string{
	// Base64 of "not an order", {"ID":"8"} and {"Order":"7"}, without envelopes and records.
	"functions": {
		"One order is shipped, two are poison, and 0 are left: all in Base64 without envelopes, as Functions reads them.",
		"orders-poison bm90IGFuIG9yZGVy", "orders-poison eyJJRCI6IjgifQ==", "shipped eyJPcmRlciI6IjcifQ==",
	},
	"hooks": {
		"attempt 1 retried: no paper",
		"attempt 1 retried: the printer is busy",
		"pages: loops=1",
		"pages: loops=2",
		"printed 100 pages in 102 attempts: the hooks chose the retry delays, the waits, and the loops, and saw every event",
	},
	"middleware": {
		"emails, attempt 1, 4 left: deleted, <nil>",
		"emails, attempt 1, 4 left: snoozed, <nil>",
		"orders, attempt 1, 1 left: poisoned, empty order",
		"orders, attempt 1, 1 left: retried, the bank does not respond",
		"orders, attempt 2, 0 left: deleted, <nil>",
		"sent to emails: <nil>",
		"sent to orders: <nil>",
		"sent to orders: <nil>",
	},
}

// exampleLog has expressions for what these examples log: the hook retries a busy printer immediately, and the curve
// delays the other failure by about a second.
var exampleLog = map[string][]string{
	"hooks": {`delay=0s error="the printer is busy"`, `delay=[12]s error="no paper"`},
}

// TestExamplesPrintWhatTheySay runs the examples that end by themselves, as users do.
func TestExamplesPrintWhatTheySay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and starts three programs")
	}
	dir := t.TempDir()
	build := []string{"build", "-o", dir + string(filepath.Separator)}
	for name := range exampleOutput {
		build = append(build, "./examples/"+name)
	}
	if out, err := exec.CommandContext(t.Context(), "go", build...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", build, err, out)
	}
	for name, want := range exampleOutput {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
			var logged bytes.Buffer
			cmd.Stderr = &logged
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &logged)
			}
			got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			for _, line := range exampleLog[name] {
				if !regexp.MustCompile(line).Match(logged.Bytes()) {
					t.Errorf("log: got %s, want %s", &logged, line)
				}
			}
		})
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
