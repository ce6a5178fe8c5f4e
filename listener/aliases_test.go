package listener

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAliasesHaveTheDocumentationOfTheirOriginals: a reader of this package need not look up
// dispatcher, or an internal package. Links to names that only dispatcher has are written with its
// name here.
func TestAliasesHaveTheDocumentationOfTheirOriginals(t *testing.T) {
	here := documented(t, ".")
	for of, least := range map[string]int{"../dispatcher": 30, "../internal/load": 2} {
		there, compared := documented(t, of), 0
		for name, original := range originals(t, "aliases.go", filepath.Base(of)) {
			want, found := there[original]
			if !found { // constants share the comment of their group, and others are of another package
				continue
			}
			compared++
			if got := strings.ReplaceAll(here[name], "[dispatcher.", "["); got != want {
				t.Errorf("%s: got\n%s\nwant that of %s.%s\n%s", name, got, of, original, want)
			}
		}
		if compared < least {
			t.Errorf("%s: compared %d comments, want at least %d", of, compared, least)
		}
	}
}

// Package scaling has the same aliases of the load.
func TestScalingDocumentsTheLoadAlike(t *testing.T) {
	here, there := documented(t, "../scaling"), documented(t, "../internal/load")
	for _, name := range []string{"Load", "Optional"} {
		if want := there[name]; here[name] != want || want == "" {
			t.Errorf("scaling.%s: got\n%s\nwant\n%s", name, here[name], want)
		}
	}
}

// originals returns the names that a file declares, with those of a package that they stand for.
func originals(t *testing.T, path, of string) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, is := s.(*ast.TypeSpec); is {
					found[s.Name.Name] = selected(s.Type, of)
				}
			}
		case *ast.FuncDecl:
			if r, is := d.Body.List[0].(*ast.ReturnStmt); is && len(d.Body.List) == 1 {
				if call, is := r.Results[0].(*ast.CallExpr); is {
					found[d.Name.Name] = selected(call.Fun, of)
				}
			}
		}
	}
	return found
}

// selected returns X of pkg.X and of pkg.X[T].
func selected(e ast.Expr, of string) string {
	if i, is := e.(*ast.IndexExpr); is {
		e = i.X
	}
	if s, is := e.(*ast.SelectorExpr); is {
		if p, is := s.X.(*ast.Ident); is && p.Name == of {
			return s.Sel.Name
		}
	}
	return ""
}

// documented returns the comments of the types and functions of a package.
func documented(t *testing.T, dir string) map[string]string {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset, files := token.NewFileSet(), []*ast.File(nil)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(fset, filepath.Base(path), text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			files = append(files, f)
		}
	}
	p, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range p.Funcs {
		found[f.Name] = f.Doc
	}
	for _, one := range p.Types {
		found[one.Name] = one.Doc
		for _, f := range one.Funcs {
			found[f.Name] = f.Doc
		}
	}
	return found
}
