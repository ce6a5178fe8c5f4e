package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent/keda"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parsed(t *testing.T, text string) *agentfile.File {
	t.Helper()
	f, err := agentfile.Parse(filepath.Join(t.TempDir(), "agent.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// the program has access to the queues, measures, decides and tells the platform.
func TestTheProgramTellsKEDAWhatItDecides(t *testing.T) {
	engine := must(localqueue.New(nil))
	account, err := must(emulator.New(engine, nil)).Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = account.Close() })
	t.Setenv(agentfile.Variable, account.ConnectionString())
	orders := engine.Queue(queue.Name{Account: "devstoreaccount1", Queue: "orders"})
	if err := orders.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := orders.Enqueue(t.Context(), "ship", nil); err != nil {
			t.Fatal(err)
		}
	}
	file := parsed(t, "pools:\n  orders:\n    queues: [orders]\n    policy: {to_zero: true, max: 3, slots: 1}\n")
	var asked []string
	read := func(_ context.Context, namespace, name string) (int, error) {
		asked = append(asked, namespace+"/"+name)
		return 0, nil
	}
	p, err := newProgram(file, deployments{"orders": {"jobs", "orders-worker"}}, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, l, nil) }()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	c := pb.NewExternalScalerClient(conn)
	trigger := &pb.ScaledObjectRef{Name: "orders", Namespace: "jobs", ScalerMetadata: map[string]string{"pool": "orders"}}
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := c.StreamIsActive(waiting, trigger)
	if err != nil {
		t.Fatal(err)
	}
	for active := false; !active; { // the number that was read, zero, may come first
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		active = got.GetResult()
	}
	got, err := c.GetMetrics(waiting, &pb.GetMetricsRequest{ScaledObjectRef: trigger, MetricName: keda.Metric})
	if err != nil || got.GetMetricValues()[0].GetMetricValue() < 1 {
		t.Errorf("got %v, %v, want at least one instance for 100 messages", got, err)
	}
	_ = conn.Close()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	p.close()
	if len(asked) != 1 || asked[0] != "jobs/orders-worker" {
		t.Errorf("asked for the replicas of %v, want those of jobs/orders-worker once", asked)
	}
}

func TestFileAndFlagsMustFit(t *testing.T) {
	t.Setenv(agentfile.Variable, "UseDevelopmentStorage=true")
	dir := t.TempDir()
	file := parsed(t, `
folder: `+dir+`
pools:
  orders: {queues: [orders]}
  emails: {queues: [emails], processes: {command: [./worker]}}
  mails: {queues: [mails], azure: /subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/shop/providers/Microsoft.App/containerApps/mails}
`)
	read := func(context.Context, string, string) (int, error) { return 0, errors.New("not to be asked") }
	_, err := newProgram(file, deployments{"emails": {"jobs", "emails"}, "others": {"jobs", "others"}}, read, slog.New(slog.DiscardHandler))
	for _, want := range []string{"add -deployment orders=", "pool emails has processes", "pool mails has azure", "-deployment others: the file has no such pool"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}

// run runs the command with arguments that do not work.
func run(t *testing.T, args ...string) (status int, said string) {
	t.Helper()
	var output strings.Builder
	status = command(t.Context(), args, &output)
	return status, output.String()
}

func TestWrongFlagsAreStatus2(t *testing.T) {
	for want, args := range map[string][]string{
		"got 0 files":                  nil,
		"got 2 files":                  {"a", "b"},
		"not defined":                  {"-nonsense", "a"},
		"want POOL=NAMESPACE/NAME":     {"-deployment", "orders", "a"},
		"no name of Kubernetes":        {"-deployment", "orders=Jobs/orders", "a"},
		"pool orders has two":          {"-deployment", "orders=a/b", "-deployment", "orders=c/d", "a"},
		"-tls-cert and -tls-key belon": {"-tls-cert", "cert", "a"},
		"-client-ca needs TLS":         {"-client-ca", "ca", "a"},
	} {
		status, said := run(t, args...)
		if status != 2 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%v: got status %d and %q, want 2 and one line with %s", args, status, said, want)
		}
	}
}

func TestHelpIsStatus0(t *testing.T) {
	status, said := run(t, "-help")
	for _, want := range []string{"Usage: millrace-keda [flags] FILE", "-deployment POOL=NAMESPACE/NAME", "-client-ca file"} {
		if status != 0 || !strings.Contains(said, want) {
			t.Errorf("got status %d and %q, want 0 and %s", status, said, want)
		}
	}
}

func TestFailuresAreStatus1(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("pools: {orders: {queues: [orders]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no such file":          {filepath.Join(t.TempDir(), "missing.yaml")},
		"does not run in a pod": {file},
		"-tls-cert missing.pem": {"-tls-cert", "missing.pem", "-tls-key", "missing.pem", file},
	} {
		if status, said := run(t, args...); status != 1 || !strings.Contains(said, want) {
			t.Errorf("%v: got status %d and %q, want 1 and %s", args, status, said, want)
		}
	}
}

// The arguments in the manifest are right, and fit its file.
func TestTheManifestFitsTheProgram(t *testing.T) {
	text, err := os.ReadFile("../../../../../deploy/keda/scaler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	var file *agentfile.File
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m struct {
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			args = c.Args
		}
		if text := m.Data["agent.yaml"]; text != "" {
			file = parsed(t, text)
		}
	}
	s, err := parse(args, io.Discard)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if s.file != "/etc/millrace/agent.yaml" || s.addr != ":9090" {
		t.Errorf("got %+v, want the mounted file and port 9090", s)
	}
	read := func(context.Context, string, string) (int, error) { return 0, nil }
	p, err := newProgram(file, s.deployments, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.close()
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
