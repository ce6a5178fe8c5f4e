package millrace_test

import (
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// mistakesHead precedes the snippets of docs/compiler-errors.md; the page does not show it.
const mistakesHead = `package snippet

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/wakeup"
)

var (
	_ = millrace.Run
	_ = maps.Keys[map[int]int]
	_ = http.NotFound
	_ = codec.Auto
	_ kinds.Options
	_ = producer.New[Order]
	_ poison.Policy
	_ claimcheck.Options
	_ perkey.Options
	_ = shards.New[Order]
	_ sharded.Options
	_ wakeup.Bus
)

`

// mistake is a section of docs/compiler-errors.md.
type mistake struct {
	title, wrong, message, right string
}

// TestCompilerErrorsAreAsThePageShows compiles every snippet of docs/compiler-errors.md: each
// right one compiles, and each wrong one gives exactly the message of the page.
func TestCompilerErrorsAreAsThePageShows(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	shared, mistakes := mistakesOfThePage(t)
	wrong := compile(t, shared, mistakes, func(m mistake) string { return m.wrong })
	right := compile(t, shared, mistakes, func(m mistake) string { return m.right })
	for _, code := range append(formsOf(mistakes), shared) {
		if formatted, err := format.Source([]byte(code)); err == nil && string(formatted) != code {
			t.Errorf("gofmt: got\n%swant\n%s", code, formatted)
		}
	}
	for i, m := range mistakes {
		if right[i] != "" {
			t.Errorf("%s: the right form does not compile:\n%s", m.title, right[i])
		}
		if wrong[i] == "" {
			t.Errorf("%s: the wrong form compiles", m.title)
		} else if strings.HasPrefix(runtime.Version(), "go1.26") && !matches(wrong[i], m.message) {
			t.Errorf("%s: compiler error: got\n%swant, from the page\n%s", m.title, wrong[i], m.message)
		}
	}
}

func formsOf(mistakes []mistake) []string {
	var forms []string
	for _, m := range mistakes {
		forms = append(forms, m.wrong, m.right)
	}
	return forms
}

// mistakesOfThePage returns the code that the snippets share, and the sections.
func mistakesOfThePage(t *testing.T) (shared string, mistakes []mistake) {
	t.Helper()
	page, err := os.ReadFile("docs/compiler-errors.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(?:go|text)\n(.*?)^```$")
	intro, sections, _ := strings.Cut(string(page), "\n## ")
	common := blocks.FindAllStringSubmatch(intro, -1)
	if len(common) != 1 {
		t.Fatalf("blocks before the first section: got %d, want 1", len(common))
	}
	for section := range strings.SplitSeq(sections, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		b := blocks.FindAllStringSubmatch(section, -1)
		if len(b) != 3 {
			t.Fatalf("%s: got %d blocks, want 3: the wrong form, the message and the right form", title, len(b))
		}
		mistakes = append(mistakes, mistake{title, b[0][1], b[1][1], b[2][1]})
	}
	return common[0][1], mistakes
}

// compile compiles one form of each mistake, all in one package, and returns the errors of
// each.
func compile(t *testing.T, shared string, mistakes []mistake, form func(mistake) string) map[int]string {
	t.Helper()
	// Inside the module, so that it is built with our go.mod and code; the dot hides it from
	// ./... patterns.
	dir, err := os.MkdirTemp(".", ".compiler-errors-") //nolint:usetesting // t.TempDir is outside the module
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var code strings.Builder
	code.WriteString(mistakesHead + shared)
	for i, m := range mistakes {
		fmt.Fprintf(&code, "\nfunc _() {\n//line snippet%d.go:1\n%s}\n", i, form(m))
	}
	if err := os.WriteFile(filepath.Join(dir, "snippets.go"), []byte(code.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// -e reports all errors, not only the first ten.
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "./"+dir).CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return bySnippet(t, string(out))
}

// position is the prefix of a compiler error.
var position = regexp.MustCompile(`^\S*snippet(\d+)\.go:\d+(?::\d+)?: `)

// bySnippet groups the compiler's output by snippet, without positions.
func bySnippet(t *testing.T, output string) map[int]string {
	t.Helper()
	errs := map[int]string{}
	snippet := -1
	for line := range strings.Lines(output) {
		if m := position.FindStringSubmatch(line); m != nil {
			snippet, _ = strconv.Atoi(m[1])
			line = strings.TrimPrefix(line, m[0])
		} else if strings.HasPrefix(line, "# ") {
			continue
		} else if !strings.HasPrefix(line, "\t") {
			snippet = -1
		}
		if snippet < 0 {
			t.Fatalf("an error outside the snippets:\n%s", output)
		}
		errs[snippet] += line
	}
	return errs
}

// matches compares a compiler error with that of the page, in which "declared at …" stands
// for any position.
func matches(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), regexp.QuoteMeta("(declared at …)"), `\(declared at [^)]*\)`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}
