package roles

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/billing/shipping"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	w := newWorld(t)
	for want, o := range map[string]Options{
		"books":   {Roles: Controller},
		"role":    {Roles: 1 << 5},
		"records": {Group: shipping.MaxPieceRecords + 1},
		"hidden":  {Visibility: time.Second},
	} {
		if _, err := New(w.account, w.store, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one that says %q", o, err, want)
		}
	}
	if got := (Initiator | Controller).String(); got != "initiator, controller" {
		t.Errorf("got %q", got)
	}
}
