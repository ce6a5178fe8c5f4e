package millrace

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiFile holds the exported surface of the public packages, an identifier a line.
const apiFile = "docs/api.txt"

// An apiPackage is a public package, checked from its source.
type apiPackage struct {
	name  string // as in the table of packages, such as queue/azurequeue
	doc   string // the package comment
	types *types.Package
	docs  map[token.Pos]*ast.CommentGroup // by the position of the name
}

// An identifier is one exported name of a package: a function, type, method, field, constant or
// variable.
type identifier struct {
	name string // such as queue/azurequeue.Options.Key
	line string // of the file
	obj  types.Object
}

// otherModules are public packages outside the root module.
var otherModules = []string{"wakeup/natswakeup", "scaling/agent/keda"}

var publicPackages []*apiPackage // has what loadPublic found

func public(name string) bool {
	return !regexp.MustCompile(`(^|/)(internal|cmd|examples|bench)(/|$)`).MatchString(name)
}

// loadPublic checks the declarations of all packages of the module, without the bodies of
// functions. Packages of other modules come from the export data of the compiler.
func loadPublic(t *testing.T) []*apiPackage {
	t.Helper()
	if publicPackages != nil {
		return publicPackages
	}
	all := loadModule(t, goList(t, "-deps", "-export", "./..."), public)
	for _, dir := range otherModules {
		listed := goListIn(t, dir, append(os.Environ(), "GOWORK=off"), "-deps", "-export", ".")
		all = append(all, loadModule(t, listed, func(name string) bool { return name == dir })...)
	}
	publicPackages = all
	return all
}

// loadModule expects the dependencies of a package before it, as go list -deps has them.
func loadModule(t *testing.T, listed []goPackage, wanted func(name string) bool) []*apiPackage {
	t.Helper()
	fset := token.NewFileSet()
	exports := map[string]string{}
	checked := map[string]*types.Package{}
	others := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	config := types.Config{IgnoreFuncBodies: true, Importer: importFunc(func(path string) (*types.Package, error) {
		if p, ours := checked[path]; ours {
			return p, nil
		}
		return others.Import(path)
	})}
	var packages []*apiPackage
	for _, p := range listed {
		exports[p.ImportPath] = p.Export
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		var files []*ast.File
		one := &apiPackage{name: short(p.ImportPath), docs: map[token.Pos]*ast.CommentGroup{}}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			one.doc += file.Doc.Text()
			one.keepDocs(file)
		}
		var err error
		if one.types, err = config.Check(p.ImportPath, fset, files, nil); err != nil {
			t.Fatal(err)
		}
		checked[p.ImportPath] = one.types
		if wanted(one.name) && one.types.Name() != "main" {
			packages = append(packages, one)
		}
	}
	return packages
}

type importFunc func(path string) (*types.Package, error)

func (f importFunc) Import(path string) (*types.Package, error) { return f(path) }

func (p *apiPackage) keepDocs(file *ast.File) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			p.docs[decl.Name.Pos()] = decl.Doc
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					p.docs[spec.Name.Pos()] = cmp.Or(spec.Doc, decl.Doc)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						p.docs[name.Pos()] = cmp.Or(spec.Doc, decl.Doc)
					}
				}
			}
		}
	}
}

// renamed reports whether obj is an old name that go fix replaces. Such names are not part of the
// surface.
func (p *apiPackage) renamed(obj types.Object) bool {
	doc := p.docs[obj.Pos()]
	return doc != nil && strings.Contains(doc.Text(), "Deprecated: ") &&
		slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return c.Text == "//go:fix inline" })
}

// qualifier names packages as the source does, and p not at all.
func (p *apiPackage) qualifier(other *types.Package) string {
	if other == p.types {
		return ""
	}
	return other.Name()
}

func (p *apiPackage) text(t types.Type) string { return types.TypeString(t, p.qualifier) }

// signature is that of a function without the names of its parameters.
func (p *apiPackage) signature(s *types.Signature) string {
	var params strings.Builder
	for i := range s.TypeParams().Len() {
		one := s.TypeParams().At(i)
		fmt.Fprintf(&params, "%s %s, ", one.Obj().Name(), p.text(one.Constraint()))
	}
	text := ""
	if params.Len() > 0 {
		text = "[" + strings.TrimSuffix(params.String(), ", ") + "]"
	}
	tuple := func(vars *types.Tuple) string {
		var list []string
		for i := range vars.Len() {
			one := p.text(vars.At(i).Type())
			if s.Variadic() && vars == s.Params() && i == vars.Len()-1 {
				one = "..." + strings.TrimPrefix(one, "[]")
			}
			list = append(list, one)
		}
		return strings.Join(list, ", ")
	}
	text += "(" + tuple(s.Params()) + ")"
	switch s.Results().Len() {
	case 0:
		return text
	case 1:
		return text + " " + tuple(s.Results())
	}
	return text + " (" + tuple(s.Results()) + ")"
}

