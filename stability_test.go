package millrace

import (
	"go/types"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stablePackages reads docs/stability.md: the packages that keep their API after 1.0. Its other
// table has the rest.
func stablePackages(t *testing.T) (stable, experimental []string) {
	t.Helper()
	text, err := os.ReadFile("docs/stability.md")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n## Experimental\n")
	names := func(part string) (found []string) {
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(part, -1) {
			found = append(found, m[1])
		}
		return found
	}
	return names(first), names(second)
}

// A violation is an identifier of a stable package and the type of another package that it exposes.
type violation struct{ identifier, exposed string }

// vocabulary is what stable packages give their own names to: types of package dispatcher, and of
// internal ones. They are as stable as the alias.
func vocabulary(packages []*apiPackage, stable []string) map[*types.TypeName]bool {
	found := map[*types.TypeName]bool{}
	for _, p := range packages {
		for _, one := range p.identifiers() {
			alias, is := one.obj.Type().(*types.Alias)
			if !is || one.obj != alias.Obj() || !slices.Contains(stable, p.name) {
				continue
			}
			if named, is := types.Unalias(alias).(*types.Named); is && named.Obj().Pkg() != nil {
				if from := short(named.Obj().Pkg().Path()); from == "dispatcher" || !public(from) {
					found[named.Origin().Obj()] = true
				}
			}
		}
	}
	return found
}

// exposures walks what the stable packages and their vocabulary declare, and finds the types of
// other packages of ours.
func exposures(packages []*apiPackage, stable []string) map[violation]bool {
	found := map[violation]bool{}
	words := vocabulary(packages, stable)
	for _, p := range packages {
		listed := p.identifiers()
		if !slices.Contains(stable, p.name) {
			listed = slices.DeleteFunc(listed, func(one identifier) bool {
				owner := strings.Split(strings.TrimPrefix(one.name, p.name+"."), ".")[0]
				name, is := p.types.Scope().Lookup(owner).(*types.TypeName)
				return !is || !words[name]
			})
		}
		for _, one := range listed {
			w := walk{stable, words, map[types.Type]bool{}, func(exposed string) { found[violation{one.name, exposed}] = true }}
			switch obj := one.obj.(type) {
			case *types.TypeName:
				w.declaration(obj)
			default:
				w.visit(obj.Type())
			}
		}
	}
	return found
}

type walk struct {
	stable []string
	words  map[*types.TypeName]bool
	seen   map[types.Type]bool
	report func(exposed string)
}

// declaration leaves fields and methods out: they are identifiers of their own.
func (w walk) declaration(obj *types.TypeName) {
	switch t := obj.Type().(type) {
	case *types.Alias:
		w.visit(t.Rhs())
	case *types.Named:
		for param := range t.TypeParams().TypeParams() {
			w.visit(param.Constraint())
		}
		switch t.Underlying().(type) {
		case *types.Struct, *types.Interface:
		default:
			w.visit(t.Underlying())
		}
	}
}

func (w walk) visit(t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		w.all(t.TypeArgs().Types())
		if pkg := t.Obj().Pkg(); pkg == nil || !slices.Contains(w.stable, short(pkg.Path())) {
			w.visit(types.Unalias(t))
		}
	case *types.Named:
		w.all(t.TypeArgs().Types())
		w.named(t.Origin())
	case *types.TypeParam:
		w.visit(t.Constraint())
	case *types.Signature:
		w.visit(t.Params())
		w.visit(t.Results())
		for param := range t.TypeParams().TypeParams() {
			w.visit(param)
		}
	case *types.Tuple:
		for v := range t.Variables() {
			w.visit(v.Type())
		}
	case *types.Struct:
		for _, field := range exportedFields(t) {
			w.visit(field.Type())
		}
	case *types.Interface:
		for m := range t.Methods() {
			w.visit(m.Type())
		}
		w.all(t.EmbeddedTypes())
	case *types.Union:
		for term := range t.Terms() {
			w.visit(term.Type())
		}
	case *types.Map:
		w.visit(t.Key())
		w.visit(t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, and channels
		w.visit(t.Elem())
	}
}

func (w walk) all(list func(yield func(types.Type) bool)) {
	for t := range list {
		w.visit(t)
	}
}

func (w walk) named(t *types.Named) {
	obj := t.Obj()
	if obj.Pkg() == nil || w.words[obj] {
		return
	}
	path := obj.Pkg().Path()
	if path != module && !strings.HasPrefix(path, module+"/") {
		return // the standard library, and modules with versions of their own
	}
	switch {
	case !slices.Contains(w.stable, short(path)):
		w.report(short(path) + "." + obj.Name())
	case !obj.Exported(): // callers reach what it exports
		w.visit(t.Underlying())
		for _, m := range methods(t) {
			w.visit(m.Type())
		}
	}
}

// TestStablePackagesExposeOnlyStableTypes: a name that is promised does not depend on one that is
// not.
func TestStablePackagesExposeOnlyStableTypes(t *testing.T) {
	stable, _ := stablePackages(t)
	found := exposures(loadPublic(t), stable)
	for _, v := range slices.SortedFunc(maps.Keys(found), compareViolations) {
		t.Errorf("%s is stable and names %s, which is not: see docs/stability.md", v.identifier, v.exposed)
	}
}

func compareViolations(a, b violation) int {
	return strings.Compare(a.identifier+" "+a.exposed, b.identifier+" "+b.exposed)
}

// TestEveryPackageSaysHowStableItIs compares the package comments with docs/stability.md.
func TestEveryPackageSaysHowStableItIs(t *testing.T) {
	stable, experimental := stablePackages(t)
	want := map[string]string{}
	for _, name := range stable {
		want[name] = "This package is stable: see docs/stability.md."
	}
	for _, name := range experimental {
		if want[name] != "" {
			t.Errorf("docs/stability.md has %s twice", name)
		}
		want[name] = "This package is experimental: any release may change it. See docs/stability.md."
	}
	for _, p := range loadPublic(t) {
		sentence := want[p.name]
		if delete(want, p.name); sentence == "" {
			t.Errorf("docs/stability.md does not have package %s", p.name)
		} else if strings.Count(p.doc, "\nThis package is ") != 1 || !strings.Contains(p.doc, "\n"+sentence+"\n") {
			t.Errorf("the comment of package %s has no line %q, or another one besides", p.name, sentence)
		}
	}
	for name := range want {
		t.Errorf("docs/stability.md has %s, which is not a public package", name)
	}
}

// maxStable bounds the exported names of the stable packages: users learn them, and they stay until
// 2.0. Lower it when names go. The aim is 700.
const maxStable = 689

// TestTheStablePackagesAreSmall counts exported names, fields included. With -v it prints those of
// each package. What listener re-exports of package dispatcher counts once: the name there, with
// the fields and methods of its type.
func TestTheStablePackagesAreSmall(t *testing.T) {
	stable, _ := stablePackages(t)
	packages := loadPublic(t)
	words := vocabulary(packages, stable)
	total, promised, reexported := 0, 0, 0
	for _, p := range packages {
		members := 0 // of re-exported types
		listed := p.identifiers()
		for _, one := range listed {
			owner, _, member := strings.Cut(strings.TrimPrefix(one.name, p.name+"."), ".")
			name, is := p.types.Scope().Lookup(owner).(*types.TypeName)
			if member && is && words[name] {
				members++
			}
		}
		total += len(listed)
		switch {
		case slices.Contains(stable, p.name):
			promised += len(listed)
			t.Logf("%5d stable       %s", len(listed), p.name)
		default:
			reexported += members
			t.Logf("%5d experimental %s, %d of them re-exported", len(listed), p.name, members)
		}
	}
	arrows := 0
	for _, p := range goList(t, "./...") {
		for _, imported := range p.Imports {
			if public(short(p.ImportPath)) && imported != p.ImportPath && public(short(imported)) &&
				(imported == module || strings.HasPrefix(imported, module+"/")) {
				arrows++
			}
		}
	}
	t.Logf("%d names in %d public packages, and %d imports of one by another", total, len(packages), arrows)
	t.Logf("stable: %d, with %d in re-exported types; experimental: %d", promised+reexported, reexported, total-promised-reexported)
	if promised+reexported > maxStable {
		t.Errorf("the stable packages have %d exported names, fields included, want at most %d", promised+reexported, maxStable)
	}
}
