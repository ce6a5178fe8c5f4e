package azuritetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The account of every Azurite. Its key is public.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// startTimeout limits the start of Azurite. On a loaded machine Node takes several seconds.
const startTimeout = 60 * time.Second

// errAbsent means that Azurite is not installed, which is not an error.
var errAbsent = errors.New("no Azurite here: npm install azurite, and set AZURITE to its azurite-queue executable")

// shared is this test binary's Azurite.
var shared struct {
	mu      sync.Mutex // held while starting, so that all wait for one start
	started bool       // guarded by mu
	server  *server    // guarded by mu; nil when err is not
	err     error      // guarded by mu
}

// ConnectionString returns the connection string of this test binary's Azurite, and starts it at
// the first call. Without Azurite it skips the test, or fails it if MILLRACE_REQUIRE contains
// azurite.
func ConnectionString(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.started {
		shared.started = true
		shared.server, shared.err = start()
	}
	switch err := shared.err; {
	case err == nil:
	case errors.Is(err, errAbsent) && !Required("azurite"):
		t.Skipf("NOT COMPARED WITH AZURITE: %v", err)
	default:
		t.Fatalf("this test needs Azurite: %v", err)
	}
	return shared.server.connectionString()
}

// Start starts an Azurite for a program that is not a test. The caller must call stop.
func Start() (connectionString string, stop func(), err error) {
	s, err := start()
	if err != nil {
		return "", nil, err
	}
	return s.connectionString(), s.stop, nil
}

func (s *server) connectionString() string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;QueueEndpoint=%s/%s;", Account, Key, s.url, Account)
}

// Stop stops this test binary's Azurite, if it runs. TestMain calls it after the tests. A later
// ConnectionString starts a new one.
func Stop() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.stop()
	}
	shared.started, shared.server, shared.err = false, nil, nil
}

// Required reports whether the comma-separated list MILLRACE_REQUIRE contains what. Then a test
// without it fails instead of being skipped.
func Required(what string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv("MILLRACE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what)
}

// server is a running Azurite.
type server struct {
	url     string
	dir     string
	group   *group
	drained chan struct{} // closed at the end of its output
}

func start() (*server, error) {
	command, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sharedMemoryDir(), "millrace-azurite-")
	if err != nil {
		return nil, err
	}
	// With port 0 the system chooses, so that test binaries do not collide.
	args := []string{"--queueHost", "127.0.0.1", "--queuePort", "0", "--location", dir, "--disableTelemetry", "--skipApiVersionCheck", "--silent"}
	if !strings.Contains(strings.Join(command, " "), "azurite-queue") {
		args = append(args, "--blobHost", "127.0.0.1", "--blobPort", "0", "--tableHost", "127.0.0.1", "--tablePort", "0")
	}
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	g, err := startGroup(append(command, args...), dir, input)
	_ = input.Close() // the child has its own
	if err != nil {
		_ = output.Close()
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s := &server{dir: dir, group: g, drained: make(chan struct{})}
	ready := make(chan string, 1)
	var said strings.Builder // read only after drained is closed
	go func() {
		defer close(s.drained)
		defer func() { _ = output.Close() }()
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if m := listeningLine.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m[1]
				break
			}
			said.WriteString(lines.Text() + "\n")
		}
		_, _ = io.Copy(io.Discard, output) // or Azurite blocks on a full pipe
	}()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	select {
	case s.url = <-ready:
		return s, nil
	case <-s.drained:
		select {
		case s.url = <-ready: // it reported its address and ended
		default:
		}
		err = fmt.Errorf("%s ended: %s", strings.Join(command, " "), strings.Join(strings.Fields(said.String()), " "))
		if command[0] == npx { // not in npm's cache
			err = fmt.Errorf("%w (%w)", errAbsent, err)
		}
	case <-deadline.C:
		err = fmt.Errorf("%s did not listen within %v", strings.Join(command, " "), startTimeout)
	}
	s.stop()
	return nil, err
}

// listeningLine matches what azurite and azurite-queue print when they accept connections.
var listeningLine = regexp.MustCompile(`Azurite Queue service .*success.* (http://127\.0\.0\.1:[1-9][0-9]*)$`)

func (s *server) stop() {
	s.group.kill()
	<-s.drained
	_ = os.RemoveAll(s.dir) // in memory
}

const npx = "npx"

// find returns the command that runs Azurite.
func find() ([]string, error) {
	if path := os.Getenv("AZURITE"); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("AZURITE is set, but not to an executable: %w", err)
		}
		return []string{path}, nil
	}
	for _, name := range []string{"azurite-queue", "azurite"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}, nil
		}
	}
	if _, err := exec.LookPath(npx); err == nil {
		return []string{npx, "--offline", "--yes", "--package", "azurite", "azurite-queue"}, nil
	}
	return nil, errAbsent
}

// sharedMemoryDir returns a directory in memory, because Azurite writes every message to a file,
// or "" for the default temporary directory.
func sharedMemoryDir() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return ""
}

// environment returns our environment without the variables that change Azurite's accounts.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "AZURITE_") })
}
