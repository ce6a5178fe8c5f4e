package millrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace/millrace"

// goPackage holds the fields of go list that this test needs.
type goPackage struct {
	ImportPath string
	Dir        string
	Export     string // the file with its export data
	GoFiles    []string
	Imports    []string
	Module     *struct{ Path string }
	Standard   bool
}

// listed has what go list said, because several tests ask the same.
var listed = map[string][]goPackage{}

// goList leaves out folders that have only tests.
func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	return goListIn(t, ".", os.Environ(), args...)
}

func goListIn(t *testing.T, dir string, env []string, args ...string) []goPackage {
	t.Helper()
	asked := dir + " " + strings.Join(args, " ")
	if packages, known := listed[asked]; known {
		return packages
	}
	command := append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,Imports,Module,Standard"}, args...)
	list := exec.CommandContext(t.Context(), "go", command...)
	list.Dir, list.Env = dir, env
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %v in %s: %v", args, dir, err)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			listed[asked] = packages
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

// importTable reads the table of docs/imports.md: the allowed imports of each package.
func importTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("docs/imports.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		var imports []string
		for one := range strings.SplitSeq(cells[3], ",") {
			imports = append(imports, strings.TrimSpace(one))
		}
		table[strings.Trim(strings.TrimSpace(cells[1]), "`")] = imports
	}
	if len(table) == 0 {
		t.Fatal("docs/imports.md has no table of packages")
	}
	return table
}

// short is the name of one of our packages in the table.
func short(path string) string {
	if path == module {
		return "millrace"
	}
	return strings.TrimPrefix(path, module+"/")
}

// TestImportsGoOneWay compares the table of docs/imports.md with the code: every package has a
// row, every row is a package, and no package imports what its row does not allow.
func TestImportsGoOneWay(t *testing.T) {
	table := importTable(t)
	seen := map[string]bool{}
	for _, p := range goList(t, "./...") {
		name := short(p.ImportPath)
		seen[name] = true
		allowed, ok := table[name]
		if !ok {
			t.Errorf("package %s is not in the table of docs/imports.md", name)
			continue
		}
		for _, imported := range p.Imports {
			ours := imported == module || strings.HasPrefix(imported, module+"/")
			if ours && !slices.Contains(allowed, short(imported)) && !slices.Contains(allowed, "any") {
				t.Errorf("%s imports %s, which its row does not allow: %v", name, short(imported), allowed)
			}
		}
	}
	for name := range table {
		if !seen[name] {
			t.Errorf("docs/imports.md has a row for %s, which is not a package", name)
		}
	}
}

// TestImportsGoDown compares the picture of docs/architecture.md with the code: it has every package once, and no package
// imports one of a higher layer.
func TestImportsGoDown(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(text), "```layers\n")
	picture, _, _ = strings.Cut(picture, "```")
	layers := map[string]int{} // 0 is the highest
	layer := -1
	for line := range strings.Lines(picture) {
		names := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			layer++
			names = names[1:]
		}
		for _, name := range names {
			if _, twice := layers[name]; twice {
				t.Errorf("the picture of docs/architecture.md has %s twice", name)
			}
			layers[name] = layer
		}
	}
	arrows, top, seen := 0, map[string]bool{}, map[string]bool{}
	for _, p := range goList(t, "./...") {
		name := short(p.ImportPath)
		at, ok := layers[name]
		if !ok {
			t.Errorf("the picture of docs/architecture.md does not have %s", name)
		}
		seen[name] = true
		top[strings.Split(name, "/")[0]] = true
		for _, imported := range p.Imports {
			if imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			arrows++
			if layers[short(imported)] < at {
				t.Errorf("%s imports %s, which is in a higher layer", name, short(imported))
			}
		}
	}
	for name := range layers {
		if !seen[name] {
			t.Errorf("the picture of docs/architecture.md has %s, which is not a package", name)
		}
	}
	t.Logf("%d arrows, %d top-level folders with packages", arrows, len(top))
}

// TestDependenciesStayBehindOnePackage: each of these modules has one package that imports it, so it is
// not part of the surface of any other.
func TestDependenciesStayBehindOnePackage(t *testing.T) {
	owners := []struct{ dependency, owner string }{ // owners, separated by spaces
		{"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue", "queue/azurequeue"},
		{"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob", "blob/azureblob"},
		{"github.com/Azure/azure-sdk-for-go/sdk/data/aztables", "table/aztable"},
		{"github.com/cenkalti/backoff", "internal/retry"},
		{"github.com/klauspost/compress", "codec/zstdcodec"},
		{"golang.org/x/time", "queue/limits"},
		{"go.yaml.in/yaml", "internal/agentfile"},
	}
	for _, p := range goList(t, "./...") {
		for _, imported := range p.Imports {
			for _, o := range owners {
				if strings.HasPrefix(imported, o.dependency) && !slices.Contains(strings.Fields(o.owner), short(p.ImportPath)) {
					t.Errorf("%s imports %s; only %s may", short(p.ImportPath), imported, o.owner)
				}
			}
		}
	}
}

// TestAWorkerOnAzureNeedsFewModules counts the modules of a program that imports listener and
// queue/azurequeue: those that it compiles besides ours and its own, and its whole module graph.
func TestAWorkerOnAzureNeedsFewModules(t *testing.T) {
	const maxCompiled, maxGraph = 14, 44
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": fmt.Sprintf("module example.org/worker\n\ngo 1.26.0\n\nreplace %s => %s\n\nrequire %[1]s v0.0.0\n", module, root),
		"go.sum": string(sums),
		"main.go": fmt.Sprintf("package main\n\nimport (\n\t_ %q\n\t_ %q\n)\n\nfunc main() {}\n",
			module+"/listener", module+"/queue/azurequeue"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(args ...string) map[string]bool {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-mod=mod"}, args...)...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		modules := map[string]bool{}
		for _, one := range strings.Fields(string(out)) {
			modules[one] = true
		}
		return modules
	}
	compiled := list("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	graph := list("-m", "-f", "{{.Path}}", "all") // of the go.mod that the line before completed
	delete(compiled, module)
	delete(compiled, "example.org/worker")
	if len(compiled) > maxCompiled || len(graph) > maxGraph {
		t.Errorf("modules: got %d compiled and %d in the graph, want at most %d and %d:\n%v\n%v",
			len(compiled), len(graph), maxCompiled, maxGraph, compiled, graph)
	}
	t.Logf("modules: %d compiled, %d in the graph", len(compiled), len(graph))
}

// TestOtherModulesKeepTheirDependencies: users of the library do not load the dependencies of
// natswakeup, scaling/agent/keda, and the examples.
func TestOtherModulesKeepTheirDependencies(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"nats-io", "kedacore", "google.golang.org/grpc ", "modernc.org", "jackc/pgx"} {
			if strings.Contains(string(text), other) {
				t.Errorf("%s names %s", file, other)
			}
		}
	}
}
