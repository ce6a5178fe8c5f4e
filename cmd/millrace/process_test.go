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

// program is the command in a process of its own.
type program struct {
	process *exec.Cmd
	lines   *bufio.Scanner
	errs    bytes.Buffer // what it says on standard error; to be read when it has ended
	said    []string
}

func prepare(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), programVariable+"=1")
	return c
}

// start starts millrace serve on a free port and waits until it has said that it
// serves.
func start(t *testing.T, args ...string) *program {
	t.Helper()
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
	p.until(t, "Stop it with Ctrl-C.")
	return p
}

// until reads what it says, up to a line.
func (p *program) until(t *testing.T, line string) {
	t.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if p.lines.Text() == line {
			return
		}
	}
	_ = p.process.Wait()
	t.Fatalf("it did not say %q but:\n%s\n%s", line, strings.Join(p.said, "\n"), &p.errs)
}

// value is what it says under a name in the beginning.
func (p *program) value(t *testing.T, name string) string {
	t.Helper()
	for _, line := range p.said {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("it said nothing of %q:\n%s", name, strings.Join(p.said, "\n"))
	return ""
}

func (p *program) signal(t *testing.T) {
	t.Helper()
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// end reads the rest and returns it with the status.
func (p *program) end(t *testing.T) (rest string, status int) {
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
		t.Errorf("on standard error: %s", &p.errs)
	}
	return text.String(), p.process.ProcessState.ExitCode()
}

// TestServe pastes the connection string into azqueue, and ends the program when it is
// done.
func TestServe(t *testing.T) {
	t.Parallel()
	p := start(t, "-log")
	if got := p.value(t, "data"); !strings.Contains(got, "memory only") {
		t.Errorf("data %q", got)
	}
	if _, port, err := net.SplitHostPort(p.value(t, "address")); err != nil || port == "0" {
		t.Errorf("address %q", p.value(t, "address"))
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
		t.Fatal(got, err)
	}
	p.signal(t)
	rest, status := p.end(t)
	if status != exitOK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"Stopped.\n", "operation=CreateQueue account=devstoreaccount1 queue=orders status=201", "PutMessage  ", "messages got: 1"} {
		if !strings.Contains(rest, want) {
			t.Errorf("it ended without %q:\n%s", want, rest)
		}
	}
}

// gate is a transport whose posts wait in the middle: the server has begun to answer
// and reads the body, which is not there until the gate opens.
type gate struct {
	to      http.Transport
	reading chan struct{} // has one when the server reads
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
		r.Header.Set("Expect", "100-continue") // is answered when the handler reads
		r.Body = io.NopCloser(io.MultiReader(closed(g.open), r.Body))
	}
	return g.to.RoundTrip(r)
}

// closed is a reader that is empty once the channel is closed.
type closed <-chan struct{}

func (c closed) Read([]byte) (int, error) {
	<-c
	return 0, io.EOF
}

// underWay starts putting a message and returns when the server is in the middle of it.
func underWay(t *testing.T, connection string) (g *gate, result <-chan error) {
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
		t.Fatal("it did not wait for the body:", err)
	}
	return g, done
}

const stopping = "Stopping: requests under way may finish. Once more to stop at once."

func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "2ms")
	g, result := underWay(t, p.value(t, "connection string"))
	p.signal(t)
	p.until(t, stopping)
	close(g.open)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if rest, status := p.end(t); status != exitOK || rest != "Stopped.\n" {
		t.Errorf("status %d and %q", status, rest)
	}
}

func TestASecondSignalCutsOff(t *testing.T) {
	t.Parallel()
	p := start(t)
	g, result := underWay(t, p.value(t, "connection string"))
	p.signal(t)
	p.until(t, stopping)
	p.signal(t)
	if rest, status := p.end(t); status != exitOK || rest != "Stopped. Requests that were under way were cut off.\n" {
		t.Errorf("status %d and %q", status, rest)
	}
	close(g.open)
	if err := <-result; err == nil {
		t.Error("the request was answered")
	}
}

