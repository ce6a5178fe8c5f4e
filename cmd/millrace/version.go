package main

import (
	"runtime/debug"
	"strings"
)

// version returns the module's version or, without one, the commit of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	said := info.Main.Version
	if said == "" || said == "(devel)" {
		said = "(devel)"
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				said += " " + s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				said += " modified"
			}
		}
	}
	return strings.Join([]string{said, info.GoVersion}, " ")
}
