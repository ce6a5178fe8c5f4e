package dispatcher_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The package comment describes the path of a message through at most eight files. They exist, each
// declares its step and calls the next one, and none calls an earlier one.
func TestTheDocumentedPathOfAMessageIsThatOfTheSource(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	path := regexp.MustCompile(`(?m)^//  \d+\. (\w+\.go): (\w+) `).FindAllStringSubmatch(string(text), -1)
	if len(path) < 5 || len(path) > 8 {
		t.Fatalf("steps in doc.go: got %d, want 5 to 8", len(path))
	}
	for i, step := range path {
		file, err := parser.ParseFile(token.NewFileSet(), step[1], nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		declared, called := false, map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared = declared || n.Name.Name == step[2]
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok {
					called[method.Sel.Name] = true
				}
			}
			return true
		})
		if !declared {
			t.Errorf("%s: got no function %s, want the one that doc.go names", step[1], step[2])
		}
		if i+1 < len(path) && !called[path[i+1][2]] {
			t.Errorf("%s: got no call of %s, want the step that follows in doc.go", step[1], path[i+1][2])
		}
		for _, earlier := range path[:i] {
			if called[earlier[2]] {
				t.Errorf("%s: got a call of %s, want none: a message does not go back", step[1], earlier[2])
			}
		}
		if strings.Count(string(text), step[1]+":") != 1 {
			t.Errorf("%s: got more than one step, want one", step[1])
		}
	}
	for _, named := range regexp.MustCompile(`\w+\.go`).FindAllString(string(text), -1) {
		if _, err := os.Stat(named); err != nil {
			t.Errorf("doc.go names a file: %v", err)
		}
	}
}
