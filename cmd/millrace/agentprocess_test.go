//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
)

// agentProcess is millrace agent in a process of its own.
type agentProcess struct {
	process *exec.Cmd
	lines   *bufio.Scanner
	errs    bytes.Buffer // read only after the process has ended
	output  []string
}

// startAgent starts millrace agent on an account with a pool whose instances are this test binary.
func startAgent(t *testing.T, location, path string, args ...string) *agentProcess {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), watchdog) // or the test would wait for a line that never comes
	t.Cleanup(cancel)
	a := &agentProcess{process: prepare(ctx, append([]string{"agent", "-config", path}, args...)...)}
	a.process.Env = append(a.process.Env, accountVariable+"="+location)
	a.process.Stderr = &a.errs
	out, err := a.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if a.process.ProcessState == nil {
			_ = a.process.Process.Kill()
			_ = a.process.Wait()
		}
	})
	a.lines = bufio.NewScanner(out)
	return a
}

// until reads the output up to a line that contains this, and returns the line.
func (a *agentProcess) until(t *testing.T, text string) string {
	t.Helper()
	for a.lines.Scan() {
		a.output = append(a.output, a.lines.Text())
		if strings.Contains(a.lines.Text(), text) {
			return a.lines.Text()
		}
	}
	_ = a.process.Wait()
	t.Fatalf("output: got\n%s\n%s\nwant a line with %q", strings.Join(a.output, "\n"), &a.errs, text)
	return ""
}

