package millrace

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// broken finds which of the rules for names and shapes an exported function or method breaks.
func broken(p *apiPackage, f *types.Func) (rules []string) {
	s := f.Signature()
	options := false
	for i := range s.Params().Len() {
		param := s.Params().At(i).Type()
		if !isOptions(deref(param)) {
			continue
		}
		options = true
		if _, pointer := types.Unalias(param).(*types.Pointer); !pointer {
			rules = append(rules, "takes options by value")
		}
		if i != s.Params().Len()-1 {
			rules = append(rules, "options are not the last parameter")
		}
	}
	results := func(want ...string) bool {
		if s.Results().Len() != len(want) {
			return false
		}
		for i, one := range want {
			if types.TypeString(s.Results().At(i).Type(), nil) != one {
				return false
			}
		}
		return true
	}
	if s.Recv() != nil {
		switch takes := s.Params().Len(); f.Name() {
		case "Run":
			if takes != 1 || types.TypeString(s.Params().At(0).Type(), nil) != "context.Context" || !results("error") {
				rules = append(rules, "is not Run(ctx) error")
			}
		case "Close":
			if takes != 0 || !results("error") {
				rules = append(rules, "is not Close() error")
			}
		}
	}
	if s.Recv() == nil {
		rules = append(rules, brokenConstructor(p, f, options)...)
	}
	return rules
}

// brokenConstructor leaves functions alone that only compute a value.
func brokenConstructor(p *apiPackage, f *types.Func, options bool) (rules []string) {
	params, results := f.Signature().Params(), f.Signature().Results()
	if results.Len() == 0 || results.Len() > 2 {
		return nil
	}
	opens := strings.HasPrefix(f.Name(), "Open")
	named := opens || strings.HasPrefix(f.Name(), "New")
	handle := isHandle(p, results.At(0).Type())
	if !named {
		closes, _, _ := types.LookupFieldOrMethod(results.At(0).Type(), false, p.types, "Close")
		if handle || closes != nil {
			rules = append(rules, "is a constructor and not named New or Open")
		}
		return rules
	}
	if !handle && !options {
		return nil
	}
	name := p.name + "." + f.Name()
	fails := results.Len() == 2 && types.TypeString(results.At(1).Type(), nil) == "error"
	if name != "listener.New" && name != "producer.New" && (!handle || !fails) {
		rules = append(rules, "does not return (*T, error)")
	}
	located := params.Len() > 0 && types.TypeString(params.At(0).Type(), nil) == "string"
	if opens && !located {
		rules = append(rules, "opens no location: call it New")
	} else if !opens && located && slices.Contains([]string{"location", "path", "dir"}, params.At(0).Name()) {
		rules = append(rules, "takes a location: call it Open")
	}
	return rules
}

// brokenOptions looks at the methods that fill in defaults and refuse invalid options.
func brokenOptions(obj *types.TypeName) (rules []string) {
	if obj.IsAlias() || !isOptions(obj.Type()) {
		return nil
	}
	for m := range obj.Type().(*types.Named).Methods() {
		switch m.Name() {
		case "check", "Check", "valid", "refuse":
			rules = append(rules, m.Name()+" is not named validate")
		case "defaults", "setDefaults", "fill":
			rules = append(rules, m.Name()+" is not named withDefaults")
		}
	}
	return rules
}

func isOptions(t types.Type) bool {
	named, is := t.(*types.Named)
	return is && strings.HasSuffix(named.Obj().Name(), "Options") && named.Obj().Pkg() != nil &&
		strings.HasPrefix(named.Obj().Pkg().Path()+"/", module+"/")
}

// isHandle reports whether t is a pointer to a type of p that must not be copied.
func isHandle(p *apiPackage, t types.Type) bool {
	_, pointer := types.Unalias(t).(*types.Pointer)
	named, is := deref(t).(*types.Named)
	return pointer && is && slices.Contains(p.handles(), named.Origin())
}

// brokenToday lists the rules that are still broken. The list only shrinks.
var brokenToday = map[string][]string{}

// TestNamesAndShapesFollowTheRules: constructors are called New or Open, take options as a pointer
// and last, and return (*T, error). Run and Close have one shape.
func TestNamesAndShapesFollowTheRules(t *testing.T) {
	found := map[string][]string{}
	for _, p := range loadPublic(t) {
		for _, one := range p.identifiers() {
			var rules []string
			switch obj := one.obj.(type) {
			case *types.Func:
				rules = broken(p, obj)
			case *types.TypeName:
				rules = brokenOptions(obj)
			}
			if len(rules) > 0 {
				found[one.name] = rules
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.Equal(found[name], brokenToday[name]) {
			t.Errorf("%s: got %q, want %q", name, found[name], brokenToday[name])
		}
	}
	for name := range brokenToday {
		if found[name] == nil {
			t.Errorf("%s follows the rules: delete its entry in brokenToday", name)
		}
	}
}
