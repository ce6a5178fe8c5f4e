package listener

import (
	"path"
	"strings"
)

// maxFrames bounds how much of a stack is logged.
const maxFrames = 12

// frames turns what debug.Stack wrote where a panic was recovered into lines for a log,
// the innermost first, such as "main.ship worker.go:31". It leaves out what stands above
// the panic and what stands below the handler: those are the library's and the runtime's.
func frames(stack []byte) []string {
	var all []string
	name := ""
	for line := range strings.Lines(string(stack)) {
		line = strings.TrimRight(line, "\n")
		place, isPlace := strings.CutPrefix(line, "\t")
		switch {
		case !isPlace:
			name = line
		case strings.HasPrefix(name, "panic("), strings.HasPrefix(name, "runtime.Goexit("):
			all = all[:0] // what stands above it recovered it
		case strings.HasPrefix(name, "runtime."), strings.HasPrefix(name, "goroutine "):
		case strings.Contains(name, "/dispatcher.(*Dispatcher[") && strings.Contains(name, ".call("):
			return all
		default:
			all = append(all, frame(name, place))
		}
		if len(all) == maxFrames {
			return all
		}
	}
	return all
}

// frame joins a function and its place, without arguments, offset and directories.
func frame(name, place string) string {
	if i := strings.LastIndexByte(name, '('); i > 0 {
		name = name[:i]
	}
	place, _, _ = strings.Cut(place, " +0x")
	return path.Base(name) + " " + path.Base(place)
}