func (a *agentProcess) signal(t *testing.T) {
	t.Helper()
	if err := a.process.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end, and returns the rest of the output, the standard error and the status.
func (a *agentProcess) end() (rest, errs string, status int) {
	for a.lines.Scan() {
		rest += a.lines.Text() + "\n"
	}
	_ = a.process.Wait() // the status says it
	return rest, a.errs.String(), a.process.ProcessState.ExitCode()
}

// workers writes a file with a pool whose instances are this test binary on the queue, and returns its path.
func workers(t *testing.T, queue string, policy string) string {
	t.Helper()
	return configure(t, fmt.Sprintf(`
interval: 1s
folder: state
price: {instance_hour: 0.05, transactions: 0.004}
pools:
  orders:
    queues: [%[1]s]
    beacons: [%[1]s-control]
    policy: %[2]s
    processes:
      command: [%[3]q]
      environment: {%[4]s: %[1]s}
      grace: 20s
      log: logs/orders.log
`, queue, policy, os.Args[0], workerVariable))
}

// logOf returns what the instances have printed.
func logOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "logs", "orders.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// jobs returns lines for put.
func jobs(n int, each string) string { return strings.Repeat(fmt.Sprintf("%q\n", each), n) }

// TestAgentScalesProcesses: a flood comes, instances come, the flood is worked off, all but one go; at Ctrl-C the last one ends too.
func TestAgentScalesProcesses(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	v.ok(t, "create", name+"-control")
	v.withInput(jobs(60, "50ms")).ok(t, "put", name)
	path := workers(t, name, "{max: 3, target: 1s, start: 1s, down_after: 1s, slots: 2, handling: 200ms}")
	a := startAgent(t, location, path)
	a.until(t, "Stop it with Ctrl-C.")
	if line := a.until(t, "0 → "); !strings.Contains(line, " orders: 0 → 3: ") {
		t.Errorf("got the line %q, want from none to three for 60 jobs", line)
	}
	a.until(t, " → 1: ")
	waitForDepth(t, v.open(t, name), 0)
	if shown := v.ok(t, "instances", name+"-control"); !strings.Contains(shown, "running") || !strings.Contains(shown, "of 2") {
		t.Errorf("instances: got\n%s\nwant those that work, with two handlers each", shown)
	}
	a.signal(t)
	a.until(t, "Stopping: waiting for the jobs of 1 instance. Press Ctrl-C again to leave them.")
	rest, errs, status := a.end()
	if status != exitOK || !strings.Contains(rest, "this was done:") || !strings.Contains(rest, "0 to 3") {
		t.Errorf("got status %d and\n%s\n%s\nwant 0 and a summary of none to three instances", status, rest, errs)
	}
	if got := strings.Count(errs, "instance started"); got != 3 || strings.Contains(errs, "millrace: ") {
		t.Errorf("standard error: got %d starts in\n%s\nwant 3, and no error", got, errs)
	}
	checkShownLines(t, "agent -config agent.yaml", strings.Join(a.output, "\n")+"\n"+rest+errs)
	log := logOf(t, path)
	if began, drained := strings.Count(log, "began 50ms"), strings.Count(log, "drained"); began != 60 || drained != 3 {
		t.Errorf("the log of the instances: got %d jobs and %d that drained, want 60 and 3:\n%s", began, drained, log)
	}
}

// TestAgentLeavesInstancesToTheNext: with -leave they go on, and the next agent takes over and ends them after their jobs.
func TestAgentLeavesInstancesToTheNext(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	path := workers(t, name, "{max: 1}")
	a := startAgent(t, location, path, "-leave")
	a.until(t, "0 → 1")
	v.withInput(jobs(1, "300ms")).ok(t, "put", name)
	waitForDepth(t, v.open(t, name), 0) // the instance works
	a.signal(t)
	if rest, errs, status := a.end(); status != exitOK || strings.Contains(rest, "Stopping") || strings.Contains(errs, "has ended") {
		t.Fatalf("got status %d and\n%s\n%s\nwant 0, and instances left", status, rest, errs)
	}
	a = startAgent(t, location, path)
	a.until(t, " orders: 1: stays")
	a.signal(t)
	rest, errs, status := a.end()
	if status != exitOK || !strings.Contains(rest, "waiting for the jobs of 1 instance") || !strings.Contains(errs, "orders: instance found (instance 1") || strings.Contains(errs, "instance started") {
		t.Errorf("got status %d and\n%s\n%s\nwant that the instance was found, and ended", status, rest, errs)
	}
	if log := logOf(t, path); strings.Count(log, "drained") != 1 {
		t.Errorf("the log of the instance: got %s, want that it has drained once", log)
	}
}

// TestInstancesOfARenamedPoolAreNamedAndDrained: the next agent names them at its start, and -drain ends them after their jobs.
func TestInstancesOfARenamedPoolAreNamedAndDrained(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	path := workers(t, name, "{max: 1}")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("folder: state"), []byte("folder: '[state'"), 1) // which is not a pattern
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, location, path, "-leave")
	a.until(t, "0 → 1")
	v.fails(t, exitFailure, []string{"drain pool orders: an agent runs that supervises its instances: stop that agent", "if it runs with -leave, repeat this command then"}, "agent", "-config", path, "-drain", "orders")
	a.signal(t)
	a.end()
	if err := os.WriteFile(path, bytes.Replace(text, []byte("\n  orders:"), []byte("\n  parcels:"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(filepath.Dir(path), "[state", "processes")
	if err := errors.Join(os.WriteFile(filepath.Join(folder, "README"), nil, 0o600), os.MkdirAll(filepath.Join(folder, "odd", "agent.lock"), 0o700)); err != nil {
		t.Fatal(err)
	}
	a = startAgent(t, location, path)
	a.until(t, "parcels: 0 → 1")
	a.signal(t)
	want := "1 instance of pool orders, which the file does not start, runs on: millrace agent -config " + path + " -drain orders ends it.\n"
	if _, errs, status := a.end(); status != exitOK || strings.Count(errs, want) != 1 || !strings.Contains(errs, "whether instances of pool odd run") ||
		strings.Contains(errs, "README") {
		t.Errorf("got status %d and\n%s\nwant 0, the line %q, and one about the folder of pool odd", status, errs, want)
	}
	v.withInput(jobs(1, "300ms")).ok(t, "put", name)
	waitForDepth(t, v.open(t, name), 0) // it works
	for _, want := range []string{"Waiting for the jobs of 1 instance of pool orders. Press Ctrl-C to leave them.\n", "No instance of pool orders runs.\n"} {
		if r := v.call(t, "agent", "-config", path, "-drain", "orders"); r.status != exitOK || r.out != want {
			t.Errorf("got %+v, want %q", r, want)
		}
	}
	v.fails(t, exitFailure, []string{"drain pool others", "it never had instances here"}, "agent", "-config", path, "-drain", "others")
}

// TestASecondSignalLeavesInstances: the agent ends at once, and says what it leaves; the next one takes over.
func TestASecondSignalLeavesInstances(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	v.withInput(jobs(1, "3s")).ok(t, "put", name)
	path := workers(t, name, "{max: 1}")
	a := startAgent(t, location, path)
	a.until(t, "0 → 1")
	azuritetest.Until(t, "the job has begun", func() bool { // a worker that is told to end before that gives it back
		_, err := os.Stat(filepath.Join(filepath.Dir(path), "logs", "orders.log"))
		return err == nil && strings.Contains(logOf(t, path), "began")
	})
	a.signal(t)
	a.until(t, "Press Ctrl-C again")
	a.signal(t)
	_, errs, status := a.end()
	if status != exitInterrupted || !strings.HasSuffix(errs, "millrace: agent: interrupted; 1 instance of pool orders left to finish jobs without supervision\n") {
		t.Errorf("got status %d and\n%s\nwant 130 and one instance left", status, errs)
	}
	waitForDepth(t, v.open(t, name), 0)
}

// TestAgentOutlastsItsServer: it starts without one, says so once, works when there is one, and says once that it has gone again.
func TestAgentOutlastsItsServer(t *testing.T) {
	t.Parallel()
	server := must(emulator.New(nil, nil))
	var away atomic.Bool
	away.Store(true)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	location := connectionString(front.URL+"/devstoreaccount1", emulator.DevelopmentAccount, emulator.DevelopmentKey)
	path := configure(t, "interval: 1s\npools: {orders: {queues: [orders]}}\n")
	a := startAgent(t, location, path)
	if line := a.until(t, " orders: 1: stays"); !strings.Contains(line, "the depth is unknown") {
		t.Errorf("got the line %q, want that nothing is known", line)
	}
	away.Store(false)
	on(location).ok(t, "create", "orders")
	a.signal(t)
	if _, errs, status := a.end(); status != exitOK || strings.Count(errs, "orders: read the depth of devstoreaccount1/orders: ") != 1 {
		t.Errorf("got status %d and\n%s\nwant 0 and one line about the depth", status, errs)
	}
}

// TestTwoAgentsDoNotShareAFolder: the second one ends, and leaves the instances of the first alone.
func TestTwoAgentsDoNotShareAFolder(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	path := workers(t, name, "{max: 1}")
	a := startAgent(t, location, path)
	a.until(t, "0 → 1")
	second := startAgent(t, location, path)
	if rest, errs, status := second.end(); status != exitFailure || rest != "" || !strings.Contains(errs, "another agent") {
		t.Errorf("got status %d and\n%s\n%s\nwant 1 and that another agent runs", status, rest, errs)
	}
	a.signal(t)
	if _, errs, status := a.end(); status != exitOK || strings.Count(errs, "has ended") != 1 {
		t.Errorf("got status %d and\n%s\nwant 0 and the end of one instance", status, errs)
	}
}
