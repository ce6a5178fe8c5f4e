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

// The account every Azurite has; the key is published with it.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// startTimeout bounds the wait for Azurite's first words. Node on a loaded
// machine takes seconds; a start that takes longer is broken.
const startTimeout = 60 * time.Second

// errAbsent means that there is no Azurite on this machine, which is no fault.
var errAbsent = errors.New("no Azurite here: npm install azurite, and set AZURITE to its azurite-queue executable")

// shared is the one Azurite of this test binary.
var shared struct {
	mu      sync.Mutex // held while starting, so that all wait for one start
	started bool       // guarded by mu
	server  *server    // guarded by mu; nil when err is not
	err     error      // guarded by mu
}

// ConnectionString returns the connection string of the running Azurite and
// starts it when no test has yet. Without Azurite it skips the test, or fails
// it when MILLRACE_REQUIRE contains azurite.
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

// Start starts an Azurite for a program that is no test, which must stop it.
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

// Stop ends the Azurite of this test binary, if one runs. TestMain calls it
// after the tests. A later ConnectionString starts a new one.
func Stop() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.stop()
	}
	shared.started, shared.server, shared.err = false, nil, nil
}

// Required reports whether MILLRACE_REQUIRE, a list with commas, names something: then a
// test that lacks it fails where it would skip.
func Required(what string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv("MILLRACE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what)
}

// server is one running Azurite.
type server struct {
	url     string
	dir     string
	group   *group
	drained chan struct{} // closed when its output has ended
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
	// Port 0 lets the system choose: no two test binaries can collide.
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
		case s.url = <-ready: // it spoke and ended
		default:
		}
		err = fmt.Errorf("%s ended: %s", strings.Join(command, " "), strings.Join(strings.Fields(said.String()), " "))
		if command[0] == npx { // not in npm's cache: as good as absent
			err = fmt.Errorf("%w (%w)", errAbsent, err)
		}
	case <-deadline.C:
		err = fmt.Errorf("%s did not listen within %v", strings.Join(command, " "), startTimeout)
	}
	s.stop()
	return nil, err
}

// listening is what azurite and azurite-queue say, each in its own words, once
// they accept connections.
var listeningLine = regexp.MustCompile(`Azurite Queue service .*success.* (http://127\.0\.0\.1:[1-9][0-9]*)$`)

func (s *server) stop() {
	s.group.kill()
	<-s.drained
	_ = os.RemoveAll(s.dir) // in memory, and gone with the machine at the latest
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

// memoryDir is a directory in memory where there is one: Azurite writes every
// message to a file. "" stands for the usual temporary directory.
func sharedMemoryDir() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return ""
}

// environment is ours without what would change Azurite's accounts.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "AZURITE_") })
}