// identifiers lists the surface of p.
func (p *apiPackage) identifiers() []identifier {
	var found []identifier
	for _, name := range p.types.Scope().Names() {
		obj := p.types.Scope().Lookup(name)
		if !obj.Exported() || p.renamed(obj) {
			continue
		}
		add := func(format string, args ...any) {
			found = append(found, identifier{p.name + "." + name, "pkg " + p.name + ", " + fmt.Sprintf(format, args...), obj})
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s", name, p.text(obj.Type()))
		case *types.Var:
			add("var %s %s", name, p.text(obj.Type()))
		case *types.Func:
			add("func %s%s", name, p.signature(obj.Signature()))
		case *types.TypeName:
			if alias, is := obj.Type().(*types.Alias); is {
				add("type %s = %s", p.text(alias), p.text(alias.Rhs()))
				if named, is := types.Unalias(alias).(*types.Named); !is || public(short(named.Obj().Pkg().Path())) {
					continue // its members are listed where it is declared
				}
			} else {
				add("type %s %s", p.text(obj.Type()), p.kind(obj.Type().Underlying()))
			}
			found = append(found, p.members(name, obj.Type())...)
		}
	}
	return found
}

func (p *apiPackage) kind(underlying types.Type) string {
	switch underlying.(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	}
	return p.text(underlying)
}

// members lists the exported fields and methods of a type. Those that it has from an embedded
// exported type are listed there.
func (p *apiPackage) members(name string, t types.Type) []identifier {
	var found []identifier
	add := func(member string, obj types.Object, format string, args ...any) {
		line := "pkg " + p.name + ", " + fmt.Sprintf(format, args...)
		found = append(found, identifier{p.name + "." + name + "." + member, line, obj})
	}
	named := types.Unalias(t).(*types.Named)
	switch under := named.Underlying().(type) {
	case *types.Interface:
		for m := range under.ExplicitMethods() {
			if m.Exported() {
				add(m.Name(), m, "type %s interface, method %s%s", name, m.Name(), p.signature(m.Signature()))
			}
		}
		for e := range under.EmbeddedTypes() {
			text := p.text(e)
			add(text[strings.LastIndex(text, ".")+1:], types.NewVar(0, p.types, "", e), "type %s interface, embedded %s", name, text)
		}
	case *types.Struct:
		for _, field := range exportedFields(under) {
			word := "field " + field.Name()
			if field.Embedded() {
				word = "embedded"
			}
			add(field.Name(), field, "type %s struct, %s %s", name, word, p.text(field.Type()))
		}
	}
	for _, m := range methods(named) {
		if !p.renamed(m) {
			receiver := name
			if _, is := types.Unalias(m.Signature().Recv().Type()).(*types.Pointer); is {
				receiver = "*" + name
			}
			add(m.Name(), m, "method (%s) %s%s", receiver, m.Name(), p.signature(m.Signature()))
		}
	}
	return found
}

// exportedFields has those of embedded types that are not exported themselves.
func exportedFields(s *types.Struct) []*types.Var {
	var fields []*types.Var
	for field := range s.Fields() {
		if field.Exported() {
			fields = append(fields, field)
		} else if field.Embedded() {
			if inner, is := deref(field.Type()).Underlying().(*types.Struct); is {
				fields = append(fields, exportedFields(inner)...)
			}
		}
	}
	return fields
}

// methods are the exported methods that a type declares, or has from an embedded type that is not
// exported.
func methods(named *types.Named) []*types.Func {
	if types.IsInterface(named) {
		return nil
	}
	var found []*types.Func
	for s := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		hidden := true
		at := types.Type(named)
		for _, i := range s.Index()[:len(s.Index())-1] {
			field := deref(at).Underlying().(*types.Struct).Field(i)
			hidden, at = hidden && !field.Exported(), field.Type()
		}
		if m := s.Obj().(*types.Func); m.Exported() && hidden {
			found = append(found, m)
		}
	}
	return found
}

func deref(t types.Type) types.Type {
	if p, is := types.Unalias(t).(*types.Pointer); is {
		return types.Unalias(p.Elem())
	}
	return types.Unalias(t)
}

