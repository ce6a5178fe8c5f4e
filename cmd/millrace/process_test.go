//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// program is the command in its own process.
type program struct {
	process *exec.Cmd
	lines   *bufio.Scanner
	errs    bytes.Buffer // standard error; read only after the process has ended
	output  []string
}

func prepare(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), programVariable+"=1")
	return c
}

// start starts millrace serve on a free port and waits for its startup text.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &program{process: prepare(t.Context(), append([]string{"serve", "-addr", "127.0.0.1:0"}, args...)...)}
	p.process.Stderr = &p.errs
	out, err := p.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.process.ProcessState == nil {
			_ = p.process.Process.Kill()
			_ = p.process.Wait()
		}
	})
	p.lines = bufio.NewScanner(out)
	p.waitForLine(t, "Stop it with Ctrl-C.")
	return p
}

// waitForLine reads the output up to a line.
func (p *program) waitForLine(t *testing.T, line string) {
	t.Helper()
	for p.lines.Scan() {
		p.output = append(p.output, p.lines.Text())
		if p.lines.Text() == line {
			return
		}
	}
	_ = p.process.Wait()
	t.Fatalf("output: got\n%[2]s\n%[3]s\nwant the line %[1]q", line, strings.Join(p.output, "\n"), &p.errs)
}

// value returns the value of a name in the startup text.
func (p *program) value(t *testing.T, name string) string {
	t.Helper()
	for _, line := range p.output {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("startup text has no %q:\n%s", name, strings.Join(p.output, "\n"))
	return ""
}

func (p *program) signal(t *testing.T) {
	t.Helper()
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the process to end, and returns the rest of its output and its status.
func (p *program) wait(t *testing.T) (rest string, status int) {
	t.Helper()
	var text strings.Builder
	for p.lines.Scan() {
		text.WriteString(p.lines.Text() + "\n")
	}
	err := p.process.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if p.errs.Len() > 0 {
		t.Errorf("standard error: got %s, want nothing", &p.errs)
	}
	return text.String(), p.process.ProcessState.ExitCode()
}

// TestServe uses the printed connection string with azqueue, and stops the program.
func TestServe(t *testing.T) {
	t.Parallel()
	p := start(t, "-log")
	if got := p.value(t, "data"); !strings.Contains(got, "memory only") {
		t.Errorf("data: got %q, want memory only", got)
	}
	if _, port, err := net.SplitHostPort(p.value(t, "address")); err != nil || port == "0" {
		t.Errorf("address: got %q, want a port", p.value(t, "address"))
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := azqueue.NewQueueClientFromConnectionString(p.value(t, "connection string"), "orders",
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.EnqueueMessage(t.Context(), "hello", nil); err != nil {
		t.Fatal(err)
	}
	got, err := client.DequeueMessage(t.Context(), nil)
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].MessageText != "hello" {
		t.Fatalf("dequeued: got %v, %v; want hello", got, err)
	}
	p.signal(t)
	rest, status := p.wait(t)
	if status != exitOK {
		t.Errorf("status: got %d, want 0", status)
	}
	for _, want := range []string{"Stopped.\n", "operation=CreateQueue account=devstoreaccount1 queue=orders status=201", "PutMessage  ", "messages got: 1"} {
		if !strings.Contains(rest, want) {
			t.Errorf("output at the end: got\n%s\nwant %q in it", rest, want)
		}
	}
}

// gate is a transport that holds the bodies of posts back until the gate opens: the server has
// begun to handle the request and waits for the body.
type gate struct {
	to      http.Transport
	reading chan struct{} // gets a value when the server reads a body
	open    chan struct{} // closed to let bodies through
}

func newGate() *gate {
	g := &gate{reading: make(chan struct{}, 1), open: make(chan struct{})}
	g.to.ExpectContinueTimeout = time.Hour
	return g
}

// Do implements policy.Transporter.
func (g *gate) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { g.reading <- struct{}{} }}))
		r.Header.Set("Expect", "100-continue") // the server responds to it when the handler reads
		r.Body = io.NopCloser(io.MultiReader(closed(g.open), r.Body))
	}
	return g.to.RoundTrip(r)
}

// closed is an empty reader that blocks until the channel is closed.
type closed <-chan struct{}

func (c closed) Read([]byte) (int, error) {
	<-c
	return 0, io.EOF
}

