package kinds_test

import (
	"os"
	"strings"
	"testing"
)

// What README.md shows of kinds is in the example, whose output is checked.
func TestTheReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Several types of jobs\n")
	_, section, _ = strings.Cut(section, "```go\n")
	shown, _, found := strings.Cut(section, "```\n")
	if !found {
		t.Fatal("README.md does not show several types of jobs")
	}
	example, err := os.ReadFile("example_kinds_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(shown) {
		line = strings.TrimSpace(line)
		if line != "" && line != "}, nil)" && !strings.Contains(string(example), "\t"+line+"\n") {
			t.Errorf("README.md shows %q, which is not in the example", line)
		}
	}
}
