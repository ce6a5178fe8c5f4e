// Package azuritetest runs Azurite, Microsoft's emulator of Azure Storage, with its queue, its blob
// or its table service for tests.
//
// The environment variable AZURITE has the path of an azurite or azurite-queue executable, with
// azurite-blob and azurite beside it. Otherwise Azurite is looked up on PATH, and then in npm's cache
// with npx. It is never downloaded. Without it a test is skipped with a message, or fails if
// MILLRACE_REQUIRE contains azurite, so that CI always compares with the real protocol.
//
// It also finds the other programs that tests run, such as nginx and Microsoft's clients for
// JavaScript and Python, under the same rule.
//
// # Concurrency and shutdown
//
// The tests of one test binary share one Azurite of each service and use different names of queues,
// containers and tables. It runs in its own process group. [Stop] in TestMain ends the group, and a
// watchdog process in the group ends it if the test binary dies first.
//
// # Cost
//
// Starting takes about a second. Azurite becomes slow with the number of messages in all
// queues: keep fewer than a thousand, and drop queues after use.
package azuritetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
)

// The account of every Azurite. Its key is public.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// startTimeout limits the start of Azurite. On a loaded machine Node takes several seconds.
const startTimeout = 60 * time.Second

// ErrAbsent means that Azurite is not installed, which is not an error.
var ErrAbsent = errors.New("no Azurite here: npm install azurite, and set AZURITE to its azurite-queue executable")

// everything is the name of the program that has all services.
const everything = "azurite"

// service is a service of Azurite. Each is a process of its own, so that tests of one do not
// start the other.
type service struct {
	name       string // in options, such as "queue"
	title      string // in output and connection strings, such as "Queue"
	executable string // the program, such as "azurite-queue"

	// This test binary's Azurite.
	mu      sync.Mutex // held while starting, so that all wait for one start
	started bool       // guarded by mu
	server  *server    // guarded by mu; nil when err is not
	err     error      // guarded by mu
}

var (
	queueService = &service{name: "queue", title: "Queue", executable: "azurite-queue"}
	blobService  = &service{name: "blob", title: "Blob", executable: "azurite-blob"}
	// azurite-table does not print the port that the system chose. The program with all services does.
	tableService = &service{name: "table", title: "Table", executable: everything}
)

// ConnectionString returns the connection string of this test binary's Azurite with the queue
// service, and starts it at the first call. Without Azurite it skips the test, or fails it if
// MILLRACE_REQUIRE contains azurite.
func ConnectionString(t testing.TB) string {
	t.Helper()
	return queueService.connectionString(t)
}

// BlobConnectionString is [ConnectionString] for the blob service.
func BlobConnectionString(t testing.TB) string {
	t.Helper()
	return blobService.connectionString(t)
}

// TableConnectionString is [ConnectionString] for the table service.
func TableConnectionString(t testing.TB) string {
	t.Helper()
	return tableService.connectionString(t)
}

func (v *service) connectionString(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Azurite")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.started {
		v.started = true
		v.server, v.err = v.start()
	}
	switch {
	case v.err == nil:
	case errors.Is(v.err, ErrAbsent) && !Required("azurite"):
		t.Skipf("NOT COMPARED WITH AZURITE: %v", v.err)
	default:
		t.Fatalf("this test needs Azurite: %v", v.err)
	}
	return v.connectionStringOf(v.server)
}

// Start starts an Azurite with the queue service for a program that is not a test. The caller must
// call stop. If Azurite is not installed, the error is [ErrAbsent].
func Start() (connectionString string, stop func(), err error) {
	s, err := queueService.start()
	if err != nil {
		return "", nil, err
	}
	return queueService.connectionStringOf(s), s.stop, nil
}

func (v *service) connectionStringOf(s *server) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;%sEndpoint=%s/%s;", Account, Key, v.title, s.url, Account)
}

