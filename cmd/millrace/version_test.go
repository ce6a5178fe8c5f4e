package main

import (
	"encoding/json"
	"runtime/debug"
	"testing"
)

func TestTheVersionAsJSON(t *testing.T) {
	t.Parallel()
	var got build
	if err := json.Unmarshal([]byte(invocation{}.ok(t, "version", "-json")), &got); err != nil || got.Version == "" || got.Go == "" {
		t.Errorf("got %+v, %v; want a version and that of Go", got, err)
	}
	info := &debug.BuildInfo{GoVersion: "go1", Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	if got, want := newBuild(info), (build{"(devel)", "0123456789abcdef", true, "go1"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
