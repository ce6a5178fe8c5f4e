package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// configure writes a file of an agent into a folder of its own, and returns its path.
func configure(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAgentRefusesFlagsThatContradict(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                    "agent: missing -config: write millrace agent -config FILE",
		"x":                                   `"x" is not a flag`,
		"-config x -for 5m":                   "-for is how long a dry run takes: add -dry-run",
		"-config x -dry-run -for -5m":         "-for -5m0s is negative",
		"-config x -dry-run -for 5":           "missing unit, write 5s",
		"-config x -dry-run -leave":           "a dry run has no instances to leave",
		"-config x -replay y -dry-run":        "-replay asks no account",
		"-config x -replay y -account @z":     "-replay asks no account",
		"-config x -pool orders":              "-pool chooses the policy for -replay",
		"-config x -drain y -dry-run":         "-drain only ends instances",
		"-config x -drain ../y":               `-drain "../y" is not the name of a pool`,
		"-config x -drain .":                  `-drain "." is not the name of a pool`,
		"-config x -drain y/":                 `-drain "y/" is not the name of a pool`,
		"-config x -control orders":           "not defined: -control",
		"-config x -dry-run -account @/none/": "no such file or directory",
	} {
		status := exitUsage
		if strings.Contains(want, "no such file") {
			args = strings.Replace(args, "-config x", "-config "+configure(t, "pools: {orders: {queues: [orders]}}"), 1)
		}
		invocation{}.fails(t, status, []string{want}, append([]string{"agent"}, strings.Fields(args)...)...)
	}
	invocation{}.fails(t, exitUsage, []string{"must not be empty"}, "agent", "-config", "")
	invocation{}.fails(t, exitUsage, []string{"must not be empty"}, "agent", "-config", "x", "-drain", "")
}

// TestAgentSaysAllThatIsWrongWithItsFile: one error is the one line; several have a line each, and the last line counts them.
func TestAgentSaysAllThatIsWrongWithItsFile(t *testing.T) {
	t.Parallel()
	invocation{}.fails(t, exitFailure, []string{"no such file or directory"}, "agent", "-config", filepath.Join(t.TempDir(), "none"))
	path := configure(t, "pools: {orders: {queue: [orders], queues: [orders]}}")
	invocation{}.fails(t, exitFailure, []string{path + `:1: pool orders has no key "queue", did you mean queues?`}, "agent", "-config", path)
	path = configure(t, "interval: 5\npools: {orders: {queue: [orders]}}\n")
	r := invocation{}.call(t, "agent", "-config", path)
	lines := strings.Split(r.errs, "\n")
	if r.status != exitFailure || r.out != "" || len(lines) != 5 || !strings.HasPrefix(lines[0], path+":1: interval 5 has no unit") ||
		!strings.HasPrefix(lines[1], path+":2: ") || lines[3] != "millrace: agent: "+path+": 3 errors, listed above" {
		t.Errorf("got %+v, want status 1 and three errors in lines of their own", r)
	}
}

// TestAgentSaysWhichLocationsAreWrong: without repeating them.
func TestAgentSaysWhichLocationsAreWrong(t *testing.T) {
	t.Parallel()
	path := configure(t, "accounts: {east: {environment: EAST}, west: {environment: WEST}}\npools: {orders: {queues: [east/orders, west/orders]}}\n")
	v := invocation{env: map[string]string{"WEST": "AccountName=x;AccountKey=S3cret"}}
	r := v.call(t, "agent", "-config", path)
	if r.status != exitFailure || strings.Contains(r.errs, "S3cret") || !strings.Contains(r.errs, "account east: the environment variable EAST is not set") ||
		!strings.Contains(r.errs, "account west: ") || !strings.HasSuffix(r.errs, path+": 2 errors, listed above\n") {
		t.Errorf("got %+v, want both accounts, without their locations", r)
	}
	v.env = map[string]string{accountVariable: "AccountName=x;AccountKey=S3cret"}
	v.fails(t, exitFailure, []string{"the default account"}, "agent", "-config", configure(t, "pools: {orders: {queues: [orders]}}"))
}

// bubble is an agent over a queue in memory, in a synctest bubble.
type bubble struct {
	t         *testing.T
	queue     queue.Manager
	out, errs strings.Builder
	run       *agentRun
}

