package queuetest_test

import (
	"flag"
	"testing"
)

// passes runs a test inside an example, which has no *testing.T, and reports whether it passed.
// A test that passes prints nothing, even with -v, because the output of an example is compared.
func passes(test func(*testing.T)) bool {
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
	all := func(_, _ string) (bool, error) { return true, nil } // -run selected the example
	return testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: test}})
}
