package main

import (
	"context"
	"fmt"
	"runtime/debug"
)

func versionCommand() *command {
	asJSON := false
	f := newFlags("version")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return &command{name: "version", does: "print the version", flags: f,
		run: func(_ context.Context, c *console, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			switch {
			case asJSON && ok:
				return printJSON(c.out, newBuild(info))
			case asJSON:
				return printJSON(c.out, build{Version: "unknown"})
			}
			_, err := fmt.Fprintln(c.out, "millrace", version())
			return err
		}}
}

// build is the version of the program, as version prints it in JSON.
type build struct {
	Version  string `json:"version"`  // of the module, such as v0.1.0, or (devel)
	Revision string `json:"revision"` // the commit; "" if it is not known
	Modified bool   `json:"modified"` // built from files that were not committed
	Go       string `json:"go"`
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok { // not built by go build
		return "unknown"
	}
	return describe(info)
}

func newBuild(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// describe returns the module's version or, without one, the commit of the build.
func describe(info *debug.BuildInfo) string {
	b := newBuild(info)
	text := b.Version
	if text == "(devel)" && b.Revision != "" {
		text += " " + b.Revision[:min(12, len(b.Revision))]
	}
	if text != b.Version && b.Modified {
		text += " modified"
	}
	return text + " " + b.Go
}
