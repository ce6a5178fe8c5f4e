package listener

import (
	"path"
	"strings"
)

// maxFrames bounds how many frames of a stack are logged.
const maxFrames = 12

// frames turns the output of debug.Stack, taken where a panic was recovered, into lines for a
// log, the innermost first, such as "main.ship worker.go:31". It leaves out the frames above
// the panic and below the handler, which belong to the library and the runtime.
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
			all = all[:0] // the frames so far recovered the panic
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

// frame returns the function and its file and line, without arguments, offset and directories.
func frame(name, place string) string {
	if i := strings.LastIndexByte(name, '('); i > 0 {
		name = name[:i]
	}
	place, _, _ = strings.Cut(place, " +0x")
	return path.Base(name) + " " + path.Base(place)
}
