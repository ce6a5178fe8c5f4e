package millrace

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace/millrace"

// goPackage holds the fields of go list that this test needs.
type goPackage struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
	Standard   bool
}

func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	command := append([]string{"list", "-json=ImportPath,Imports,Module,Standard"}, args...)
	out, err := exec.CommandContext(t.Context(), "go", command...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// importTable reads the table of docs/design.md: the allowed imports of each package.
func importTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("docs/design.md")
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
		t.Fatal("docs/design.md has no table of packages")
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

// TestImportsGoOneWay compares the table of docs/design.md with the code: every package has a
// row, every row is a package, and no package imports what its row does not allow.
func TestImportsGoOneWay(t *testing.T) {
	table := importTable(t)
	seen := map[string]bool{}
	for _, p := range goList(t, "./...") {
		name := short(p.ImportPath)
		seen[name] = true
		allowed, ok := table[name]
		if !ok {
			t.Errorf("package %s is not in the table of docs/design.md", name)
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
			t.Errorf("docs/design.md has a row for %s, which is not a package", name)
		}
	}
}

// Only queue/azurequeue imports azqueue, only blob/azureblob imports azblob, only table/aztable imports aztables, only internal/retry and an
// example of what users do import backoff, only codec/zstdcodec and the pictures of the mosaic import compress, and only queue/limited imports x/time, so that none is part of
// what the other packages export.
func TestDependenciesStayBehindOnePackage(t *testing.T) {
	owners := []struct{ dependency, owner string }{ // owners, separated by spaces
		{"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue", "queue/azurequeue"},
		{"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob", "blob/azureblob"},
		{"github.com/Azure/azure-sdk-for-go/sdk/data/aztables", "table/aztable"},
		{"github.com/cenkalti/backoff", "internal/retry examples/billing/shipping"},
		{"github.com/klauspost/compress/zstd", "codec/zstdcodec"},
		{"github.com/klauspost/compress/flate", "examples/mosaic/picture"},
		{"golang.org/x/time", "queue/limited"},
		{"go.yaml.in/yaml", "agent/agentfile"},
		{"modernc.org/sqlite", "examples/billing/books"},
		{"github.com/jackc/pgx", "examples/billing/books internal/postgrestest"},
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

// TestAWorkerOnAzureCompilesFewModules counts the modules besides ours.
func TestAWorkerOnAzureCompilesFewModules(t *testing.T) {
	const maxModules = 14
	modules := map[string]bool{}
	for _, p := range goList(t, "-deps", "./listener", "./queue/azurequeue") {
		if p.Module != nil && p.Module.Path != module {
			modules[p.Module.Path] = true
		}
	}
	if len(modules) > maxModules {
		t.Errorf("got %d modules, want at most %d: %v", len(modules), maxModules, modules)
	}
	t.Logf("%d modules", len(modules))
}

// TestNothingOfNATSOrKEDAIsInThisModule: whoever does not use natswakeup or agent/keda, modules of their own, does not load it.
func TestNothingOfNATSOrKEDAIsInThisModule(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"nats-io", "kedacore", "google.golang.org/grpc "} {
			if strings.Contains(string(text), other) {
				t.Errorf("%s names %s", file, other)
			}
		}
	}
}