// startPut starts to put a message and returns when the server is reading its body.
func startPut(t *testing.T, connection string) (g *gate, result <-chan error) {
	t.Helper()
	g = newGate()
	t.Cleanup(g.to.CloseIdleConnections)
	client, err := azqueue.NewQueueClientFromConnectionString(connection, "orders",
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: g, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := client.EnqueueMessage(t.Context(), "x", nil)
		done <- err
	}()
	select {
	case <-g.reading:
	case err := <-done:
		t.Fatal("the put ended before its body was sent:", err)
	}
	return g, done
}

const stopping = "Stopping: requests in progress may finish. Press Ctrl-C again to stop at once."

func TestServeFinishesRequestsInProgress(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "2ms")
	g, result := startPut(t, p.value(t, "connection string"))
	p.signal(t)
	p.waitForLine(t, stopping)
	close(g.open)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if rest, status := p.wait(t); status != exitOK || rest != "Stopped.\n" {
		t.Errorf("got status %d and %q, want 0 and Stopped.", status, rest)
	}
}

func TestSecondSignalAbortsRequests(t *testing.T) {
	t.Parallel()
	p := start(t)
	g, result := startPut(t, p.value(t, "connection string"))
	p.signal(t)
	p.waitForLine(t, stopping)
	p.signal(t)
	if rest, status := p.wait(t); status != exitOK || rest != "Stopped. Requests in progress were aborted.\n" {
		t.Errorf("got status %d and %q, want 0 and that requests were aborted", status, rest)
	}
	close(g.open)
	if err := <-result; err == nil {
		t.Error("the put succeeded, want an error")
	}
}

// TestErrorsAreOneLineWithAHint: every error is one line with a hint, and has the right status.
func TestErrorsAreOneLineWithAHint(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // after the parallel subtests
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "queues.db"), []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	engine, err := filequeue.Open(inUse, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	const secret = "c2VjcmV0IG9mIG1pbmU="
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"start", exitUsage, `unknown command "start"`},
		{"version x", exitUsage, `"x" is not a flag`},
		{"serve now", exitUsage, `"now" is not a flag`},
		{"serve -port 1", exitUsage, "not defined: -port"},
		{"serve -seed", exitUsage, "needs an argument: -seed"},
		{"serve -seed -1", exitUsage, `invalid value "-1" for flag -seed`},
		{"serve -delay soon", exitUsage, `invalid value "soon" for flag -delay`},
		{"serve -delay -1s", exitUsage, "-delay -1s is negative"},
		{"serve -deleting-for -1s", exitUsage, "-deleting-for -1s is negative"},
		{"serve -deleting-for 30ns", exitUsage, "-deleting-for 30ns is shorter than 1ms"},
		{"serve -serve-account " + secret, exitUsage, "number 1: not name:key"},
		{"serve -serve-account ab:" + secret, exitUsage, "3 to 24 lower-case"},
		{"serve -serve-account Abc:" + secret, exitUsage, "3 to 24 lower-case"},
		{"serve -serve-account abc:" + secret + "!", exitUsage, "not Base64"},
		{"serve -serve-account abc:", exitUsage, "not Base64"},
		{"serve -serve-account abc:" + secret + " -serve-account abc:" + secret, exitUsage, "abc is given twice"},
		{"serve -cert " + empty, exitUsage, "both -cert and -key"},
		{"serve -key " + empty, exitUsage, "both -cert and -key"},
		{"serve -cert " + empty + " -key " + empty, exitFailure, "PEM files that belong together"},
		{"serve -addr 10001", exitUsage, "not host:port"},
		{"serve -addr 127.0.0.1:65536", exitUsage, "not host:port"},
		{"serve -addr :10001", exitUsage, "-public"},
		{"serve -addr 0.0.0.0:10001", exitUsage, "-public"},
		{"serve -public", exitUsage, "-public requires an account"},
		{"serve -data " + empty, exitFailure, "not a directory"},
		{"serve -data " + foreign, exitFailure, "nothing was changed: move the file away"},
		{"serve -data " + inUse, exitFailure, "in use by process " + strconv.Itoa(os.Getpid()) + ": stop it, or use another directory"},
		{"serve -faults get:sleepy", exitUsage, "-faults: "},
		{"serve -limit money=1", exitUsage, "-limit: "},
		{"serve -addr " + taken.Addr().String(), exitFailure, "address already in use; stop the program that listens there"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			p := prepare(t.Context(), strings.Fields(c.args)...)
			var out, errs bytes.Buffer
			p.Stdout, p.Stderr = &out, &errs
			_ = p.Run() // the status is checked below
			text := errs.String()
			if got := p.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status: got %d, want %d", got, c.status)
			}
			if !strings.HasPrefix(text, "millrace: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.Contains(text, c.want) {
				t.Errorf("error: got %q, want one line with %q", text, c.want)
			}
			if strings.Contains(text, secret) {
				t.Errorf("the error contains a key: %q", text)
			}
			if out.Len() > 0 {
				t.Errorf("standard output: got %s, want nothing", &out)
			}
		})
	}
}

