package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
)

// completionCases are what a person has typed, and the words that complete it.
var completionCases = []struct {
	typed []string
	want  string
}{
	{[]string{"po"}, "poison"},
	{[]string{"poison", "p"}, "purge"},
	{[]string{"poison", ""}, "list show stats redrive purge"},
	{[]string{"poison", "list", "orders", "-re"}, "-reason"},
	{[]string{"put", "-k"}, "-kind"},
	{[]string{"create", "orders", "-"}, "-account -v"},
	{[]string{"help", "ver"}, "version"},
	{[]string{"help", "bodies", "s"}, "sweep"},
	{[]string{"completion", ""}, "bash zsh fish"},
	{[]string{"nothing", ""}, ""},
	{[]string{"put", "-kind", "-"}, ""}, // a value
	{[]string{"put", "-plain", "-kin"}, "-kind"},
	{[]string{"put", "--", "-k"}, ""},
	{[]string{"create", "o"}, ""},
	{[]string{"create", ""}, ""}, // the name of a queue
}

func TestWordsAreCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range completionCases {
		got := strings.Fields(invocation{}.ok(t, append([]string{"completion", "words", "--"}, c.typed...)...))
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", c.typed, got, want)
		}
	}
	if got := strings.Fields((invocation{}).ok(t, "completion", "words", "--", "")); !slices.Equal(got, commandNames()) {
		t.Errorf("without an argument: got %q, want all commands", got)
	}
	invocation{}.fails(t, exitUsage, []string{`no script for "ksh": the shells are bash, zsh, fish`}, "completion", "ksh")
	invocation{}.fails(t, exitUsage, []string{"missing argument", "completion SHELL"}, "completion")
}

// TestShellsCompleteWords runs each installed shell with its script. Every case is what the shell
// would show.
func TestShellsCompleteWords(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts shells")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(program, filepath.Join(folder, "millrace")); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	// Each shell gets its script and a call that prints the words for the arguments "$@".
	for shell, args := range map[string][]string{
		"bash": {"-c", `source <(millrace completion bash); COMP_WORDS=(millrace "$@"); COMP_CWORD=$#; _millrace; printf '%s\n' "${COMPREPLY[@]}"`, "bash"},
		"zsh":  {"-fc", `compdef() { :; }; compadd() { shift; print -l -- "$@"; }; _files() { :; }; source <(millrace completion zsh); words=(millrace "$@"); CURRENT=$#words; _millrace`, "zsh"},
		"fish": {"--no-config", "-c", `millrace completion fish | source; complete -C "millrace $argv"`},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			azuritetest.Program(t, shell)
			for _, c := range completionCases[:4] { // a command, a verb, all verbs, a flag
				p := exec.CommandContext(t.Context(), shell, append(slices.Clone(args), c.typed...)...)
				p.Env = append(os.Environ(), programVariable+"=1", "HOME="+folder, "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
				out, err := p.CombinedOutput()
				got, want := strings.Fields(string(out)), strings.Fields(c.want)
				slices.Sort(got) // as fish does
				slices.Sort(want)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%q: got %q, %v; want %q", c.typed, got, err, want)
				}
			}
		})
	}
}
