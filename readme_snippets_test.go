package millrace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippetImports are the packages that the snippets of README.md use; q, ship, location and Order are the reader's.
const snippetImports = `package snippet

import (
	"context"
%s
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

type Order struct{ ID string }

func ship(context.Context, *listener.Message[Order]) error { return nil }
`

// TestTheSnippetsOfTheReadmeCompile compiles what the README shows of wake-ups and of costs. A test of
// natswakeup, which is a module of its own, has the one with NATS.
func TestTheSnippetsOfTheReadmeCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	for _, s := range []struct {
		heading, name string
		at            int    // which snippet of the section
		results       string // the variables that it leaves to the reader
		imports       []string
	}{
		{"## Wake-ups\n", "bus", 0, "p, l", []string{"github.com/millrace/millrace/wakeup"}},
		{"## Wake-ups\n", "server", 1, "err, l", []string{"github.com/millrace/millrace/wakeup/serverwakeup"}},
		{"## What it costs\n", "meter", 0, "p, cost, known", []string{"github.com/millrace/millrace/meter"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			snippets := readmeBlocks(t, s.heading, "go")
			if s.at >= len(snippets) {
				t.Fatalf("README.md, %q: got %d snippets, want more than %d", s.heading, len(snippets), s.at)
			}
			imports := ""
			for _, path := range s.imports {
				imports += fmt.Sprintf("\t%q\n", path)
			}
			blanks := strings.TrimSuffix(strings.Repeat("_, ", 1+strings.Count(s.results, ",")), ", ")
			code := fmt.Sprintf(snippetImports, imports) + "\nvar _ = producer.New[Order]\n\nfunc _(q queue.Queue, location string) {\n" +
				snippets[s.at] + "\t" + blanks + " = " + s.results + "\n}\n"
			// Inside the module, so that it is built with our go.mod; the dot hides it from ./... patterns.
			dir, err := os.MkdirTemp(".", ".readme-snippet-") //nolint:usetesting // t.TempDir is outside the module
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.WriteFile(filepath.Join(dir, "snippet.go"), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			build := exec.CommandContext(t.Context(), "go", "vet", "./"+dir)
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("go vet: got %v, want no error\n%s\n%s", err, out, code)
			}
		})
	}
}

// readmeBlocks returns the blocks in one language of a section of README.md.
func readmeBlocks(t *testing.T, heading, language string) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), heading)
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}
