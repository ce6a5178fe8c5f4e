//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
)

// TestInterruptedPutCountsItsJobs: a signal ends the wait for more lines, and the error has the
// number of jobs that were put.
func TestInterruptedPutCountsItsJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := prepare(t.Context(), "put", name)
		p.Env = append(p.Env, accountVariable+"="+location)
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs, out bytes.Buffer
		p.Stdout, p.Stderr = &out, &errs
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		q := v.open(t, name)
		if err := q.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "1\n2\n3"); err != nil { // the third line is incomplete
			t.Fatal(err)
		}
		waitForDepth(t, q, 2)
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // the status is checked below
		if got := p.ProcessState.ExitCode(); got != exitInterrupted || out.Len() > 0 || errs.String() != "millrace: put: interrupted; 2 jobs put on devstoreaccount1/"+name+"\n" {
			t.Errorf("%v: got status %d, output %q and error %q; want 130 and 2 jobs", signal, got, &out, &errs)
		}
	}
}

// waitForDepth waits until the queue has n messages.
func waitForDepth(t *testing.T, q queue.Queue, n int64) {
	t.Helper()
	azuritetest.Until(t, fmt.Sprintf("%v has %d messages", q.Name(), n), func() bool {
		p, err := q.Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.Depth == n
	})
}

// TestSecondSignalDoesNotWaitForTheServer: a second signal aborts a request without a response, and
// the error says that its outcome is unknown.
func TestSecondSignalDoesNotWaitForTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"put", "orders", "1", "2"}, "put: interrupted; 0 jobs put on devstoreaccount1/orders, and perhaps one more\n"},
		{[]string{"create", "orders"}, "create: interrupted; the request in progress may or may not have taken effect\n"},
		{[]string{"drop", "orders", "-yes"}, "drop: interrupted; the request in progress may or may not have taken effect\n"},
		{[]string{"clear", "orders", "-yes"}, "clear: interrupted; the request in progress may or may not have taken effect\n"},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := prepare(t.Context(), c.args...)
		p.Env = append(p.Env, accountVariable+"="+connectionString("http://"+listener.Addr().String()+"/devstoreaccount1", emulator.DevelopmentAccount, emulator.DevelopmentKey))
		var errs bytes.Buffer
		p.Stderr = &errs
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // now a request is in progress
			t.Fatal(err)
		}
		for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} { // two equal signals may become one
			if err := p.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.Wait() // the status is checked below
		_, _ = conn.Close(), listener.Close()
		if got := p.ProcessState.ExitCode(); got != exitInterrupted || errs.String() != "millrace: "+c.want {
			t.Errorf("%q: got status %d and error %q, want 130 and %q", c.args, got, &errs, c.want)
		}
	}
}

// TestFirstSignalLetsTheRequestFinish: a request that changes something is not aborted, so that its
// outcome is known.
func TestFirstSignalLetsTheRequestFinish(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	server := must(emulator.New(nil, nil))
	began, goOn := make(chan struct{}), make(chan struct{})
	held := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-goOn
		server.ServeHTTP(w, r)
	}))
	defer held.Close()
	location := connectionString(held.URL+"/devstoreaccount1", emulator.DevelopmentAccount, emulator.DevelopmentKey)
	p := prepare(t.Context(), "create", "orders")
	p.Env = append(p.Env, accountVariable+"="+location)
	var out, errs bytes.Buffer
	p.Stdout, p.Stderr = &out, &errs
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for isPending(p.Process.Pid) { // otherwise it might arrive after the process has finished
		runtime.Gosched()
	}
	close(goOn)
	_ = p.Wait() // the status is checked below
	if got := p.ProcessState.ExitCode(); got != exitOK || out.String() != "Created queue devstoreaccount1/orders.\n" || errs.Len() > 0 {
		t.Errorf("got status %d, output %q and error %q; want success", got, &out, &errs)
	}
}

// isPending reports whether a signal to the process is still pending, on systems with /proc.
func isPending(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, signals, found := strings.Cut(string(status), "\nShdPnd:\t")
	return found && !strings.HasPrefix(signals, "0000000000000000")
}

// TestClosedOutputIsNoError: a reader of the output, such as head, may close it early.
func TestClosedOutputIsNoError(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	// More than a pipe holds, so that the program still writes after the reader has left.
	v.withInput(strings.Repeat(`"`+strings.Repeat("x", 30_000)+"\"\n", 32)).ok(t, "put", name)
	p := prepare(t.Context(), "peek", name, "-n", "32")
	p.Env = append(p.Env, accountVariable+"="+location)
	var errs bytes.Buffer
	p.Stderr = &errs
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = w
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	line, err := bufio.NewReaderSize(r, 16).ReadString('\n')
	_ = r.Close()
	_ = p.Wait() // a signal ends it, or it ends by itself
	if err != nil || !strings.HasPrefix(line, "message ") {
		t.Errorf("first line: got %q, %v; want a message", line, err)
	}
	if errs.Len() > 0 {
		t.Errorf("standard error: got %s, want nothing", &errs)
	}
}

// TestFullDiskFails: a command whose output cannot be written fails.
func TestFullDiskFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) && runtime.GOOS != "linux" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	location := startServer(t)
	name := createQueue(t, on(location))
	for _, args := range [][]string{{"queues"}, {"stat", name}, {"create", name}, {"help"}, {"queues", "-json"}} {
		p := prepare(t.Context(), args...)
		p.Env = append(p.Env, accountVariable+"="+location)
		var errs bytes.Buffer
		p.Stdout, p.Stderr = full, &errs
		_ = p.Run()
		if got := p.ProcessState.ExitCode(); got != exitFailure || !strings.Contains(errs.String(), "cannot write the output: ") {
			t.Errorf("%q: got status %d and error %q, want 1 and cannot write the output", args, got, &errs)
		}
	}
}