// nameIn is the name of the identifier that a line of the file describes.
func nameIn(line string) string {
	pkg, rest, _ := strings.Cut(strings.TrimPrefix(line, "pkg "), ", ")
	if m := regexp.MustCompile(`^method \(\*?(\w+)\) (\w+)`).FindStringSubmatch(rest); m != nil {
		return pkg + "." + m[1] + "." + m[2]
	}
	if m := regexp.MustCompile(`^type (\w+) (?:struct|interface), \w+ \*?(?:\w+\.)?(\w+)`).FindStringSubmatch(rest); m != nil {
		return pkg + "." + m[1] + "." + m[2]
	}
	return pkg + "." + regexp.MustCompile(`^\w+ (\w+)`).FindStringSubmatch(rest)[1]
}

// TestTheSurfaceIsAsWritten compares the exported names of all public packages with docs/api.txt.
// What it no longer has since the last release stands at the end of the file, and in the
// CHANGELOG's migration table.
func TestTheSurfaceIsAsWritten(t *testing.T) {
	was, removed := readSurface(t)
	now, known := map[string]bool{}, map[string]bool{}
	for _, p := range loadPublic(t) {
		known[p.name] = true
		for _, one := range p.identifiers() {
			now[one.line], known[one.name] = true, true
			if got := nameIn(one.line); got != one.name {
				t.Errorf("nameIn(%q): got %s, want %s", one.line, got, one.name)
			}
		}
	}
	var changes []string
	for line := range was {
		if !now[line] {
			changes = append(changes, "- "+line)
			if name := nameIn(line); !known[name] {
				removed[outermost(name, known)] = true
			}
		}
	}
	for line := range now {
		if !was[line] {
			changes = append(changes, "+ "+line)
		}
	}
	maps.DeleteFunc(removed, func(name string, _ bool) bool {
		back := known[name]
		if back {
			changes = append(changes, "- removed "+name)
		}
		return back
	})
	slices.SortFunc(changes, func(a, b string) int { return strings.Compare(a[2:]+a, b[2:]+b) })
	if len(changes) > 0 && os.Getenv("MILLRACE_UPDATE_GOLDEN") != "" {
		writeSurface(t, now, removed)
	} else if len(changes) > 0 {
		t.Errorf("the exported surface differs from %s:\n%s\n\nIf you meant to change it, run\n\n"+
			"\tMILLRACE_UPDATE_GOLDEN=1 go test -run TestTheSurfaceIsAsWritten .\n\n"+
			"and add a line to CHANGELOG.md.", apiFile, strings.Join(changes, "\n"))
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	migrated := migrations(string(changelog))
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		if !covered(name, migrated) {
			t.Errorf("%s was removed. Add a row to a table under Unreleased in CHANGELOG.md, with `%[1]s` in its first cell "+
				"and what to write instead in its second.", name)
		}
	}
}

// outermost is the largest part of a name that is gone: the package, the type, or the member.
func outermost(name string, known map[string]bool) string {
	parts := strings.Split(name, ".")
	for i := range parts {
		if part := strings.Join(parts[:i+1], "."); !known[part] {
			return part
		}
	}
	return name
}

// migrations has what stands in backquotes in the first cell of the rows under Unreleased.
func migrations(changelog string) map[string]bool {
	_, unreleased, _ := strings.Cut(changelog, "\n## [Unreleased]\n")
	unreleased, _, _ = strings.Cut(unreleased, "\n## [")
	names := map[string]bool{}
	for line := range strings.Lines(unreleased) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				names[strings.TrimPrefix(m[1], module+"/")] = true
			}
		}
	}
	return names
}

// covered reports whether a migration names the identifier, with or without the folders of its
// package, or what it belongs to.
func covered(name string, migrated map[string]bool) bool {
	pkg, _, _ := strings.Cut(name, ".")
	folders := pkg[:strings.LastIndex(pkg, "/")+1]
	for at := name; ; at = at[:strings.LastIndex(at, ".")] {
		if migrated[at] || at != pkg && migrated[strings.TrimPrefix(at, folders)] {
			return true
		}
		if at == pkg {
			return false
		}
	}
}

