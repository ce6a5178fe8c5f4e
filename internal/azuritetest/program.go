package azuritetest

import (
	"os/exec"
	"testing"
)

// Program returns the path of a program that a test runs, such as chromium. Without it the test
// skips, or fails if MILLRACE_REQUIRE contains its name. Debian has servers in /usr/sbin, which may be
// missing in PATH.
func Program(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a program")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		if Required(name) {
			t.Fatal(err)
		}
		t.Skipf("NOT TRIED WITH %s: %v", name, err)
	}
	return path
}
