package main

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestCostPrintsAnExampleByDefault: with what it is for, its price named as an example, and the figures of
// every lever.
func TestCostPrintsAnExampleByDefault(t *testing.T) {
	t.Parallel()
	got := invocation{}.ok(t, "cost")
	for _, want := range []string{
		"1 instance × 200 loops, each polling every 1s, busy 2h a day, 30 days a month.\n0 messages a day, each of 1,024 bytes.\n",
		"$0.01 for 10,000 transactions (an example: give yours with -price).\n", "Idle for 22h a day", "79,200 times, for $2.3760 a month",
		"3 transactions, 2 of them its get and delete; in batches of 32 2.03125 and 1.03125",
		"  before                 475,200,000             0         0  $475.2000\n",
		"  1 loop when idle         2,376,000             0         0    $2.3760\n",
		"  push, no polls                   0             0         0    $0.0000\n",
		"  5s                            475,200  $0.4752\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("cost: got\n%s\nwant %q in it", got, want)
		}
	}
	if got := (invocation{}).ok(t, "cost", "-price", "0.004"); !strings.Contains(got, "$0.004 for 10,000 transactions (your price).") {
		t.Errorf("cost -price: got\n%s\nwant it called yours", got)
	}
	hours := invocation{}.ok(t, "cost", "-instances", "4", "-hour-price", "0.05", "-busy", "8h")
	for _, want := range []string{"4 instances × 200 loops", "$0.05 for an hour of an instance.\n", "  to blobs  instance-hours      a month\n", "           2,880  $1,526.4000\n", "           1,440"} {
		if !strings.Contains(hours, want) {
			t.Errorf("cost -hour-price: got\n%s\nwant %q in it", hours, want)
		}
	}
	foreign := regexp.MustCompile(`(?i:article|erratum)|[A-Z][a-z]+\.[A-Z]`)
	for _, text := range []string{got, hours, invocation{}.ok(t, "help", "cost")} {
		if found := foreign.FindString(text); found != "" {
			t.Errorf("got %q in\n%s\nwant no words that a user need not know", found, text)
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > 110 {
				t.Errorf("got a line of %d characters, want at most 110: %s", len([]rune(line)), line)
			}
		}
	}
}

