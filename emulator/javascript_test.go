package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue/localqueue"
)

// TestStorageQueueJS runs Microsoft's JavaScript client with node: the package
// @azure/storage-queue in the directory that STORAGE_QUEUE_JS names, where npm install was run.
// If one of them is missing the test skips, or fails if MILLRACE_REQUIRE contains storage-queue.
func TestStorageQueueJS(t *testing.T) {
	node, modules := azuritetest.StorageQueueJS(t)
	s := must(New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), nil))
	plain, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	// The address of UseDevelopmentStorage=true may be in use, for example by Azurite.
	development, err := must(New(nil, nil)).Start("127.0.0.1:10001")
	if err == nil {
		defer development.Close()
	} else {
		t.Log("without the port of UseDevelopmentStorage=true:", err)
	}
	certificate, _ := selfSigned(t)
	secure, err := s.StartTLS("", configOf(certificate))
	if err != nil {
		t.Fatal(err)
	}
	defer secure.Close()
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := json.Marshal(map[string]any{"connection": plain.ConnectionString(), "https": secure.URL(), "token": token(nil),
		"development": development != nil, "modules": modules})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, node, "testdata/storage-queue.mjs")
	command.Env = append(os.Environ(), "MILLRACE_TEST="+string(settings), "NODE_EXTRA_CA_CERTS="+authority)
	var output, errorLog bytes.Buffer
	command.Stdout, command.Stderr = &output, &errorLog
	if err := command.Run(); err != nil {
		t.Fatalf("%v after %q: %s", err, output.String(), errorLog.String())
	}
	if want := "messages\nservice\nsignatures\ntokens\ndevelopment\n"; output.String() != want {
		t.Errorf("output: got %q, want %q", output.String(), want)
	}
}
