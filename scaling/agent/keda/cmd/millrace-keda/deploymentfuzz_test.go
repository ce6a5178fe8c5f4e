package main

import (
	"encoding/json"
	"testing"
)

// FuzzParseScale: whatever answers, the result is the number of a Scale or an error.
func FuzzParseScale(f *testing.F) {
	f.Add([]byte(scaleOf(`"replicas":12`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := parseScale(body)
		var kind struct{ Kind string }
		isScale := json.Unmarshal(body, &kind) == nil && kind.Kind == "Scale"
		if n < 0 || err == nil && !isScale || err != nil && n != 0 {
			t.Errorf("got %d, %v", n, err)
		}
	})
}