func TestARemovedNameNeedsAMigration(t *testing.T) {
	migrated := migrations("\n## [Unreleased]\n| before | now |\n|---|---|\n" +
		"| `queue/tokens` | `queue/limits` |\n| `azurequeue.Old`, `listener.Options.AcceptForeign` | `azurequeue.New` |\n" +
		"\n## [0.1.0]\n| `queue.Released` | |\n")
	for name, want := range map[string]bool{
		"queue/tokens":                       true,
		"queue/tokens.Bucket.Take":           true,
		"queue/azurequeue.Old":               true,
		"queue/azurequeue.Old.Field":         true,
		"queue/azurequeue.New":               false,
		"listener.Options.AcceptForeign":     true,
		"listener.Options":                   false,
		"listener.Options.Other":             false,
		"queue.Released":                     false,
		"queue":                              false,
		"queue/localqueue/filequeue.Options": false,
	} {
		if got := covered(name, migrated); got != want {
			t.Errorf("covered(%s): got %v, want %v", name, got, want)
		}
	}
	known := map[string]bool{"queue": true, "queue.Message": true}
	for name, want := range map[string]string{
		"queue.Message.Text": "queue.Message.Text", "queue.Gone.Field": "queue.Gone", "blob.Store.Put": "blob",
	} {
		if got := outermost(name, known); got != want {
			t.Errorf("outermost(%s): got %s, want %s", name, got, want)
		}
	}
}

// handles are the types of p that its functions and methods return as pointers, and that have
// methods for pointers. Errors are values.
func (p *apiPackage) handles() []*types.Named {
	var found []*types.Named
	for _, one := range p.identifiers() {
		f, is := one.obj.(*types.Func)
		if !is {
			continue
		}
		for result := range f.Signature().Results().Variables() {
			pointer, _ := types.Unalias(result.Type()).(*types.Pointer)
			named, is := deref(result.Type()).(*types.Named)
			if pointer == nil || !is || named.Obj().Pkg() != p.types || named.Obj().Name() == "Error" || slices.Contains(found, named.Origin()) {
				continue
			}
			for m := range named.Origin().Methods() {
				if _, pointer := m.Signature().Recv().Type().(*types.Pointer); pointer && m.Exported() {
					found = append(found, named.Origin())
					break
				}
			}
		}
	}
	return found
}

// TestVetReportsCopies lets go vet look at a program that copies one of each type that must not be
// copied.
func TestVetReportsCopies(t *testing.T) {
	var imports, body strings.Builder
	var want []string
	for i, p := range loadPublic(t) {
		if slices.Contains(otherModules, p.name) {
			continue // the root module cannot import them
		}
		handles := p.handles()
		if ready := map[string]string{"wakeup": "Bus", "queue/metered": "Meter"}[p.name]; ready != "" {
			handles = append(handles, p.types.Scope().Lookup(ready).Type().(*types.Named)) // nothing returns it
		}
		if len(handles) > 0 {
			fmt.Fprintf(&imports, "import p%d %q\n", i, p.types.Path())
		}
		for _, named := range handles {
			name := fmt.Sprintf("p%d.%s", i, named.Obj().Name())
			if named.TypeParams().Len() > 0 {
				name += "[int]"
			}
			fmt.Fprintf(&body, "func f%d(a, b *%s) { *a = *b }\n", len(want), name)
			want = append(want, p.name+"."+named.Obj().Name())
		}
	}
	file := filepath.Join(t.TempDir(), "copies.go")
	text := "package copies\n" + imports.String() + body.String()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "vet", "-copylocks", file).CombinedOutput()
	if err == nil {
		t.Fatal("go vet reported nothing")
	}
	head, _, _ := strings.Cut(text, "func f0")
	first := strings.Count(head, "\n") + 1
	for i, name := range want {
		if !strings.Contains(string(out), fmt.Sprintf("copies.go:%d:", first+i)) {
			t.Errorf("go vet reports no copy of %s: give it a field _ [0]sync.Mutex", name)
		}
	}
	t.Logf("go vet reports copies of %d of %d types", strings.Count(string(out), "assignment copies lock value"), len(want))
}

// readSurface returns the lines of the file, and the names that it says were removed.
func readSurface(t *testing.T) (lines, removed map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	lines, removed = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "removed "); is {
			removed[name] = true
		} else if strings.HasPrefix(line, "pkg ") {
			lines[line] = true
		}
	}
	return lines, removed
}

func writeSurface(t *testing.T, lines, removed map[string]bool) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# The exported surface of the public packages. go test -run TestTheSurfaceIsAsWritten . compares it\n" +
		"# with the code; with MILLRACE_UPDATE_GOLDEN=1 it writes this file. See CONTRIBUTING.md.\n")
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		text.WriteString(line + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		text.WriteString("removed " + name + "\n")
	}
	if err := os.WriteFile(apiFile, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
