package listener

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
)

// maxFrames bounds how many frames of a stack are logged.
const maxFrames = 12

// hiddenPackages are the packages that call handlers and hooks, and those of the runtime. Their
// frames are not logged.
var hiddenPackages = map[string]bool{
	reflect.TypeFor[dispatcher.Dispatcher]().PkgPath(): true,
	reflect.TypeFor[hook.Guard]().PkgPath():            true,
	"runtime":                                          true,
	"sync":                                             true,
}

// frames returns lines for a log, the innermost first, such as "main.ship worker.go:31", for
// the callers of the function that recovered a panic.
func frames(callers []uintptr) []string {
	var all []string
	rest := runtime.CallersFrames(callers)
	for more := len(callers) > 0; more; {
		var f runtime.Frame
		f, more = rest.Next()
		switch {
		case f.Function == "runtime.gopanic", f.Function == "runtime.Goexit":
			all = all[:0] // the frames so far recovered the panic
		case !hiddenPackages[packageOf(f.Function)]:
			all = append(all, fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line))
		}
	}
	return all[:min(len(all), maxFrames)]
}

// packageOf returns the import path of a function's package.
func packageOf(function string) string {
	begin := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[begin:], ".")
	return function[:begin] + name
}
