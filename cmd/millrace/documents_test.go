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

// TestTheReadmeShowsWhatServeSays at the usual address, which a test cannot have. What the
// README leaves out ends a line with an ellipsis; versions differ.
func TestTheReadmeShowsWhatServeSays(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(document(t, "README.md"), "```console\n$ millrace serve\n")
	shown, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md does not show millrace serve")
	}
	s := new(settings)
	s.flags()
	said := s.startupText("127.0.0.1:10001", func(account string) string { return "http://127.0.0.1:10001/" + account }, &data{})
	version := regexp.MustCompile(`^Millrace .+ serves`)
	got, want := strings.Split(version.ReplaceAllString(said, "Millrace serves"), "\n"), strings.Split(version.ReplaceAllString(shown, "Millrace serves"), "\n")
	if len(got) != len(want) {
		t.Fatalf("it says\n%s\nand the README\n%s", said, shown)
	}
	for i := range want {
		beginning, cut := strings.CutSuffix(want[i], "…")
		if got[i] != want[i] && (!cut || !strings.HasPrefix(got[i], beginning)) {
			t.Errorf("it says %q, and the README %q", got[i], want[i])
		}
	}
}

// TestEveryFlagOfServeIsInItsPage and no other.
func TestEveryFlagOfServeIsInItsPage(t *testing.T) {
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
			t.Errorf("docs/serve.md does not have -%s", f.Name)
		}
		delete(listed, f.Name)
	})
	for name := range listed {
		t.Errorf("docs/serve.md has -%s, which serve does not", name)
	}
}
