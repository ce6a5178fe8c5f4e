package aztable_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/tabletest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestAzuriteConforms settles T-01, T-02, T-03, T-04, T-10 and T-11 for Azure Tables. What Azurite cannot show,
// TestTheFakeServiceConforms does.
func TestAzuriteConforms(t *testing.T) {
	location := azuritetest.TableConnectionString(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	fewerChecks(t)
	tabletest.Run(t, tabletest.Harness{
		Secrets: []string{azuritetest.Key},
		Quirks: tabletest.Quirks{
			PagesCrossPartitions: "Azurite ends a page at Top or 1,000 entities only",
			LargePages:           "Azurite ends a page at Top or 1,000 entities only",
			NoExponents:          "Azurite's filters know no exponents",
			CoarseTimes:          "Azurite compares times as JavaScript's Date, in milliseconds",
			BrokenText:           "Azurite decodes a body piece by piece and breaks the characters between two pieces",
			SmallUpdates:         "Azurite compares the JSON of an update with 1 MiB, in which bytes are Base64",
		},
		Open: func(t *testing.T, name string) table.Store {
			s, err := aztable.Open(location, name, &aztable.Options{Transport: &http.Client{Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	})
}

// fewerChecks makes the property test of the suite a quarter as long, because Azurite takes a millisecond and more for
// each of its thousands of calls.
func fewerChecks(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if before != checks.DefValue {
		return // somebody wants so many
	}
	set := func(n string) {
		if err := checks.Value.Set(n); err != nil {
			t.Fatal(err)
		}
	}
	set("25")
	t.Cleanup(func() { set(before) })
}

// TestTheFakeServiceConforms settles T-06 and T-07: it has pages of 4 MiB, the ends of partitions and empty pages with a token.
func TestTheFakeServiceConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("the conformance of two other stores runs")
	}
	tabletest.Run(t, tabletest.Harness{
		Bubble: true, Secrets: []string{azuritetest.Key},
		Open: func(t *testing.T, name string) table.Store { return newService().open(t, name, aztable.Options{}) },
	})
}