// newBubble makes one of pools with these queues, whose file is text. Unless wrap is nil, the agent sees the queue through it.
func newBubble(t *testing.T, s *agentSettings, text string, wrap func(queue.Queue) queue.Queue) *bubble {
	t.Helper()
	file, err := agentfile.Parse("agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b := &bubble{t: t}
	account := must(localqueue.New(nil)).Account("shop")
	if b.queue, err = account.Open("orders"); err != nil {
		t.Fatal(err)
	}
	if err := b.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var pools []agent.Pool
	for _, p := range file.Pools {
		q := queue.Queue(b.queue)
		if wrap != nil {
			q = wrap(q)
		}
		pools = append(pools, agent.Pool{Name: p.Name, Queues: []queue.Queue{q}, Policy: p.Policy})
	}
	c := &console{out: output{&b.out}, err: &b.errs}
	finish, halt := context.WithCancel(t.Context())
	t.Cleanup(halt)
	b.run = &agentRun{settings: s, console: c, file: file, pools: pools, out: &lockedWriter{to: c.out}, err: &lockedWriter{to: c.err}, finish: finish, halt: halt}
	return b
}

// put puts jobs on the queue.
func (b *bubble) put(n int) {
	b.t.Helper()
	for range n {
		if _, err := b.queue.Enqueue(b.t.Context(), "job", nil); err != nil {
			b.t.Fatal(err)
		}
	}
}

// dryFile is that of a dry run.
const dryFile = `
interval: 10s
price: {instance_hour: 0.05, transactions: 0.004}
pools:
  orders:
    queues: [orders]
    policy: {max: 5, target: 1m, slots: 4, handling: 10s}
`

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("MILLRACE_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestAnInterruptedDryRunHasItsSummary: so far.
func TestAnInterruptedDryRunHasItsSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{dryRun: true, length: time.Hour}, dryFile, nil)
		ctx, interrupt := context.WithTimeout(t.Context(), 95*time.Second)
		defer interrupt()
		err := b.run.Run(ctx)
		if !errors.As(err, new(interruption)) || err.Error() != "interrupted after 1m35s of 1h" {
			t.Errorf("got %v, want an interruption after 1m35s", err)
		}
		for _, want := range []string{"In 1m35s this would have been done:\n", "Measuring takes 8,640 requests a day at this rate, for 0.0035.\n"} {
			if !strings.Contains(b.out.String(), want) {
				t.Errorf("got\n%s\nwant %q in it", &b.out, want)
			}
		}
	})
}

// TestPoolsWithoutPricesHaveASum, and what things cost is said to be unknown.
func TestPoolsWithoutPricesHaveASum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{dryRun: true, length: time.Minute}, "pools:\n  orders: {queues: [orders]}\n  emails: {queues: [emails]}\n", nil)
		b.put(1)
		if err := b.run.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(b.out.String(), "done:\n\n")
		const want = `  pool    up  down  instances  instance-hours  requests  late
  orders  0   0     1          0.0139          12        0s
  emails  0   0     1          0.0139          12        0s
  in all  0   0     2          0.0278          24        0s

Late is for how long the oldest message had waited longer than the target, with the instances that there are.
Measuring takes 34,560 requests a day at this rate.
What that costs is not known: write price into the file, with instance_hour and transactions.
`
		if table != want {
			t.Errorf("got\n%s\nwant\n%s", table, want)
		}
	})
}

// broken is a queue that fails while it is told to.
type broken struct {
	queue.Queue
	is *atomic.Bool
}

var errBroken = errors.New("the cable is unplugged")

func (q broken) Properties(ctx context.Context) (queue.Properties, error) {
	if q.is.Load() {
		return queue.Properties{}, errBroken
	}
	return q.Queue.Properties(ctx)
}

func (q broken) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	if q.is.Load() {
		return nil, errBroken
	}
	return q.Queue.Peek(ctx, n)
}

// TestAnOutageIsSaidOnceAndItsEnd: not at each measurement.
func TestAnOutageIsSaidOnceAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var is atomic.Bool
		b := newBubble(t, &agentSettings{dryRun: true, length: 10 * time.Minute}, dryFile, func(q queue.Queue) queue.Queue { return broken{q, &is} })
		time.AfterFunc(65*time.Second, func() { is.Store(true) })
		time.AfterFunc(305*time.Second, func() { is.Store(false) })
		if err := b.run.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(b.errs.String(), "\n")
		slices.Sort(lines) // those of one measurement are in any order
		golden(t, "agent-outage.txt", strings.Join(lines, ""))
	})
}

// TestAgentPrintsJSON: an object for each decision, and one for each pool at the end.
func TestAgentPrintsJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{dryRun: true, length: 35 * time.Second, asJSON: true}, dryFile, nil)
		b.put(100)
		if err := b.run.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.out.String()), "\n")
		if len(lines) != 5 {
			t.Fatalf("got %d lines, want four decisions and a summary:\n%s", len(lines), &b.out)
		}
		for _, line := range lines[:4] {
			var d agent.Decided
			if err := json.Unmarshal([]byte(line), &d); err != nil || d.Pool != "orders" || !d.DryRun || d.Decision.Why == "" || d.Sample.Depth.Or(0) != 100 {
				t.Errorf("got %s, %v; want a decision about 100 jobs", line, err)
			}
		}
		var last struct {
			Pool    string
			Summary agent.Summary
		}
		if err := json.Unmarshal([]byte(lines[4]), &last); err != nil || last.Pool != "orders" || last.Summary.Decisions != 4 {
			t.Errorf("got %s, %v; want the summary of four decisions", lines[4], err)
		}
	})
}

