package main

import (
	"runtime/debug"
	"strings"
)

// version is what the build says that this is: the version of the module, or
// without one the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown build"
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
