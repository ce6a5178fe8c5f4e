package smalldisktest

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
)

// Mount returns a new folder on a disk of so many MiB, which is gone after the test. It skips the test without the right to mount one,
// or fails it if MILLRACE_REQUIRE contains mount.
func Mount(t testing.TB, size int) (folder string) {
	t.Helper()
	if testing.Short() {
		t.Skip("fills a disk")
	}
	folder = t.TempDir()
	err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm", size))
	switch {
	case err == nil:
	case (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)) && !azuritetest.Required("mount"):
		t.Skipf("NOT TRIED ON A FULL DISK: mounting one is not permitted: %v", err)
	default:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	return folder
}
