package azuritetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StorageQueueJS returns the path of node and the directory with Microsoft's JavaScript client, the
// package @azure/storage-queue: the one that STORAGE_QUEUE_JS names, where npm install was run. If
// one of them is missing the test skips, or fails if MILLRACE_REQUIRE contains storage-queue.
func StorageQueueJS(t testing.TB) (node, modules string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Node.js")
	}
	node, modules, err := findStorageQueue()
	if err != nil {
		if Required("storage-queue") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return node, modules
}

func findStorageQueue() (node, modules string, err error) {
	if modules = os.Getenv("STORAGE_QUEUE_JS"); modules == "" {
		return "", "", errors.New("NOT TRIED WITH JAVASCRIPT: npm install @azure/storage-queue in a directory, and name that in STORAGE_QUEUE_JS")
	}
	if modules, err = filepath.Abs(modules); err != nil {
		return "", "", err
	}
	node, err = exec.LookPath("node")
	return node, modules, err
}
