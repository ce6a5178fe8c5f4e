//go:build unix

package processes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// An instance of these tests is this test binary. It says hello over a socket, with its number and process id, and does what it is told
// there. It says "told" when it gets SIGTERM, and works on, until it is told "exit". It ends with its socket, so that none is left of a test.
const socketVariable = "MILLRACE_PROCESSES_SOCKET"

func init() { tasks["instance"] = playInstance }

func playInstance() {
	terms := make(chan os.Signal, 10)
	signal.Notify(terms, syscall.SIGTERM)
	c, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		fmt.Println(err)
		os.Exit(99)
	}
	fmt.Fprintf(c, "hello %s %d\n", os.Getenv(NumberVariable), os.Getpid())
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(c); s.Scan(); {
			lines <- s.Text()
		}
		os.Exit(98)
	}()
	for {
		select {
		case <-terms:
			fmt.Fprintln(c, "told")
		case line := <-lines:
			obey(c, line)
		}
	}
}

func obey(c io.Writer, line string) {
	what, arg, _ := strings.Cut(line, " ")
	switch what {
	case "exit":
		var status int
		fmt.Sscan(arg, &status)
		os.Exit(status)
	case "print":
		fmt.Print(strings.ReplaceAll(arg, "|", "\n"))
		fmt.Fprintln(c, "printed")
	case "flood": // so many lines
		var n int
		fmt.Sscan(arg, &n)
		w := bufio.NewWriter(os.Stdout)
		for i := range n {
			fmt.Fprintf(w, "line %d of a flood that is long enough to fill something some day\n", i)
		}
		w.Flush()
		fmt.Fprintln(c, "printed")
	case "close": // as daemons do that close what they have inherited
		syscall.Close(3)
		fmt.Fprintln(c, "closed")
	case "spawn": // a process of its own, which inherits the lock
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			os.Exit(97)
		}
		fmt.Fprintf(c, "spawned %d\n", cmd.Process.Pid)
	}
}

// kid is an instance as the test sees it.
type kid struct {
	t           *testing.T
	number, pid int
	conn        net.Conn
	said        chan string   // what it said after hello
	gone        chan struct{} // closed when it has ended
}

func (k *kid) order(format string, args ...any) {
	fmt.Fprintf(k.conn, format+"\n", args...) // one that has ended does not hear it
}

// hears waits until the kid says something, and returns it.
func (k *kid) hears() string {
	k.t.Helper()
	select {
	case line := <-k.said:
		return line
	case <-time.After(guard):
		k.t.Fatalf("instance %d: got nothing, want a line", k.number)
		return ""
	}
}

func (k *kid) end(status int) {
	k.t.Helper()
	k.order("exit %d", status)
	k.waitGone()
}

func (k *kid) waitGone() {
	k.t.Helper()
	select {
	case <-k.gone:
	case <-time.After(guard):
		k.t.Fatalf("instance %d has not ended", k.number)
	}
}

func (k *kid) alive() bool {
	select {
	case <-k.gone:
		return false
	default:
		return true
	}
}

// guard ends a test that would hang.
const guard = 30 * time.Second

// world is a folder, and what its instances talk to.
type world struct {
	t      *testing.T
	folder string
	socket string
	hellos chan *kid
	log    *logged
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir, err := os.MkdirTemp("", "p") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, folder: filepath.Join(t.TempDir(), "pool"), socket: filepath.Join(dir, "s"), hellos: make(chan *kid, 1000), log: &logged{}}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	ended := false
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			if ended {
				c.Close()
			}
			mu.Unlock()
			serving.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		mu.Lock()
		ended = true
		for _, c := range conns {
			c.Close() // which ends the instance
		}
		mu.Unlock()
		l.Close()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return w
}

func (w *world) serve(c net.Conn) {
	lines := bufio.NewScanner(c)
	k := &kid{t: w.t, conn: c, said: make(chan string, 100), gone: make(chan struct{})}
	defer close(k.gone)
	if !lines.Scan() {
		return
	}
	if _, err := fmt.Sscanf(lines.Text(), "hello %d %d", &k.number, &k.pid); err != nil {
		w.t.Errorf("instance: got %q, want hello", lines.Text())
		return
	}
	w.hellos <- k
	for lines.Scan() {
		k.said <- lines.Text()
	}
}

// quick are waits for tests.
var quick = timing{look: time.Millisecond, maxLook: 8 * time.Millisecond, restart: time.Millisecond, maxRestart: 8 * time.Millisecond, steady: time.Hour, record: guard, output: guard}

func (w *world) options() Options {
	return Options{
		Command: []string{os.Args[0]}, Folder: w.folder, Output: io.Discard, Logger: w.log.logger(),
		Env: []string{taskVariable + "=instance", socketVariable + "=" + w.socket, "GORACE=atexit_sleep_ms=0"},
	}
}

// open supervises until the test ends.
func (w *world) open(change ...func(*Options)) *Processes {
	w.t.Helper()
	o := w.options()
	for _, f := range change {
		f(&o)
	}
	p, err := open(o, quick, true)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return p
}

// next returns the next n instances that have begun, by number.
func (w *world) next(n int) map[int]*kid {
	w.t.Helper()
	kids := map[int]*kid{}
	for range n {
		k := w.one()
		if kids[k.number] != nil {
			w.t.Fatalf("two instances have the number %d", k.number)
		}
		kids[k.number] = k
	}
	return kids
}

func (w *world) one() *kid {
	w.t.Helper()
	select {
	case k := <-w.hellos:
		return k
	case <-time.After(guard):
		w.t.Fatalf("no instance has begun; the log: %s", w.log)
		return nil
	}
}

func (w *world) noneBegan() {
	w.t.Helper()
	select {
	case k := <-w.hellos:
		w.t.Errorf("instance %d has begun, want none", k.number)
	default:
	}
}

func (w *world) scale(p *Processes, n int) {
	w.t.Helper()
	if err := p.Scale(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	if got, err := p.Instances(w.t.Context()); got != n || err != nil {
		w.t.Fatalf("Instances after Scale(%d): got %d, %v", n, got, err)
	}
}

// until waits for a state, in which the rest is as it must always be.
func (w *world) until(p *Processes, what string, is func(State) bool) {
	w.t.Helper()
	azuritetest.Until(w.t, what, func() bool {
		s := p.State()
		if s.Running+s.Waiting != s.Wanted {
			w.t.Fatalf("got %+v, want running and waiting to be what is wanted", s)
		}
		return is(s)
	})
}

// reaped waits until no process has the id, not even a zombie.
func (w *world) reaped(pid int) {
	w.t.Helper()
	azuritetest.Until(w.t, "the process is reaped", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// logged is what was logged.
type logged struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	records []slog.Record // guarded by mu
}

func (l *logged) logger() *slog.Logger { return slog.New(l) }

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }

func (l *logged) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return slog.NewTextHandler(&l.text, nil).Handle(ctx, r)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// all returns an attribute of all records with this message.
func (l *logged) all(message, key string) (values []slog.Value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Message == message {
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == key {
					values = append(values, a.Value)
				}
				return true
			})
		}
	}
	return values
}

// shown is an Output.
type shown struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