// TestEveryFlagOfCostIsHeeded: each changes the figure that it should, in the table and in JSON.
func TestEveryFlagOfCostIsHeeded(t *testing.T) {
	t.Parallel()
	base := []string{"cost", "-json", "-messages-per-day", "1000000"}
	read := func(args ...string) (r costReport) {
		t.Helper()
		out := invocation{}.ok(t, append(base, args...)...)
		if strings.Count(out, "\n") != 1 {
			t.Errorf("%q: got %q, want one line", args, out)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	row := func(r costReport, levers string) costRow {
		t.Helper()
		for _, one := range r.Rows {
			if one.Levers == levers {
				return one
			}
		}
		t.Fatalf("got no row %q", levers)
		return costRow{}
	}
	first := read()
	if n := len(first.Rows); n != 12 || row(first, "before").Dollars != "599.266492723" || row(first, "before").MessageRequests != "124066492.723339718" || !first.Price.Example ||
		len(first.Intervals) != 5 || first.Intervals[1].Dollars != "0.4752" || first.Message.LifeBatched != "2.03125" || first.Message.LifeWoken != "4" {
		t.Errorf("cost -json: got %+v", first)
	}
	four := read("-instances", "4", "-fewer", "2", "-group", "40")
	if four.Bus != (costBus{Connections: 4, Published: "30000000", PublishedGrouped: "750000"}) || four.IdleSecondsADay != "79200" ||
		four.PollsOfALoopDay != "79200" || row(four, "fewerInstances").Name != "2 instances when idle" || row(four, "group").Name != "groups of 40" {
		t.Errorf("cost -json of four instances: got %+v", four)
	}
	if name := row(read("-compression", "2"), "group").Name; name != "groups of 32, compressed" {
		t.Errorf("the row of groups that are compressed: got %q", name)
	}
	for _, c := range []struct {
		args   string
		levers string
		want   string // dollars
	}{
		{"-instances 3", "before", "1638.293428146"}, {"-instances 3", "fewerInstances", "687.893428146"}, {"-instances 3", "fleet", "599.449541052"},
		{"-loops 1", "before", "63.716388724"}, {"-every 10s", "before", "115.670503255"}, {"-busy 24h", "before", "581.80841449"}, {"-busy 0", "before", "608.4"},
		{"-messages-per-day 0", "before", "475.2"}, {"-days 1", "before", "19.975549757"}, {"-price 0.1", "before", "5992.664927233"}, {"-bytes 65536 -loops 1", "before", "183.716388724"},
		{"-bytes 65536 -loops 1 -blob-price 0", "before", "63.716388724"}, {"-bus 7.5", "pushNoPolls", "69.18192818"}, {"-bus 7.5", "before", "599.266492723"},
		{"-group 10", "group", "525.17950174"}, {"-group 48", "group", "518.0675214"}, {"-group 100", "group", "518.294361457"}, {"-group 100 -compression 2.5", "group", "517.094361457"},
		{"-batch 4", "batch", "542.703428571"}, {"-idle-max 1m", "backOff", "138.549236351"}, {"-instances 4 -fewer 2", "fewerInstances", "1204.209934501"},
		{"-instances 4 -fewer 2 -hour-price 0.1", "fewerInstances", "1360.209934501"}, {"-embedded -messages-per-day 1000", "pushNoPolls", "0.093075423"}, {"-messages-per-day 1000", "pushNoPolls", "0.123073923"}, {"-safety 10s", "push", "61.91952818"}, {"", "all", "1.947325446"}, {"", "allNoPolls", "1.907725446"}, {"", "allWithoutPush", "1.986925446"},
	} {
		got := row(read(strings.Fields(c.args)...), c.levers).Dollars
		if a, b := rational(t, string(got)), rational(t, c.want); a.Cmp(b) != 0 {
			t.Errorf("%s, %s: got $%s, want %s", c.args, c.levers, got, c.want)
		}
		// The table has the same, rounded.
		shown := invocation{}.ok(t, append([]string{"cost", "-messages-per-day", "1000000"}, strings.Fields(c.args)...)...)
		if want := dollars(rational(t, c.want)); !strings.Contains(shown, " "+want+"\n") {
			t.Errorf("%s: got\n%s\nwant %s in it", c.args, shown, want)
		}
	}
}

func TestAbsurdNumbersAreRefused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-instances 0":                          "must be between 1 and 100,000",
		"-instances -1":                         "must be between 1 and 100,000",
		"-loops 1000000000000000000":            "must be between 1 and 100,000",
		"-loops 10000000000000000000000":        "must be between 1 and 100,000",
		"-loops many":                           "write a whole number",
		"-loops 1e3":                            "write a whole number",
		"-loops 2.5":                            "write a whole number",
		"-messages-per-day -5":                  "must be between 0 and 1,000,000,000,000",
		"-messages-per-day 1000000000000000000": "must be between 0 and",
		"-batch 33":                             "must be between 1 and 32",
		"-group 0":                              "must be between 1 and 65,536",
		"-group 65537":                          "must be between 1 and 65,536",
		"-bytes 0":                              "must be between 1 and",
		"-days 32":                              "must be between 1 and 31",
		"-every 0s":                             "must be between 1ms and 24h",
		"-every -1s":                            "must be between 1ms and 24h",
		"-every 25h":                            "must be between 1ms and 24h",
		"-every 1":                              "missing unit, write 1s",
		"-every 2000000h":                       "must be between 1ms and 24h",
		"-every 99999999h":                      "write a number with a unit",
		"-busy 24h1ns":                          "must be between 0s and 24h",
		"-idle-max 0":                           "must be between 1ms and 24h",
		"-safety 0":                             "must be between 1ms and 24h",
		"-price NaN":                            "write a decimal number",
		"-price Inf":                            "write a decimal number",
		"-price -0.01":                          "write a decimal number",
		"-price 1e9":                            "write a decimal number",
		"-price 1/3":                            "write a decimal number",
		"-price 0x1p-2":                         "write a decimal number",
		"-price .5":                             "write a decimal number",
		"-price 0.0000000001":                   "up to 9 decimals",
		"-price 1000001":                        "must be between 0 and 1,000,000",
		"-blob-price x":                         "write a decimal number",
		"-bus -1":                               "write a decimal number",
		"-compression 0":                        "must be between 1 and 1,000,000",
		"-compression 0.999":                    "must be between 1 and 1,000,000",
		"-fewer 2":                              "-fewer 2 is more than -instances 1",
		"orders":                                "is not a flag",
		"-messages 5":                           "did you mean -messages-per-day? see millrace help cost",
		"-hour-price x":                         "write a decimal number",
		"-nothing":                              "see millrace help cost",
	} {
		invocation{}.fails(t, exitUsage, []string{"millrace: cost: ", want}, append([]string{"cost"}, strings.Fields(args)...)...)
	}
	// The largest of all have a bill.
	if got := (invocation{}).ok(t, strings.Fields("cost -instances 100000 -loops 100000 -every 1ms -busy 0 -messages-per-day 1000000000000 -price 1000000 -days 31 -bytes 1073741824")...); !strings.Contains(got, " $2,678,421,700,000,000,000,000.0000\n") {
		t.Errorf("the largest numbers: got\n%s", got)
	}
}

func TestSpansAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", time.Hour: "1h", 20 * time.Hour: "20h",
		22 * time.Hour: "22h", time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 100 * time.Millisecond: "100ms",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestDecimals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b int64
		want string
	}{{0, 1, "0"}, {100, 1, "100"}, {1, 2, "0.5"}, {1, 3, "0.333333333"}, {2, 3, "0.666666667"}, {1200, 1, "1200"}, {1, 1_000_000_000_000, "0"}} {
		if got := decimal(big.NewRat(c.a, c.b), 9); got != c.want {
			t.Errorf("%d/%d: got %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
