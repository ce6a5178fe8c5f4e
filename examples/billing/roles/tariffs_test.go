package roles

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/examples/billing/records"
)

// Records with a tariff that does not exist are rejected with file, line and reason; the largest amounts are billed exactly.
func TestUnknownTariffsAreRejectedAndTheRestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var named []string
		p := w.start(Options{Roles: All, Group: 10, Rejected: func(batch string, uncharged []records.Rejection) {
			for _, r := range uncharged { // called from one goroutine at a time
				named = append(named, batch+" "+r.Error())
			}
		}}, nil)
		all := generate(1, 100)
		all[7].Tariff, all[42].Tariff = "nonsense", "none, \"really\""
		for r, err := range records.ReadPiece(strings.NewReader(
			"9000,big-1,2026-11-01T00:00:00Z,whale,"+all[0].Tariff+",1000000000000\n"+
				"9001,big-2,2026-11-01T00:00:00Z,whale,"+all[0].Tariff+",999999999999.999999999\n"), "big") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		w.ship(p.System, day1, all, 50)
		w.settle()
		p.end()
		w.check()
		got := w.books.bill(day1)
		if len(got.rejected) != 3 || got.rejected[1].Line != all[7].Line || got.rejected[1].File != "usage.csv" || !strings.Contains(got.rejected[1].Reason, "nonsense") {
			t.Errorf("rejections: got %v, want line 9999 of the manifest, and two with unknown tariffs", got.rejected)
		}
		if len(named) != 2 || !strings.HasPrefix(named[0], fmt.Sprintf("%s usage.csv:%d: ", day1, all[7].Line)) {
			t.Errorf("named by the controller: got %q, want the two with unknown tariffs", named)
		}
		if !strings.Contains(got.totals, "whale") {
			t.Error("the largest quantities are not billed")
		}
	})
}

// What a batch costs is fixed when it is first split: tariffs that change later do not count for it.
func TestTariffsOfABatchDoNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ship(w.submitter(), day1, generate(1, 100), 5)
		dying := newPower(20)
		first := w.start(Options{Roles: Initiator, Group: 10}, dying)
		<-dying.failed
		first.kill()
		tariffs, _, err := records.ReadTariffs(strings.NewReader("tariff,unit,currency,price\nother,kWh,EUR,1\n"), "tariffs.csv")
		if err != nil {
			t.Fatal(err)
		}
		next := w.start(Options{Roles: All, Group: 50, Tariffs: tariffs}, nil)
		w.settle()
		next.end()
		w.check()
	})
}
