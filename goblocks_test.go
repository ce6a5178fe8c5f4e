package millrace

import (
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippetHead is what every Go block of a document may use. A page adds declarations of its own in
// comments that begin with "<!-- given". Packages are imported when a block names them.
const snippetHead = `
type Order struct{ ID string }

var (
	ctx      context.Context
	q        queue.Queue
	location string
)

func ship(context.Context, *listener.Message[Order]) error { return nil }
`

// standardPackages are the packages of the standard library that documents use.
var standardPackages = []string{"context", "errors", "fmt", "io", "log", "log/slog", "net/http", "os", "strconv", "strings", "time"}

var (
	goBlock    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	givenBlock = regexp.MustCompile(`(?ms)^<!-- given\n(.*?)^-->$`)
	qualifier  = regexp.MustCompile(`\b([a-z0-9]+)\.[A-Z]`)
	// A reader goes on where a snippet ends, and uses the rest.
	unused = regexp.MustCompile(`declared and not used: |imported and not used$`)
)

// TestGoBlocksOfDocumentsCompile compiles every Go block of README.md and of docs, except that
// TestCompilerErrorsAreAsThePageShows has a page of its own, and the test of module natswakeup has the
// block that needs NATS.
func TestGoBlocksOfDocumentsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	imports := map[string]string{}
	for _, p := range standardPackages {
		imports[path.Base(p)] = p
	}
	for _, p := range goList(t, "./...") {
		if !notImported.MatchString(short(p.ImportPath)) {
			imports[path.Base(p.ImportPath)] = p.ImportPath
		}
	}
	// Inside the module, so that it is built with our go.mod; the dot hides it from ./... patterns.
	// The name is always the same, so that a block that has not changed is not compiled again.
	const root = ".go-blocks"
	if err := errors.Join(os.RemoveAll(root), os.Mkdir(root, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })

	// -e reports all errors, not only the first ten.
	args := []string{"build", "-gcflags=-e"}
	for _, page := range documents(t) {
		if page == "docs/compiler-errors.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		given := snippetHead
		for _, m := range givenBlock.FindAllStringSubmatch(string(text), -1) {
			given += "\n" + m[1]
		}
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			block := string(text[at[2]:at[3]])
			line := 1 + strings.Count(string(text[:at[2]]), "\n")
			if strings.Contains(block, "natswakeup.") {
				continue
			}
			if formatted, err := format.Source([]byte(block)); err != nil || string(formatted) != block {
				t.Errorf("%s:%d: gofmt (error %v): got\n%swant\n%s", page, line, err, block, formatted)
			}
			dir := filepath.Join(root, fmt.Sprintf("%s-%d", strings.ReplaceAll(page, "/", "-"), line))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			code := program(block, given, imports, fmt.Sprintf("//line %s:%d\n", page, line))
			if err := os.WriteFile(filepath.Join(dir, "block.go"), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "./"+dir)
		}
	}
	if len(args) < 20 {
		t.Errorf("Go blocks of the documents: got %d, want at least 20", len(args)-2)
	}
	out, _ := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "# ") && !unused.MatchString(strings.TrimSpace(line)) {
			t.Error(strings.TrimSpace(line))
		}
	}
}

// program makes a file of a block: a whole program as it is, declarations beside those that are given,
// and statements in a function.
func program(block, given string, imports map[string]string, position string) string {
	if strings.HasPrefix(block, "package ") {
		return position + block
	}
	used := "package snippet\n\nimport (\n"
	seen := map[string]bool{}
	for _, m := range qualifier.FindAllStringSubmatch(given+block, -1) {
		if p, found := imports[m[1]]; found && !seen[p] {
			seen[p] = true
			used += fmt.Sprintf("\t%q\n", p)
		}
	}
	used += ")\n" + given
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package snippet\n"+block, 0); err == nil {
		return used + position + block
	}
	return used + "\nfunc _() error {\n" + position + block + "\treturn nil\n}\n"
}

// documents returns README.md and the pages of docs.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages in docs: got %d, %v; want at least 10", len(pages), err)
	}
	return append(pages, "README.md")
}