// Stop stops what this test binary has started. TestMain calls it after the tests. A later
// ConnectionString and its siblings start new ones.
func Stop() {
	queueService.stop()
	blobService.stop()
	tableService.stop()
}

func (v *service) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server != nil {
		v.server.stop()
	}
	v.started, v.server, v.err = false, nil, nil
}

// Required reports whether the comma-separated list MILLRACE_REQUIRE contains what. Then a test
// without it fails instead of being skipped.
func Required(what string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv("MILLRACE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what)
}

// Missing skips a test, or fails it if MILLRACE_REQUIRE contains what the test lacks.
func Missing(t testing.TB, what string, why error) {
	t.Helper()
	if Required(what) {
		t.Fatal(why)
	}
	t.Skip(why)
}

// server is a running Azurite.
type server struct {
	url     string
	dir     string
	group   *group
	drained chan struct{} // closed at the end of its output
}

func (v *service) start() (*server, error) {
	command, err := v.find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(SharedMemoryDir(), "millrace-azurite-")
	if err != nil {
		return nil, err
	}
	// With port 0 the system chooses, so that test binaries do not collide.
	args := []string{"--location", dir, "--disableTelemetry", "--skipApiVersionCheck", "--silent"}
	program, _, _ := strings.Cut(filepath.Base(command[len(command)-1]), ".") // such as azurite.cmd
	for _, name := range []string{"queue", "blob", "table"} {
		if name == v.name || program == everything {
			args = append(args, "--"+name+"Host", "127.0.0.1", "--"+name+"Port", "0")
		}
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
			if url := v.listening(lines.Text()); url != "" {
				ready <- url
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
			err = fmt.Errorf("%w (%w)", ErrAbsent, err)
		}
	case <-deadline.C:
		err = fmt.Errorf("%s did not listen within %v", strings.Join(command, " "), startTimeout)
	}
	s.stop()
	return nil, err
}

// listeningLine matches what Azurite prints when a service accepts connections.
var listeningLine = regexp.MustCompile(`Azurite (\w+) service .*success.* (http://127\.0\.0\.1:[1-9][0-9]*)$`)

// listening returns the address in a line that says that the service accepts connections, or "".
func (v *service) listening(line string) string {
	if m := listeningLine.FindStringSubmatch(line); m != nil && m[1] == v.title {
		return m[2]
	}
	return ""
}

func (s *server) stop() {
	s.group.kill()
	<-s.drained
	_ = os.RemoveAll(s.dir) // in memory
}

const npx = "npx"

// find returns the command that runs Azurite.
func (v *service) find() ([]string, error) {
	if path := os.Getenv("AZURITE"); path != "" {
		// The executables of all services are in one directory.
		if dir, file := filepath.Split(path); strings.HasPrefix(file, "azurite-queue") {
			path = dir + v.executable + strings.TrimPrefix(file, "azurite-queue")
		}
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("AZURITE is set, but not to an executable: %w", err)
		}
		return []string{path}, nil
	}
	for _, name := range []string{v.executable, everything} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}, nil
		}
	}
	if _, err := exec.LookPath(npx); err == nil {
		return []string{npx, "--offline", "--yes", "--package", "azurite", v.executable}, nil
	}
	return nil, ErrAbsent
}

// SharedMemoryDir returns a directory in memory, because Azurite writes every message and blob to a
// file, or "" for the default temporary directory.
func SharedMemoryDir() string {
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
		Missing(t, name, fmt.Errorf("NOT TRIED WITH %s: %w", name, err))
	}
	return path
}

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
	Missing(t, "storage-queue-python", errors.New("NOT TRIED WITH PYTHON: apt-get install python3-azure-storage, or pip install azure-storage-queue"))
	return ""
}

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
		Missing(t, "storage-queue", err)
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

// Until polls a condition of another process or of real time 50 times a second, and fails the
// test if it does not hold within a minute.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !suitetest.Poll(time.Minute, 20*time.Millisecond, holds) {
		t.Fatalf("timed out waiting until %s", what)
	}
}
