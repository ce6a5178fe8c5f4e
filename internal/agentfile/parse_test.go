package agentfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

const everything = `# a comment
interval: 5s
folder: state
price: {instance_hour: 0.05, transactions: 0.004}
accounts:
  east:
    environment: AZURE_EAST
  west: {file: /run/secrets/west}
  south:
    address: https://south.queue.core.windows.net
pools:
  orders:
    queues: [orders-0, east/orders-1]
    beacons:
      - orders-control
    policy:
      min: 2
      to_zero: false
      max: 10
      target: 1m30s
      utilization: 0.75
    processes:
      command: [./bin/worker, -queue, "", 7]
      environment:
        LEVEL: info
        EMPTY: ""
      grace: 30s
      log: logs/orders.log
  emails:
    queues: [emails]
    processes: {command: [worker]}
  mails:
    queues: [mails]
    azure: ` + app + `
`

const app = "/subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/shop/providers/Microsoft.App/containerApps/mails"

// TestEverythingIsRead: each key has its value, and paths are relative to the folder of the file.
func TestEverythingIsRead(t *testing.T) {
	got, err := Parse("etc/agent.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Interval: 5 * time.Second,
		Folder:   filepath.Join("etc", "state"),
		Prices:   agent.Prices{InstanceHour: 0.05, Requests: metered.Price{Class1: 0.004}},
		Accounts: []Account{{Name: "east", Environment: "AZURE_EAST"}, {Name: "west", File: "/run/secrets/west"}, {Name: "south", Address: "https://south.queue.core.windows.net"}},
		Pools: []Pool{
			{
				Name: "orders", Queues: []Queue{{"", "orders-0"}, {"east", "orders-1"}}, Beacons: []Queue{{"", "orders-control"}},
				Policy: scaling.Policy{Min: 2, Max: 10, Target: 90 * time.Second, Utilization: 0.75},
				Processes: &Processes{
					Command: []string{filepath.Join("etc", "bin", "worker"), "-queue", "", "7"}, Environment: []string{"LEVEL=info", "EMPTY="},
					Grace: 30 * time.Second, Log: filepath.Join("etc", "logs", "orders.log"),
				},
			},
			{Name: "emails", Queues: []Queue{{"", "emails"}}, Processes: &Processes{Command: []string{"worker"}}},
			{Name: "mails", Queues: []Queue{{"", "mails"}}, Azure: app},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// TestAFileOfPoolsIsEnough: everything else is optional.
func TestAFileOfPoolsIsEnough(t *testing.T) {
	got, err := Parse("agent.yaml", []byte("pools: {orders: {queues: [orders]}}"))
	if want := (&File{Pools: []Pool{{Name: "orders", Queues: []Queue{{"", "orders"}}}}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// TestAProgramBesideTheFileStaysAPath: without its separator it would be looked for in PATH.
func TestAProgramBesideTheFileStaysAPath(t *testing.T) {
	for program, want := range map[string]string{"./worker": "./worker", "bin/worker": "bin/worker", "worker": "worker", "/bin/worker": "/bin/worker", "../worker": "../worker"} {
		f, err := Parse("agent.yaml", fmt.Appendf(nil, "folder: x\npools: {orders: {queues: [orders], processes: {command: [%s]}}}", program))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Pools[0].Processes.Command[0]; got != filepath.FromSlash(want) {
			t.Errorf("%s: got %s, want %s", program, got, want)
		}
	}
}

// TestEveryFieldOfAPolicyHasItsKey: a field that is added is a key, and its type is one that a file can have.
func TestEveryFieldOfAPolicyHasItsKey(t *testing.T) {
	for i, fields := 0, reflect.TypeFor[scaling.Policy](); i < fields.NumField(); i++ {
		field := fields.Field(i)
		text := map[string]string{"int": "3", "bool": "true", "float64": "0.5", "time.Duration": "3s"}[field.Type.String()]
		if text == "" {
			t.Fatalf("%s: got the type %v, which a file cannot have", field.Name, field.Type)
		}
		p, to := &parser{}, new(scaling.Policy)
		v := reflect.ValueOf(to).Elem().Field(i)
		p.value(v, keyOf(field.Name))(p.load([]byte(text)))
		if len(p.problems) > 0 || v.IsZero() {
			t.Errorf("%s: got %+v, %v; want the field set", keyOf(field.Name), to, p.problems)
		}
	}
	for name, want := range map[string]string{"DownAfter": "down_after", "CPU": "cpu"} {
		if got := keyOf(name); got != want {
			t.Errorf("%s: got the key %s, want %s", name, got, want)
		}
	}
}

// pool returns a file with one pool and these lines in it.
func pool(lines ...string) string {
	return "pools:\n  orders:\n    queues: [orders]\n    " + strings.Join(lines, "\n    ") + "\n"
}

// TestWhatIsWrongIsSaidWithItsLine: every error names the file, the line, what is wrong and what is allowed.
func TestWhatIsWrongIsSaidWithItsLine(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"empty", " \n# nothing\n", "agent.yaml: it is empty: write pools and what they need; see https://github.com/millrace/millrace/blob/main/docs/agent.md"},
		{"two documents", "pools: {}\n---\npools: {}\n", "agent.yaml: it is not one document of YAML: yaml: expected single document, found multiple"},
		{"not text", "pools:\n\xff", "agent.yaml:2: it has bytes that are no text in UTF-8"},
		{"control", "pools:\n\n  a\x00b: 1", "agent.yaml:3: it has bytes that are no text in UTF-8"},
		{"syntax", "pools:\n  orders: [a\n  emails: b\n", "agent.yaml:3: it is no YAML: did not find expected ',' or ']'"},
		{"tab", "pools:\n\torders:\n", "agent.yaml:2: it is no YAML: found character that cannot start any token: indent with spaces, not with tabs"},
		{"unknown anchor", "pools: *p\n", "agent.yaml:1: it is no YAML: unknown anchor 'p' referenced"},
		{"list", "- pools\n", "agent.yaml:1: the file is a list: write key: value on lines of their own"},
		{"scalar", "pools\n", "agent.yaml:1: the file is one value: write key: value on lines of their own"},
		{"no pools", "interval: 5s\n", "agent.yaml:1: the file has no pools: write pools, and the name of each with its queues"},
		{"null pools", "pools:\n", "agent.yaml:1: pools has no value: write key: value on lines of their own"},
		{"empty pools", "pools: {}\n", "agent.yaml:1: pools is empty: write the name of each pool with its queues"},
		{"unknown key", "intervall: 5s\n" + pool(), `agent.yaml:1: the file has no key "intervall", did you mean interval?; the keys are interval, folder, price, accounts, pools`},
		{"far key", "frobnicate: 5s\n" + pool(), `agent.yaml:1: the file has no key "frobnicate"; the keys are interval, folder, price, accounts, pools`},
		{"swapped", pool("plocesses: {}"), `agent.yaml:4: pool orders has no key "plocesses", did you mean processes?; the keys are queues, beacons, policy, processes, azure`},
		{"twice", "interval: 5s\n" + pool("beacons: [orders-control]") + "interval: 6s\n", `agent.yaml:6: the file has the key "interval" already on line 1`},
		{"key is a list", "[a]: 5s\n" + pool(), "agent.yaml:1: the file has a key that is no word"},
		{"merge", "pools:\n  orders:\n    <<: {queues: [orders]}\n    queues: [orders]", `agent.yaml:3: pool orders has no key "<<"; the keys are queues, beacons, policy, processes, azure`},
		{"alias", "pools:\n  orders: &o\n    queues: [orders]\n  emails: *o\n", "agent.yaml:4: pool emails is an alias, which is not supported: write the value itself"},
		{"no unit", "interval: 5\n" + pool(), "agent.yaml:1: interval 5 has no unit: write 5s for seconds"},
		{"no duration", "interval: soon\n" + pool(), `agent.yaml:1: interval is "soon": write a duration with a unit, such as 500ms, 30s, 5m or 24h`},
		{"negative", "interval: -5s\n" + pool(), "agent.yaml:1: interval is -5s, which is negative"},
		{"zero", "interval: 0s\n" + pool(), "agent.yaml:1: interval is 0s: write more than zero, or leave the key out for the default"},
		{"policy zeros", pool("policy:", "  min: 0", "  max: 0", "  target: 0s", "  utilization: 0.0", "  spare: 0", "  forecast: false"), "agent.yaml:5: min is 0: write to_zero: true instead, so that the last instance may go too\n" +
			"agent.yaml:6: max is 0: write more than zero, or leave the key out for the default\nagent.yaml:7: target is 0s: write more than zero, or leave the key out for the default\n" +
			"agent.yaml:8: utilization is 0.0: write more than zero, or leave the key out for the default"},
		{"grace zero", "folder: x\n" + pool("processes: {command: [x], grace: 0}"), "agent.yaml:5: grace is 0: write more than zero, or leave the key out for the default"},
		{"duration list", "interval: [5s]\n" + pool(), "agent.yaml:1: interval is a list: write a duration with a unit, such as 500ms, 30s, 5m or 24h"},
		{"folder empty", "folder: \"\"\n" + pool(), "agent.yaml:1: folder is empty: write a path"},
		{"price", "price: {instance_hour: $1}\n" + pool(), `agent.yaml:1: instance_hour is "$1": write a decimal number without a currency, such as 0.05`},
		{"price exponent", "price: {transactions: 1e999999}\n" + pool(), `agent.yaml:1: transactions is "1e999999": write a decimal number without a currency, such as 0.05`},
		{"account name", "accounts: {East: {file: x}}\n" + pool(), `agent.yaml:1: an account cannot be called "East": a name has up to 63 lower-case letters, digits and hyphens, and begins and ends with none of the latter`},
		{"account without", "accounts: {east: {}}\n" + pool(), "agent.yaml:1: account east has 0 locations: write one of environment, file and address"},
		{"account with two", "accounts: {east: {file: x, environment: Y}}\n" + pool(), "agent.yaml:1: account east has 2 locations: write one of environment, file and address"},
		{"account variable", "accounts: {east: {environment: A=b}}\n" + pool(), `agent.yaml:1: environment is "A=b": write only the name of an environment variable`},
		{"account address", "accounts: {east: {address: \"http://x\"}}\n" + pool(), "agent.yaml:1: address is none without a secret: write https://ACCOUNT.queue.core.windows.net, or UseDevelopmentStorage=true for the server on this machine"},
		{"pool name", "pools: {a/b: {queues: [orders]}}", `agent.yaml:1: a pool cannot be called "a/b": a name has up to 63 lower-case letters, digits and hyphens, and begins and ends with none of the latter`},
		{"pool without queues", "pools: {orders: {policy: {max: 3}}}", "agent.yaml:1: pool orders has no queues: write queues, such as [orders]"},
		{"pool empty", "pools:\n  orders:\n", "agent.yaml:2: pool orders has no value: write key: value on lines of their own"},
		{"queues a word", "pools: {orders: {queues: orders}}", "agent.yaml:1: queues of pool orders is one value: write a list, such as [orders]"},
		{"queues empty", "pools: {orders: {queues: []}}", "agent.yaml:1: queues of pool orders is empty: write a list, such as [orders]"},
		{"queue twice", "pools: {orders: {queues: [orders, orders]}}", "agent.yaml:1: queues of pool orders has orders twice"},
		{"queue name", "pools: {orders: {queues: [Orders]}}", `agent.yaml:1: queues of pool orders has "Orders": a name of a queue has 3 to 63 lower-case letters, digits and single hyphens, and begins and ends with a letter or digit`},
		{"queue null", "pools: {orders: {queues: [~]}}", "agent.yaml:1: queues of pool orders has no value: write the name of a queue, or ACCOUNT/QUEUE"},
		{"queue account", "accounts: {east: {file: x}}\npools: {orders: {queues: [eats/orders]}}", `agent.yaml:2: queues of pool orders has "eats/orders", but the file has no account "eats", did you mean east?: write it under accounts, and where its location is`},
		{"policy key", pool("policy:", "  mx: 3"), "agent.yaml:5: the policy of pool orders has no key \"mx\", did you mean max?; the keys are " + strings.Join(policyKeys(), ", ")},
		{"policy number", pool("policy: {max: many}"), `agent.yaml:4: max is "many": write a whole number, such as 4`},
		{"policy fraction", pool("policy: {utilization: NaN}"), `agent.yaml:4: utilization is "NaN": write a number, such as 0.8`},
		{"policy truth", pool("policy: {to_zero: yes}"), `agent.yaml:4: to_zero is "yes": write true or false`},
		{"policy bounds", pool("policy:", "  target: 5m", "  min: 9", "  max: 3"), "agent.yaml:6: the policy of pool orders: min is 9 and max 3: min must not exceed max"},
		{"policy all", pool("policy:", "  utilization: 2", "  min: -1"), "agent.yaml:5: the policy of pool orders: utilization is 2: it must be above 0 and at most 1\nagent.yaml:6: the policy of pool orders: min is -1: it must not be negative"},
		{"policy words", pool("policy: {to_zero: true, min: 2}"), "agent.yaml:4: the policy of pool orders: min is 2 with to_zero: leave out one of them"},
		{"interval short", "interval: 500ms\n" + pool(), "agent.yaml:1: interval is 500ms: write 1s or more"},
		{"processes without folder", pool("processes: {command: [x]}"), "agent.yaml:4: processes of pool orders need a folder, in which the agent keeps which of them run: write folder beside pools"},
		{"processes without command", "folder: x\n" + pool("processes: {grace: 5s}"), "agent.yaml:5: processes of pool orders has no command: write a list of the program and its arguments, such as [./worker]"},
		{"command a word", "folder: x\n" + pool("processes: {command: ./worker}"), "agent.yaml:5: command is one value: write a list of the program and its arguments, such as [./worker, -queue, orders]"},
		{"command nothing", "folder: x\n" + pool(`processes: {command: [""]}`), "agent.yaml:5: command begins with nothing: write a list of the program and its arguments, such as [./worker, -queue, orders]"},
		{"environment", "folder: x\n" + pool(`processes: {command: [x], environment: {A=B: c}}`), `agent.yaml:5: environment has the variable "A=B": write NAME: value`},
		{"environment null", "folder: x\n" + pool(`processes: {command: [x], environment: {A: }}`), `agent.yaml:5: A has no value: write its value, or "" for an empty one`},
		{"azure id", pool("azure: orders"), `agent.yaml:4: azure of pool orders is "orders": it is not the id of a container app or a scale set: write /subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.App/containerApps/NAME or …/Microsoft.Compute/virtualMachineScaleSets/NAME, as az containerapp show or az vmss show print it with --query id`},
		{"azure list", pool("azure: [" + app + "]"), "agent.yaml:4: azure of pool orders is a list: write the id of a container app or a scale set"},
		{"azure and processes", "folder: x\n" + pool("azure: "+app, "processes: {command: [x]}"), "agent.yaml:4: pool orders has both processes and azure: write one of them"},
		{"azure twice", pool("azure: "+app) + "  mails: {queues: [mails], azure: " + strings.ToLower(app) + "}\n", "agent.yaml:5: azure of pool mails is that of pool orders: the two would undo each other's changes"},
		{"too large", strings.Repeat("#", MaxSize+1), "agent.yaml: it has more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("agent.yaml", []byte(c.file))
			if got != nil || err == nil || err.Error() != c.want {
				t.Errorf("got %v and the error\n%v\nwant\n%s", got, err, c.want)
			}
		})
	}
}

func policyKeys() (keys []string) {
	for i, fields := 0, reflect.TypeFor[scaling.Policy](); i < fields.NumField(); i++ {
		keys = append(keys, keyOf(fields.Field(i).Name))
	}
	return keys
}

// TestAllThatIsWrongIsSaidAtOnce, in the order of the lines.
func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	_, err := Parse("agent.yaml", []byte("pools:\n  orders:\n    queue: [orders]\n    policy:\n      max: x\ninterval: 5\naccounts: {A: {file: x}}\n"))
	var lines []int
	failed := (*Error)(nil)
	if errors.As(err, &failed) {
		for _, one := range failed.Problems {
			lines = append(lines, one.Line)
		}
	}
	if want := []int{3, 3, 5, 6, 7}; !reflect.DeepEqual(lines, want) {
		t.Errorf("got the lines %v of\n%v\nwant %v", lines, err, want)
	}
}

// TestSecretsAreRefusedAndNotRepeated, wherever they stand.
func TestSecretsAreRefusedAndNotRepeated(t *testing.T) {
	const location = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=S3cret=="
	const address = "https://shop.queue.core.windows.net/?sv=1&sig=S3cret"
	for _, file := range []string{
		"accounts: {shop: {address: \"" + location + "\"}}\n" + pool(),
		"accounts: {shop: {address: \"" + address + "\"}}\n" + pool(),
		"accounts: {shop: {environment: \"" + location + "\"}}\n" + pool(),
		"pools: {orders: {queues: [\"" + location + "\"]}}",
		"pools: {orders: {queues: [\"" + address + "/orders\"]}}",
		"folder: x\n" + pool("processes:", "  command: [./worker]", "  environment: {AZURE_STORAGE: \""+location+"\"}"),
		pool("azure: \"" + address + "\""),
		"folder: x\n" + pool("processes:", "  command: [./worker, -account, \""+address+"\"]"),
		"interval: \"" + location + "\"\n" + pool(),
		"\"" + location + "\": 1\n" + pool(),
		"pools: {\"" + address + "\": {queues: [orders]}}",
		"\"" + location + "\"",
	} {
		_, err := Parse("agent.yaml", []byte(file))
		if err == nil || !strings.Contains(err.Error(), "must not stand in the file") || strings.Contains(err.Error(), "S3cret") {
			t.Errorf("%s: got the error %v, want that it has a secret, without it", file, err)
		}
	}
}

func TestReadSaysWhatIsWrongWithTheFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: got %v, want that it does not exist", err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a folder: got no error")
	}
	path := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(path, []byte("folder: state\npools: {orders: {queues: [orders]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); err != nil || f.Folder != filepath.Join(dir, "state") {
		t.Errorf("got %+v, %v; want the folder state beside the file", f, err)
	}
	if err := os.WriteFile(path, []byte("polls: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+":1: ") {
		t.Errorf("got %v, want an error with the path and the line", err)
	}
}
