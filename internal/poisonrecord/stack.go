package poisonrecord

import (
	"regexp"
	"strings"
)

// maxStack bounds a stack in bytes: what panicked is near its beginning.
const maxStack = 8 << 10

// ours is how the frames begin that call handlers.
const ours = "github.com/millrace/millrace/dispatcher."

// Addresses, arguments and numbers of goroutines, which say nothing later.
var (
	arguments  = regexp.MustCompile(`\((?:0x[0-9a-f]+\??|\.\.\.|\{|\}|_|, )*\)$`)
	offset     = regexp.MustCompile(` \+0x[0-9a-f]+$`)
	goroutines = regexp.MustCompile(` in goroutine [0-9]+$`)
)

// Stack returns the stack of a panic, as debug.Stack returns it, for [Record]: functions and
// lines, innermost first, from the call that panicked to the handler. It has no addresses,
// arguments or numbers of goroutines, so that one fault has one stack. A long one is cut at 8 KiB.
func Stack(trace []byte) string {
	lines := strings.Split(strings.TrimSpace(string(trace)), "\n")
	if len(lines) > 0 && strings.HasPrefix(lines[0], "goroutine ") {
		lines = lines[1:]
	}
	for i, line := range lines { // what precedes it collects the stack
		if strings.HasPrefix(line, "panic(") {
			lines = lines[min(i+2, len(lines)):]
			break
		}
	}
	var b strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, ours) && b.Len() > 0 { // what called the handler is always the same
			break
		}
		line = goroutines.ReplaceAllString(line, "")
		line = offset.ReplaceAllString(arguments.ReplaceAllString(line, "()"), "")
		if b.Len()+len(line)+1 > maxStack {
			b.WriteString("…\n")
			break
		}
		b.WriteString(line + "\n")
	}
	return strings.ToValidUTF8(strings.TrimSuffix(b.String(), "\n"), "")
}