// TestAnOutputThatFailsEndsTheAgent: nobody would see what it does.
func TestAnOutputThatFailsEndsTheAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{}, dryFile, nil)
		b.run.out = output{brokenOutput{io.ErrClosedPipe}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.run.Run(ctx); !closedPipe(err) || ctx.Err() != nil {
			t.Errorf("got %v, want that the output is closed", err)
		}
	})
}

// late is an actuator that takes two seconds, says what it does, and fails at first, for two reasons.
type late struct {
	log   *slog.Logger
	n     atomic.Int64
	tried atomic.Bool
}

func (a *late) Instances(context.Context) (int, error) { return int(a.n.Load()), nil }

func (a *late) Scale(_ context.Context, n int) error {
	time.Sleep(2 * time.Second)
	if !a.tried.Swap(true) {
		return errors.Join(errors.New("the disk is full"), errors.New("the moon is full"))
	}
	a.log.Info("instance started", "instance", n)
	a.n.Store(int64(n))
	return nil
}

// TestLinesAreInOrder: of time, and a reason comes before what follows from it. One error is one line.
func TestLinesAreInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &agentSettings{}, dryFile, nil)
		b.run.err = b.run.out
		b.run.pools[0].Actuator = &late{log: slog.New(&agentLog{out: b.run.err}).With("pool", "orders")}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		time.AfterFunc(15*time.Minute+time.Second, func() { b.put(200) })
		if err := b.run.Run(ctx); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(b.out.String(), "Ctrl-C.\n")
		text, _, _ = strings.Cut(text, "In 1h this")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if !slices.IsSortedFunc(lines, func(a, b string) int {
			return strings.Compare(a[:len("2000-01-01T00:00:00Z")], b[:len("2000-01-01T00:00:00Z")])
		}) {
			t.Errorf("got\n%s\nwant the lines in the order of their times", text)
		}
		for i, want := range []string{"0 → 1: ", "scale to 1: the disk is full; the moon is full; how many", "instance started (instance 1)", "0 → 1: ", "it works again: scale"} {
			if i >= len(lines) || !strings.Contains(lines[i], want) {
				t.Errorf("line %d: got\n%s\nwant %q", i+1, text, want)
			}
		}
		started, decided := strings.Index(text, "instance started (instance 5)"), strings.Index(text, "1 → 5: ")
		if decided < 0 || started < decided {
			t.Errorf("got\n%s\nwant the decision for 5, and then its start", text)
		}
	})
}

// TestAgentOpensTheAccountsOfItsFile: the default one is that of -account.
func TestAgentOpensTheAccountsOfItsFile(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := invocation{env: map[string]string{"EAST": location}}
	for _, name := range []string{"orders", "parcels"} {
		on(location).ok(t, "create", name)
		on(location).ok(t, "put", name, "1", "2", "3")
	}
	path := configure(t, "folder: state\naccounts: {east: {environment: EAST}}\npools:\n  near: {queues: [orders]}\n  far: {queues: [east/parcels]}\n")
	out := v.ok(t, "agent", "-config", path, "-account", location, "-dry-run", "-for", "1s", "-json")
	for _, pool := range []string{"near", "far"} {
		if !strings.Contains(out, `{"pool":`+strconv.Quote(pool)+`,"sample":`) || !strings.Contains(out, `"depth":3`) {
			t.Errorf("got\n%s\nwant a decision about three jobs of pool %s", out, pool)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run has made a folder: got %v", err)
	}
}

// A pool of Azure has its actuator, and is named at the start. Without a valid credential nothing is asked.
func TestAgentScalesAResourceOfAzure(t *testing.T) {
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "none of them")
	const id = "/subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/shop/providers/Microsoft.App/containerApps/orders"
	path := configure(t, "pools: {orders: {queues: [orders], azure: "+id+"}}")
	invocation{}.fails(t, exitFailure, []string{"pool orders: container app orders in group shop: find a credential: "}, "agent", "-config", path)

	t.Setenv("AZURE_TOKEN_CREDENTIALS", "AzureCLICredential")
	file, err := agentfile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r := &agentRun{settings: &agentSettings{}, file: file, out: &out, pools: []agent.Pool{{
		Name: "orders", Queues: []queue.Queue{must(localqueue.New(nil)).Queue(queue.Name{Account: "shop", Queue: "orders"})},
	}}}
	if err := r.start(); err != nil || r.pools[0].Actuator == nil {
		t.Errorf("got the actuator %v, %v; want one", r.pools[0].Actuator, err)
	}
	r.printStartup()
	if want := "  orders: jobs of shop/orders; Azure " + id + "\n"; !strings.Contains(out.String(), want) {
		t.Errorf("got %s, want %s in it", &out, want)
	}
}
