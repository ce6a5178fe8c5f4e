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
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// TestAnInterruptedPutSaysHowFarItGot: a signal ends the wait for more lines, and the
// jobs that were put are counted.
func TestAnInterruptedPutSaysHowFarItGot(t *testing.T) {
	t.Parallel()
	location := local(t)
	v := on(location)
	name := made(t, v)
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
		if _, err := io.WriteString(in, "1\n2\n3"); err != nil { // the third is not yet a line
			t.Fatal(err)
		}
		waitForDepth(t, q, 2)
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // its status tells
		if got := p.ProcessState.ExitCode(); got != exitInterrupted || out.Len() > 0 || errs.String() != "millrace: put: interrupted; 2 jobs put on devstoreaccount1/"+name+"\n" {
			t.Errorf("%v: status %d, %q and %q", signal, got, &out, &errs)
		}
	}
}

// waitForDepth returns when the queue has so many messages.
func waitForDepth(t *testing.T, q queue.Queue, n int64) {
	t.Helper()
	for {
		p, err := q.Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p.Depth == n {
			return
		}
	}
}

// TestASecondSignalDoesNotWait for a server that does not answer, and says what is not
// known then.
func TestASecondSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"put", "orders", "1", "2"}, "put: interrupted; 0 jobs put on devstoreaccount1/orders, and perhaps one more\n"},
		{[]string{"create", "orders"}, "create: interrupted; what was under way may have taken effect or not\n"},
		{[]string{"drop", "orders", "-yes"}, "drop: interrupted; what was under way may have taken effect or not\n"},
		{[]string{"clear", "orders", "-yes"}, "clear: interrupted; what was under way may have taken effect or not\n"},
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
		if _, err := conn.Read(make([]byte, 1)); err != nil { // now a request is under way
			t.Fatal(err)
		}
		for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} { // two of a kind may become one
			if err := p.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.Wait() // its status tells
		_, _ = conn.Close(), listener.Close()
		if got := p.ProcessState.ExitCode(); got != exitInterrupted || errs.String() != "millrace: "+c.says {
			t.Errorf("%q: status %d and %q", c.args, got, &errs)
		}
	}
}

// TestOneSignalLetsARequestEnd that changes something, so that it is known what came of it.
func TestOneSignalLetsARequestEnd(t *testing.T) {
	t.Parallel()
	server := emulator.New(localqueue.New(nil), nil)
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
	for isPending(p.Process.Pid) { // or it may end the process when that has done its work
		runtime.Gosched()
	}
	close(goOn)
	_ = p.Wait() // its status tells
	if got := p.ProcessState.ExitCode(); got != exitOK || out.String() != "Queue devstoreaccount1/orders is there.\n" || errs.Len() > 0 {
		t.Errorf("status %d, %q and %q", got, &out, &errs)
	}
}

// isPending tells whether a signal that was sent to the process has not reached it yet, where
// the system says so.
func isPending(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, signals, found := strings.Cut(string(status), "\nShdPnd:\t")
	return found && !strings.HasPrefix(signals, "0000000000000000")
}

// TestWhoReadsNoMoreHearsNoMore: head ends when it has enough, and that is no error.
func TestWhoReadsNoMoreHearsNoMore(t *testing.T) {
	t.Parallel()
	location := local(t)
	v := on(location)
	name := made(t, v)
	// More than a pipe holds, so that the program must still write when nobody reads.
	v.reads(strings.Repeat(`"`+strings.Repeat("x", 30_000)+"\"\n", 32)).ok(t, "put", name)
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
	_ = p.Wait() // it is ended by a signal, or ends by itself
	if err != nil || !strings.HasPrefix(line, "message ") {
		t.Errorf("%q, %v", line, err)
	}
	if errs.Len() > 0 {
		t.Errorf("on standard error: %s", &errs)
	}
}

// TestAFullDiskIsNoSuccess, and no secret either.
func TestAFullDiskIsNoSuccess(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) && runtime.GOOS != "linux" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	location := local(t)
	name := made(t, on(location))
	for _, args := range [][]string{{"queues"}, {"stat", name}, {"create", name}, {"help"}, {"queues", "-json"}} {
		p := prepare(t.Context(), args...)
		p.Env = append(p.Env, accountVariable+"="+location)
		var errs bytes.Buffer
		p.Stdout, p.Stderr = full, &errs
		_ = p.Run()
		if got := p.ProcessState.ExitCode(); got != exitFailure || !strings.Contains(errs.String(), "cannot write the output: ") {
			t.Errorf("%q: status %d and %q", args, got, &errs)
		}
	}
}
