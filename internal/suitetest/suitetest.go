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
	Found    string // the part of the suite that must fail
}

// MustBeFound runs TestDefective of this test binary in a process of its own, and fails unless the
// suite fails there in the part that must find the defect.
func (d Defect) MustBeFound(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDefective$/^"+d.Found+"$", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), d.Variable+"="+d.Name+d.Found)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDefective/"+d.Found) {
		t.Errorf("suite with the defect: got %v, want a failure of its test\n%s", err, out)
	}
}
