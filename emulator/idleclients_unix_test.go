//go:build unix

package emulator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// idleClientsVariable makes the test binary open idle connections to this address.
const idleClientsVariable = "MILLRACE_TEST_IDLE_CLIENTS"

// idleClientsCountVariable is the number of connections.
const idleClientsCountVariable = "MILLRACE_TEST_IDLE_CLIENTS_SIZE"

// raiseFileLimit raises the limit of open files to its maximum and returns it.
func raiseFileLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	return uint64(limit.Cur), nil //nolint:unconvert // signed on some systems
}

// runIdleClients opens the connections, does one request on each, prints "held", and holds them
// until its standard input ends.
func runIdleClients(address string) int {
	if err := holdConnections(address); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func holdConnections(address string) error {
	size, err := strconv.Atoi(os.Getenv(idleClientsCountVariable))
	if err != nil {
		return err
	}
	if _, err := raiseFileLimit(); err != nil {
		return err
	}
	const dialers = 32
	connections := make([]net.Conn, size)
	errs := make(chan error, dialers)
	for d := range dialers {
		go func() {
			for i := d; i < size; i += dialers {
				var err error
				if connections[i], err = connectAndAsk(address); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range dialers {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(connections)
	return err
}

func connectAndAsk(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "GET /devstoreaccount1?comp=list HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return conn, err
}

// TestManyIdleConnections holds thousands of connections from another process. A request must
// still get a response, and nothing of them may be left when they are closed.
func TestManyIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("holds thousands of connections")
	}
	files, err := raiseFileLimit()
	if err != nil {
		t.Fatal(err)
	}
	size := idleClientsCount
	if most := int(min(files, 1<<20)) - 200; most < size {
		t.Logf("this process may have %d files open: %d connections in place of %d", files, most, size)
		size = most
	}
	before, heap := runtime.NumGoroutine(), heapInUse()
	e := startEndpoint(t, patient)
	client := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	client.Env = append(os.Environ(), idleClientsVariable+"="+e.Addr().String(), idleClientsCountVariable+"="+strconv.Itoa(size))
	client.Stderr = os.Stderr
	in, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	output, err := bufio.NewReader(out).ReadString('\n')
	if output != "held\n" {
		t.Fatalf("output of the client process: got %q, %v; want held", output, err)
	}
	if n := runtime.NumGoroutine() - before; n < size {
		t.Errorf("goroutines: got %d more, want %d, one for each connection", n, size)
	}
	t.Logf("%d connections held: %d KiB of heap", size, (heapInUse()-heap)>>10)
	conn, reader := dial(t, e)
	io.WriteString(conn, raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", ""))
	if got := status(t, reader, "POST"); got != http.StatusCreated {
		t.Errorf("status: got %d, want 201", got)
	}
	conn.Close()
	in.Close()
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	// Their connections are closed, but each needs the processor once more to end.
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("goroutines afterwards: got %d, want %d", runtime.NumGoroutine(), before)
		}
	}
	if left := heapInUse() - heap; left > 16<<20 {
		t.Errorf("heap afterwards: got %d bytes more, want at most 16 MiB", left)
	}
}

// heapInUse returns the reachable bytes of the heap.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second empties the pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
