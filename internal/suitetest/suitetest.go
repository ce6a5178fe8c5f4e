// Package suitetest helps to test conformance suites: it runs one inside an example, and one that
// must fail in a process of its own.
package suitetest

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Passes runs a test inside an example, which has no *testing.T, and reports whether it passed.
// A test that passes prints nothing, even with -v, because the output of an example is compared.
func Passes(test func(*testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	before := verbose.String()
	if err := verbose.Set("false"); err != nil {
		panic(err)
	}
	defer func() {
		if err := verbose.Set(before); err != nil {
			panic(err)
		}
	}()
	all := func(_, _ string) (bool, error) { return true, nil } // -run chose the example
	return testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: test}})
}

// Defect is what the test TestDefective of a package must find.
type Defect struct {
	Variable string // the environment variable by which TestDefective learns of it
	Name     string // what is wrong
	Found    string // the parts of the suite of which each must fail, with spaces between them
}

// MustBeFound runs TestDefective of this test binary in a process of its own, and fails unless the
// suite fails there in each part that must find the defect.
func (d Defect) MustBeFound(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	parts := strings.Fields(d.Found)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDefective$/^("+strings.Join(parts, "|")+")$", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), d.Variable+"="+d.Name+d.Found)
	out, err := cmd.CombinedOutput()
	for _, part := range parts {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDefective/"+part+" ") {
			t.Errorf("suite with the defect: got %v, want a failure of %s\n%s", err, part, out)
		}
	}
	if len(parts) == 0 {
		t.Error("no part of the suite is to find the defect")
	}
}
