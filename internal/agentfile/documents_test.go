package agentfile

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/scaling"
)

// page reads a page of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commented matches a key with its default in a comment.
var commented = regexp.MustCompile(`(?m)^( *)# ([a-z_]+: \S+( +#.*)?)$`)

// TestTheExampleHasEveryKey: it is right, also with the keys that stand in comments, and has all of a policy.
func TestTheExampleHasEveryKey(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/agent.yaml")
	f, err := Parse("docs/agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Pools) != 2 || f.Pools[0].Processes == nil || len(f.Pools[0].Beacons) == 0 || f.Prices.InstanceHour == 0 || len(f.Accounts) == 0 {
		t.Errorf("got %+v, want an example with two pools, processes, beacons, prices and accounts", f)
	}
	for i, fields := 0, reflect.TypeFor[scaling.Policy](); i < fields.NumField(); i++ {
		if key := keyOf(fields.Field(i).Name); !regexp.MustCompile(`(?m)^ +(# )?` + key + `: `).MatchString(text) {
			t.Errorf("docs/agent.yaml has no %s", key)
		}
	}
	_, pools, _ := strings.Cut(text, "pools:\n") // two locations of one account would contradict each other
	head := strings.TrimSuffix(text, pools)
	if all, err := Parse("docs/agent.yaml", []byte(head+commented.ReplaceAllString(pools, "$1$2"))); err != nil || all.Pools[0].Policy.Slots != 64 {
		t.Errorf("with the keys that stand in comments: got %+v, %v; want them read", all, err)
	}
}

// TestThePageListsEveryKey of a file and of a policy, and no others.
func TestThePageListsEveryKey(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, one := range []string{"interval", "folder", "price", "accounts", "pools", "queues", "beacons", "policy", "processes", "azure"} {
		known[one] = true
	}
	for i, fields := 0, reflect.TypeFor[scaling.Policy](); i < fields.NumField(); i++ {
		known[keyOf(fields.Field(i).Name)] = true
	}
	_, tables, _ := strings.Cut(page(t, "docs/agent.md"), "## The file")
	tables, _, _ = strings.Cut(tables, "## Local processes")
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, one := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			if !known[one[1]] {
				t.Errorf("docs/agent.md lists %s, which is no key, or stands there twice", one[1])
			}
			delete(known, one[1])
		}
	}
	for one := range known {
		t.Errorf("docs/agent.md does not list %s", one)
	}
}

// TestTheCommentsOfTheExampleAreTheDefaults: a policy with them decides as an empty one.
func TestTheCommentsOfTheExampleAreTheDefaults(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/agent.yaml")
	_, policy, _ := strings.Cut(text, "    policy:\n")
	policy, _, _ = strings.Cut(policy, "    processes:\n")
	var lines []string
	for _, one := range commented.FindAllStringSubmatch(policy, -1) {
		lines = append(lines, "      "+one[2])
	}
	f, err := Parse("agent.yaml", []byte("pools:\n  orders:\n    queues: [orders]\n    policy:\n"+strings.Join(lines, "\n")))
	if err != nil || len(lines) < 4 {
		t.Fatalf("got %d lines, %v; want the keys in comments", len(lines), err)
	}
	// A history in which every field matters: a backlog, nobody who reports, and a day before.
	if got, want := decisions(f.Pools[0].Policy), decisions(scaling.Policy{}); !reflect.DeepEqual(got, want) {
		t.Errorf("with the defaults of the comments: got %v, want %v", got, want)
	}
}

// decisions returns how many instances a policy calls for at several backlogs.
func decisions(p scaling.Policy) (wanted []int) {
	for _, depth := range []int64{0, 1, 100, 10_000, 1_000_000} {
		h := scaling.History{{Instances: 2, Depth: scaling.Known(depth), Visible: scaling.Known(depth)}}
		wanted = append(wanted, p.Decide(h).Wanted)
	}
	return wanted
}
