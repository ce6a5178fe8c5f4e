package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// document reads a page of the repository.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheServePageShowsTheStartupText compares the startup text at the default address with
// docs/serve.md, where an ellipsis at the end of a line matches anything. Versions may differ.
func TestTheServePageShowsTheStartupText(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(document(t, "docs/serve.md"), "```console\n$ millrace serve\n")
	shown, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/serve.md does not show millrace serve")
	}
	s := new(settings)
	s.flags()
	text := s.startupText("127.0.0.1:10001", func(account string) string { return "http://127.0.0.1:10001/" + account }, &data{})
	version := regexp.MustCompile(`^Millrace .+ serves`)
	got, want := strings.Split(version.ReplaceAllString(text, "Millrace serves"), "\n"), strings.Split(version.ReplaceAllString(shown, "Millrace serves"), "\n")
	if len(got) != len(want) {
		t.Fatalf("docs/serve.md: got\n%s\nwant\n%s", shown, text)
	}
	for i := range want {
		beginning, cut := strings.CutSuffix(want[i], "…")
		if got[i] != want[i] && (!cut || !strings.HasPrefix(got[i], beginning)) {
			t.Errorf("docs/serve.md: got the line %q, want %q", want[i], got[i])
		}
	}
}

// TestServePageListsEveryFlag: docs/serve.md lists the flags of serve, and no others.
func TestServePageListsEveryFlag(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for line := range strings.Lines(document(t, "docs/serve.md")) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, name := range regexp.MustCompile("`-([a-z-]+)").FindAllStringSubmatch(cells[1], -1) {
				listed[name[1]] = true
			}
		}
	}
	new(settings).flags().VisitAll(func(f *flag.Flag) {
		if !listed[f.Name] {
			t.Errorf("docs/serve.md does not list -%s", f.Name)
		}
		delete(listed, f.Name)
	})
	for name := range listed {
		t.Errorf("docs/serve.md lists -%s, which is no flag of serve", name)
	}
}

// TestCostPageShowsTheOutput: every example of millrace cost in docs/cost.md prints what is shown.
func TestCostPageShowsTheOutput(t *testing.T) {
	t.Parallel()
	examples := strings.Split(document(t, "docs/cost.md"), "```console\n$ millrace ")[1:]
	if len(examples) == 0 {
		t.Fatal("docs/cost.md shows no millrace cost")
	}
	for _, one := range examples {
		line, rest, _ := strings.Cut(one, "\n")
		shown, _, _ := strings.Cut(rest, "```")
		if got := (invocation{}).ok(t, strings.Fields(line)...); got != shown {
			t.Errorf("docs/cost.md, millrace %s: got\n%s\nwant\n%s", line, got, shown)
		}
	}
}
