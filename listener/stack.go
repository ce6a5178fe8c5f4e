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

// hookPackage is the package that calls hooks.
var hookPackage = reflect.TypeFor[hook.Guard]().PkgPath()

// hiddenPackages are the package that calls handlers, and the packages of the runtime. Their frames
// are not logged.
var hiddenPackages = map[string]bool{
	reflect.TypeFor[dispatcher.Dispatcher]().PkgPath(): true,
	"runtime": true,
	"sync":    true,
}

// frames returns lines for a log, the innermost first, such as "main.ship worker.go:31", for
// the callers of the function that recovered a panic. They end where a hook was called.
func frames(callers []uintptr) []string {
	var all []string
	rest := runtime.CallersFrames(callers)
	for more := len(callers) > 0; more; {
		var f runtime.Frame
		f, more = rest.Next()
		switch pkg := packageOf(f.Function); {
		case f.Function == "runtime.gopanic":
			all = all[:0] // the frames so far recovered the panic
		case pkg == hookPackage && len(all) > 0:
			more = false
		case pkg != hookPackage && !hiddenPackages[pkg]:
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
