package azuritetest

import (
	"os/exec"
	"testing"
)

// StorageQueuePython returns the path of a Python that has Microsoft's client, the package
// azure-storage-queue. It is the first python3 on PATH or that of the system. Without it the test
// skips, or fails if MILLRACE_REQUIRE contains storage-queue-python.
func StorageQueuePython(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Python")
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import azure.storage.queue").Run() == nil {
			return python
		}
	}
	const absent = "NOT TRIED WITH PYTHON: apt-get install python3-azure-storage, or pip install azure-storage-queue"
	if Required("storage-queue-python") {
		t.Fatal(absent)
	}
	t.Skip(absent)
	return ""
}