func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, roots := certificateFiles(t)
	p := start(t, "-cert", cert, "-key", key)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client, err := azqueue.NewQueueClientFromConnectionString(p.value(t, "connection string"), "orders",
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(client.URL(), "https://") {
		t.Errorf("URL: got %s, want https", client.URL())
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// certificateFiles returns files with a certificate for this machine and its key, and the roots
// with which a client trusts it.
func certificateFiles(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, block []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: block}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", encoded), roots
}

// TestDataSurvivesAKill sends messages, kills the program, and starts it on the data and on damaged
// copies, whose damage it must report.
func TestDataSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "-data", dir)
	if got, want := p.value(t, "data"), dir+": 0 messages in 0 queues"; got != want {
		t.Errorf("data: got %q, want %q", got, want)
	}
	orders, done := p.queue(t, "orders")
	if _, err := orders.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one order", "another order"} {
		if _, err := orders.EnqueueMessage(t.Context(), text, nil); err != nil {
			t.Fatal(err)
		}
	}
	done()
	if err := p.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, status := p.wait(t); status == exitOK {
		t.Error("status of a killed program: got 0")
	}
	torn := copyWith(t, dir, "another order", "another")

	p = start(t, "-data", dir)
	if got, want := p.value(t, "data"), dir+": 2 messages in 1 queue"; got != want {
		t.Errorf("data: got %q, want %q", got, want)
	}
	orders, done = p.queue(t, "orders")
	defer done()
	got, err := orders.DequeueMessage(t.Context(), nil)
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].MessageText != "one order" {
		t.Errorf("dequeued: got %+v, %v; want one order", got.Messages, err)
	}
	p.signal(t)
	if rest, status := p.wait(t); status != exitOK {
		t.Errorf("got status %d and %q, want 0", status, rest)
	}

	p = start(t, "-data", torn)
	if got, want := p.value(t, "data"), torn+": 1 message in 1 queue; the log ends in the middle of a commit, as after a kill or a power cut; if the disk lost its end, acknowledged changes may be missing"; got != want {
		t.Errorf("data: got %q, want %q", got, want)
	}
	p = start(t, "-data", copyWith(t, dir, "one order", "ONE ORDER"))
	if got := p.value(t, "damage"); !strings.Contains(got, "message 1") || !strings.Contains(got, "quarantined") {
		t.Errorf("damage: got %q, want message 1 quarantined", got)
	}
}

// queue returns an azqueue client of a queue of the program, and a function to call when it is no
// longer used.
func (p *program) queue(t *testing.T, name string) (*azqueue.QueueClient, func()) {
	t.Helper()
	transport := &http.Transport{}
	client, err := azqueue.NewQueueClientFromConnectionString(p.value(t, "connection string"), name,
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	return client, transport.CloseIdleConnections
}

// copyWith copies a directory and overwrites a text in its files with another and zeros.
func copyWith(t *testing.T, dir, text, other string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(to, "queues.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		inPlace := append([]byte(other), make([]byte, len(text)-len(other))...)
		if err := os.WriteFile(name, bytes.ReplaceAll(file, []byte(text), inPlace), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestServeInjectsFaults: the second put is refused.
func TestServeInjectsFaults(t *testing.T) {
	t.Parallel()
	p := start(t, "-faults", "put:503@#2", "-seed", "7", "-limit", "requests=1000")
	if got, want := p.value(t, "faults"), "PutMessage:503@#2 (repeat with -seed 7)"; got != want {
		t.Errorf("faults: got %q, want %q", got, want)
	}
	if got, want := p.value(t, "limits"), "requests=1000 a second"; got != want {
		t.Errorf("limits: got %q, want %q", got, want)
	}
	orders, done := p.queue(t, "orders")
	defer done()
	if _, err := orders.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		_, err := orders.EnqueueMessage(t.Context(), "order", nil)
		var refused *azcore.ResponseError
		if busy := errors.As(err, &refused) && refused.StatusCode == http.StatusServiceUnavailable && refused.ErrorCode == "ServerBusy"; busy != (n == 1) {
			t.Errorf("put %d: got %v, want ServerBusy for the second only", n+1, err)
		}
	}
}
