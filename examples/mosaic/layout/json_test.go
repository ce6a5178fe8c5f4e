package layout

import (
	"encoding/json"
	"testing"
)

func TestReuseTravelsAsAPercentage(t *testing.T) {
	for r, want := range map[Reuse]string{0: "80", Once: "0", 1: "1", BestMatch: "100"} {
		text, err := json.Marshal(r)
		if err != nil || string(text) != want {
			t.Errorf("encoded Reuse(%d): got %s, %v; want %s", r, text, err, want)
		}
		var got Reuse
		if err := json.Unmarshal(text, &got); err != nil || got.Percent() != r.Percent() {
			t.Errorf("decoded %s: got %d, %v; want %d", text, got, err, r)
		}
	}
	for _, text := range []string{"-1", "101"} {
		var o Options
		if err := json.Unmarshal([]byte(text), &o.Reuse); err != nil || o.Validate() == nil {
			t.Errorf("decoded %s: got %d, %v; want one that Validate refuses", text, o.Reuse, err)
		}
	}
	for _, text := range []string{`"5"`, "0.5", "true", "99999999999"} {
		var r Reuse
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("decoded %s: got %d, want an error", text, r)
		}
	}
}
