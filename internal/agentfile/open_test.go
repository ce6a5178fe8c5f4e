package agentfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
)

// parse parses a file, which must be right.
func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// environment returns a Getenv.
func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// TestPoolsAreOpenedWhereTheirAccountsAre: locations come from a file, a variable, an address and the default.
func TestPoolsAreOpenedWhereTheirAccountsAre(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	path := filepath.Join(t.TempDir(), "location")
	if err := os.WriteFile(path, []byte(e.ConnectionString()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := parse(t, `
accounts:
  variable: {environment: HERE}
  kept: {file: `+path+`}
  plain: {address: "https://far.queue.core.windows.net"}
  unused: {environment: NOT_SET}
pools:
  orders:
    queues: [orders, plain/orders]
    beacons: [kept/control]
    policy: {max: 7}
  emails: {queues: [variable/emails]}
`)
	opened, err := f.Open(&Sources{Getenv: environment(map[string]string{"HERE": e.ConnectionString()})})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if len(opened.Pools) != 2 || opened.Pools[0].Name != "orders" || opened.Pools[0].Policy.Max != 7 || opened.Pools[0].Actuator != nil {
		t.Fatalf("got the pools %+v, want orders and emails without actuators", opened.Pools)
	}
	var got []string
	for _, p := range opened.Pools {
		for _, q := range append(p.Queues, p.Beacons...) {
			got = append(got, q.Name().String())
		}
	}
	if want := "devstoreaccount1/orders far/orders devstoreaccount1/control devstoreaccount1/emails"; strings.Join(got, " ") != want {
		t.Errorf("got the queues %s, want %s", got, want)
	}
	for _, q := range opened.Pools[1].Queues { // that of the variable can be reached
		if err := q.Create(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestTheDefaultAccountIsGivenOrInAVariableOrOnThisMachine(t *testing.T) {
	t.Parallel()
	f := parse(t, "pools: {orders: {queues: [orders]}}")
	for _, c := range []struct{ given, variable, want string }{
		{"https://given.queue.core.windows.net", "https://variable.queue.core.windows.net", "given/orders"},
		{"", "https://variable.queue.core.windows.net", "variable/orders"},
		{"", "", "devstoreaccount1/orders"},
	} {
		opened, err := f.Open(&Sources{Default: c.given, Getenv: environment(map[string]string{Variable: c.variable})})
		if err != nil {
			t.Fatal(err)
		}
		if got := opened.Pools[0].Queues[0].Name().String(); got != c.want {
			t.Errorf("%q and %q: got %s, want %s", c.given, c.variable, got, c.want)
		}
		opened.Close()
	}
}

// TestWrongLocationsAreSaidAtOnceWithoutThem: nothing is opened, and no error repeats a location.
func TestWrongLocationsAreSaidAtOnceWithoutThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := parse(t, `
accounts:
  missing: {environment: NOT_SET}
  wrong: {environment: WRONG}
  none: {file: `+filepath.Join(dir, "none")+`}
  empty: {file: `+write("empty", "\n")+`}
  long: {file: `+write("long", strings.Repeat("x", maxLocation+1))+`}
  lines: {file: `+write("lines", "AccountKey=S3cret\nAccountKey=S3cret\n")+`}
pools:
  orders: {queues: [orders, missing/orders, wrong/orders, none/orders, empty/orders, long/orders, lines/orders]}
`)
	_, err := f.Open(&Sources{Getenv: environment(map[string]string{"WRONG": "AccountName=x;AccountKey=S3cret", Variable: "S3cret"})})
	if err == nil {
		t.Fatal("got no error")
	}
	text := err.Error()
	for _, want := range []string{
		"the default account, of AZURE_STORAGE unless another location is given: ",
		"account missing: the environment variable NOT_SET is not set: put the location of the account into it",
		"account wrong: ", "account none: stat ", "must be one line with the location of the account",
		"account long: ", "has 65537 bytes: it must be one line", "account lines: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	if lines := strings.Count(text, "\n") + 1; lines != 7 || strings.Contains(text, "S3cret") {
		t.Errorf("got %d lines:\n%s\nwant 7, without a secret", lines, text)
	}
}

// TestTwoNamesOfOneQueueAreRefused: its depth would count twice.
func TestTwoNamesOfOneQueueAreRefused(t *testing.T) {
	t.Parallel()
	f := parse(t, "accounts: {here: {address: UseDevelopmentStorage=true}}\npools: {orders: {queues: [orders, here/orders]}}")
	_, err := f.Open(&Sources{Getenv: environment(nil)})
	if err == nil || err.Error() != "queues of pool orders: orders and here/orders are the same queue, devstoreaccount1/orders: name it once" {
		t.Errorf("got %v, want that they are the same", err)
	}
}

// TestTwoPoolsOnOneQueueAreRefused: each would count its messages, and start instances for them. However the account is written.
func TestTwoPoolsOnOneQueueAreRefused(t *testing.T) {
	t.Parallel()
	const key = ";AccountKey=c2VjcmV0"
	for name, location := range map[string]string{
		"an address":             "https://shop.queue.core.windows.net",
		"in capitals":            "HTTPS://Shop.QUEUE.core.windows.net/",
		"a signature":            "https://shop.queue.core.windows.net/?sv=2020-01-01&ss=q&srt=sco&sp=rp&se=2099-01-01T00:00:00Z&sig=eA%3D%3D",
		"a connection string":    "AccountName=shop;EndpointSuffix=core.windows.net" + key,
		"its own endpoint":       "QueueEndpoint=https://shop.z12.queue.storage.azure.net;AccountName=shop" + key,
		"a path, as an emulator": "QueueEndpoint=http://127.0.0.1:10001/shop;AccountName=shop" + key,
	} {
		f := parse(t, "accounts: {other: {environment: OTHER}}\npools:\n  orders: {queues: [emails, orders]}\n  parcels: {queues: [other/orders]}\n")
		opened, err := f.Open(&Sources{Default: "AccountName=shop" + key, Getenv: environment(map[string]string{"OTHER": location})})
		if err == nil {
			opened.Close()
			t.Errorf("%s: got no error, want that both pools have the queue", name)
			continue
		}
		for _, want := range []string{"queues of pool parcels: ", "other/orders is the queue orders of pool orders", "put it into one pool"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", name, err, want)
			}
		}
	}
	_, err := Parse("agent.yaml", []byte("pools:\n  orders: {queues: [emails, orders]}\n  parcels:\n    queues: [orders]\n    beacons: [emails]\n"))
	if want := "agent.yaml:4: pool parcels has the queue orders, which pool orders has already: "; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %q", err, want)
	}
}
