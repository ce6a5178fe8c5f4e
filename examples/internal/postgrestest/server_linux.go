package postgrestest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/suitetest"
)

const (
	startTimeout = time.Minute // how long a server may take, also to recover after a kill
	poll         = 10 * time.Millisecond
)

// Server is a server of one test.
type Server struct {
	bin, dir string
	owner    *syscall.SysProcAttr
	port     int
	command  *exec.Cmd // nil while it is down
	lifeline *os.File  // closing it lets the watchdog end the server
}

// Database returns the address of a new database.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("test", databases.Add(1))
	if err := s.ask(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.address(name)
}

func (s *Server) address(database string) string {
	at := url.URL{Scheme: "postgres", User: url.User("tester"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: database}
	return at.String() + "?sslmode=disable"
}

func (s *Server) ask(ctx context.Context, statement string) (err error) {
	db, err := sql.Open("pgx", s.address("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// begin makes a folder of data and starts a server on it.
func begin() (s *Server, err error) {
	s = &Server{}
	if s.bin, err = find(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(azuritetest.SharedMemoryDir(), "millrace-postgres-"); err != nil {
		return nil, err
	}
	if err = s.prepare(); err == nil {
		err = s.Up()
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *Server) prepare() error {
	if os.Geteuid() == 0 {
		uid, gid, err := another()
		if err != nil {
			return err
		}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return err
		}
		s.owner = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	// A locale that does not order text by bytes, as on most servers. Versions before 15 have only the
	// system's locales.
	err := s.create("--locale=C", "--locale-provider=icu", "--icu-locale=en")
	if err != nil && s.create("--locale=C") != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a free port, which it keeps when it starts again
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	return listener.Close()
}

func (s *Server) create(locale ...string) error {
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), append(locale, "-D", s.data(), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")...)
	initdb.Dir, initdb.SysProcAttr = s.dir, s.owner
	if said, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, said)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// another returns a user who is not root.
func another() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		who, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(who.Uid)
		gid, errGID := strconv.Atoi(who.Gid)
		return uid, gid, errors.Join(errUID, errGID)
	}
	return 0, 0, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

// watchdogScript runs the command in place of the shell. A watchdog beside it kills the server and
// removes its folder when the other end of descriptor 3 is closed, even by the death of the test
// binary. The server's other processes end after the first one.
const watchdogScript = `p=$$; { read -r _; kill -9 $p; rm -rf -- "$0"; } <&3 >/dev/null 2>&1 & exec 3<&-; exec "$@"`

// Up starts the server where it was killed, and waits until it has recovered.
func (s *Server) Up() error {
	leashed, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = leashed.Close() }() // the child has its own
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // likewise
	s.command = exec.Command("/bin/sh", "-c", watchdogScript, s.dir,
		filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-h", "127.0.0.1", "-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap")
	s.command.Dir, s.command.SysProcAttr = s.dir, s.owner
	s.command.Stdout, s.command.Stderr, s.command.ExtraFiles = log, log, []*os.File{leashed}
	if err := s.command.Start(); err != nil {
		_, s.command = leash.Close(), nil
		return err
	}
	s.lifeline = leash
	answers := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = s.ask(ctx, "SELECT 1")
		return err == nil || !alive(s.command.Process.Pid)
	}
	if suitetest.Poll(startTimeout, poll, answers); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("PostgreSQL does not answer: %w: %s", err, said)
	}
	return nil
}

// Kill kills all processes of the server with SIGKILL, like a machine failure, and waits until they are gone.
func (s *Server) Kill() {
	if s.command == nil {
		return
	}
	pid := s.command.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it has no more children from here on
	children := childrenOf(pid)
	for _, one := range append(children, pid) {
		_ = syscall.Kill(one, syscall.SIGKILL) // an error means that it has ended
	}
	_ = s.command.Wait() // says that it was killed
	suitetest.Poll(startTimeout, poll, func() bool { return !slices.ContainsFunc(children, alive) })
	_ = s.lifeline.Close() // the watchdog is among the children
	s.command = nil
}

// end ends the server and removes its folder.
func (s *Server) end() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// find returns the folder with the programs.
func find() (string, error) {
	both := func(dir string) bool {
		_, err1 := exec.LookPath(filepath.Join(dir, "postgres"))
		_, err2 := exec.LookPath(filepath.Join(dir, "initdb"))
		return err1 == nil && err2 == nil
	}
	if dir := os.Getenv("POSTGRES_BIN"); dir != "" {
		if !both(dir) {
			return "", fmt.Errorf("POSTGRES_BIN is %s, which has no postgres and initdb", dir)
		}
		return dir, nil
	}
	if path, err := exec.LookPath("postgres"); err == nil && both(filepath.Dir(path)) {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) + strings.Compare(b, a) }) // the newest first
	for _, dir := range found {
		if both(dir) {
			return dir, nil
		}
	}
	return "", errAbsent
}

// state returns the state of a process and who its parent is.
func state(pid int) (letter byte, parent int, ok bool) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// The name of the program is in brackets, and may contain some itself.
	n, _ := fmt.Sscanf(string(line[bytes.LastIndexByte(line, ')')+1:]), " %c %d", &letter, &parent)
	return letter, parent, n == 2
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	letter, _, ok := state(pid)
	return ok && letter != 'Z'
}

func childrenOf(pid int) (children []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		one, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if _, parent, ok := state(one); ok && parent == pid {
			children = append(children, one)
		}
	}
	return children
}