// TestOneLine holds that whatever is wrong, it says so in one line that has a hint, and
// ends with the right status.
func TestOneLine(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // when the parallel ones have ended
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "queues.db"), []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	store, err := filequeue.Open(inUse)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	const secret = "c2VjcmV0IG9mIG1pbmU="
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"start", exitUsage, `no command "start"`},
		{"version x", exitUsage, `"x" is not a flag`},
		{"serve now", exitUsage, `"now" is not a flag`},
		{"serve -port 1", exitUsage, "not defined: -port"},
		{"serve -seed", exitUsage, "needs an argument: -seed"},
		{"serve -seed -1", exitUsage, `invalid value "-1" for flag -seed`},
		{"serve -delay soon", exitUsage, `invalid value "soon" for flag -delay`},
		{"serve -delay -1s", exitUsage, "-delay -1s is negative"},
		{"serve -deleting-for -1s", exitUsage, "-deleting-for -1s is negative"},
		{"serve -serve-account " + secret, exitUsage, "number 1: it is not name:key"},
		{"serve -serve-account ab:" + secret, exitUsage, "3 to 24 lower-case"},
		{"serve -serve-account Abc:" + secret, exitUsage, "3 to 24 lower-case"},
		{"serve -serve-account abc:" + secret + "!", exitUsage, "not Base64"},
		{"serve -serve-account abc:", exitUsage, "not Base64"},
		{"serve -serve-account abc:" + secret + " -serve-account abc:" + secret, exitUsage, "abc is there twice"},
		{"serve -cert " + empty, exitUsage, "both -cert and -key"},
		{"serve -key " + empty, exitUsage, "both -cert and -key"},
		{"serve -cert " + empty + " -key " + empty, exitFailure, "PEM files that belong together"},
		{"serve -addr 10001", exitUsage, "not host:port"},
		{"serve -addr 127.0.0.1:65536", exitUsage, "not host:port"},
		{"serve -addr :10001", exitUsage, "-public"},
		{"serve -addr 0.0.0.0:10001", exitUsage, "-public"},
		{"serve -public", exitUsage, "-public needs an account"},
		{"serve -data " + empty, exitFailure, "not a directory"},
		{"serve -data " + foreign, exitFailure, "nothing was changed: move the file away"},
		{"serve -data " + inUse, exitFailure, "in use by process " + strconv.Itoa(os.Getpid()) + ": stop it, or use another directory"},
		{"serve -faults get:sleepy", exitUsage, "-faults: "},
		{"serve -limit money=1", exitUsage, "-limit: "},
		{"serve -addr " + taken.Addr().String(), exitFailure, "address already in use; end what listens there"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			p := prepare(t.Context(), strings.Fields(c.args)...)
			var out, errs bytes.Buffer
			p.Stdout, p.Stderr = &out, &errs
			_ = p.Run() // its status tells
			text := errs.String()
			if got := p.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if !strings.HasPrefix(text, "millrace: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.Contains(text, c.says) {
				t.Errorf("it said %q, want one line with %q", text, c.says)
			}
			if strings.Contains(text, secret) {
				t.Errorf("it told a key: %q", text)
			}
			if out.Len() > 0 {
				t.Errorf("on standard output: %s", &out)
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
		t.Error(client.URL())
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// certificateFiles are a certificate for this machine and its key, and what makes a
// client trust it.
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

// TestDataOutlivesTheProgram sends a message, kills the program, damages copies, and finds
// in one what was sent and in the others that something is wrong.
func TestDataOutlivesTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "-data", dir)
	if got, want := p.value(t, "data"), dir+": 0 messages in 0 queues"; got != want {
		t.Errorf("data %q, want %q", got, want)
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
	if _, status := p.end(t); status == exitOK {
		t.Error("it was not killed")
	}
	torn := copyWith(t, dir, "another order", "another")

	p = start(t, "-data", dir)
	if got, want := p.value(t, "data"), dir+": 2 messages in 1 queue"; got != want {
		t.Errorf("data %q, want %q", got, want)
	}
	orders, done = p.queue(t, "orders")
	defer done()
	got, err := orders.DequeueMessage(t.Context(), nil)
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].MessageText != "one order" {
		t.Errorf("%+v, %v", got.Messages, err)
	}
	p.signal(t)
	if rest, status := p.end(t); status != exitOK {
		t.Errorf("status %d and %q", status, rest)
	}

	p = start(t, "-data", torn)
	if got, want := p.value(t, "data"), torn+": 1 message in 1 queue; the log ends in the middle of a commit, as after a kill or a power cut; if the disk lost its end, what it had may have been acknowledged"; got != want {
		t.Errorf("data %q, want %q", got, want)
	}
	p = start(t, "-data", copyWith(t, dir, "one order", "ONE ORDER"))
	if got := p.value(t, "damage"); !strings.Contains(got, "message 1") || !strings.Contains(got, "quarantined") {
		t.Errorf("damage %q", got)
	}
}

// queue is a queue of the program, by azqueue, and what to call when it is no longer
// used.
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

// copyWith copies a directory in which a text is no longer what it was.
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

// TestTroubleOnDemand has the second put refused.
func TestTroubleOnDemand(t *testing.T) {
	t.Parallel()
	p := start(t, "-faults", "put:503@#2", "-seed", "7", "-limit", "requests=1000")
	if got, want := p.value(t, "faults"), "PutMessage:503@#2 (again with -seed 7)"; got != want {
		t.Errorf("faults %q, want %q", got, want)
	}
	if got, want := p.value(t, "limits"), "requests=1000 a second"; got != want {
		t.Errorf("limits %q, want %q", got, want)
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
			t.Errorf("put number %d: %v", n+1, err)
		}
	}
}
