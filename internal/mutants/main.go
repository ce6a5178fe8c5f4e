// Command mutants changes the code of packages in small ways, one at a time, and reports the
// changes that no test notices. Run it at the root of the repository:
//
//	go run ./internal/mutants [-n 200] [-seed 1] [-only FILE:LINE] [PACKAGE DIRECTORY…]
//
// It draws n mutants from all packages together, those of the core by default. A mutant negates a
// condition, swaps && and || or + and -, moves a comparison with a number by one, changes a number
// by one, flips true and false, or leaves out a call or an assignment. The files stay as they are:
// the compiler reads the mutant from an overlay.
//
// The tests run without a mutant first: one that fails would seem to kill every mutant.
//
// A mutant is killed by the short tests of its package, by those of another of the packages that uses
// it, or by the whole tests of its own; a test that hangs kills it too. What does not compile is not
// a mutant. The exit code is 1 if fewer than 95 % are killed. Some mutants are equivalent: they
// change nothing that a test could see, such as when a lock is freed.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var core = []string{
	"listener", "dispatcher", "poison", "internal/poisonrecord", "codec/claimcheck", "kinds", "dispatcher/dedupe", "blob/gather", "dispatcher/perkey", "internal/keyed", "dispatcher/slots", "producer",
}

// mutant is one change of a file.
type mutant struct {
	dir, file  string
	line       int
	begin, end int // bytes of the file
	text       string
	was        string
}

func (m mutant) String() string {
	short := func(s string) string { return fmt.Sprintf("%.80s", strings.Join(strings.Fields(s), " ")) }
	return fmt.Sprintf("%s:%d: %s -> %s", m.file, m.line, short(m.was), cmp.Or(short(m.text), "nothing"))
}

func main() {
	n := flag.Int("n", 200, "how many mutants are drawn")
	seed := flag.Uint64("seed", 1, "of the draw")
	only := flag.String("only", "", "all mutants of this line, FILE:LINE, instead of a draw")
	workers := flag.Int("workers", 2, "mutants at the same time")
	flag.Parse()
	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = core
	}
	if err := run(dirs, *n, *seed, *only, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(dirs []string, n int, seed uint64, only string, workers int) error {
	var all []mutant
	for _, dir := range dirs {
		some, err := mutantsOf(dir)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutant) bool { return fmt.Sprintf("%s:%d", m.file, m.line) != only })
		n = len(all)
	}
	if len(all) == 0 {
		return fmt.Errorf("no mutants in %v", dirs)
	}
	users, err := usersOf(dirs)
	if err != nil {
		return err
	}
	if err := checkTests(dirs); err != nil {
		return err
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	var mu sync.Mutex
	next, tested, killed := 0, 0, 0
	var running sync.WaitGroup
	var failure error
	for range workers {
		running.Go(func() {
			for {
				mu.Lock()
				if next == len(all) || tested >= n || failure != nil {
					mu.Unlock()
					return
				}
				m := all[next]
				next++
				tested++ // unless it does not compile
				mu.Unlock()
				by, err := kill(m, users[m.dir])
				mu.Lock()
				switch {
				case err != nil:
					failure = err
				case by == notCompiled:
					tested--
				case by == "":
					fmt.Println("ALIVE ", m)
				default:
					killed++
					fmt.Printf("killed by %s: %v\n", by, m)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if failure != nil {
		return failure
	}
	fmt.Printf("%d of %d mutants killed, %.1f %%\n", killed, tested, 100*float64(killed)/float64(tested))
	if killed*100 < tested*95 {
		return fmt.Errorf("%d of %d mutants are alive, want at most 5 %%", tested-killed, tested)
	}
	return nil
}

// mutantsOf returns the mutants of the package in a directory.
func mutantsOf(dir string) (all []mutant, err error) {
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range p.GoFiles {
		name = filepath.Join(dir, name)
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(from, to token.Pos, text string) {
			begin, end := files.Position(from), files.Position(to)
			all = append(all, mutant{dir, name, begin.Line, begin.Offset, end.Offset, text, string(source[begin.Offset:end.Offset])})
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				ast.Inspect(f.Body, func(node ast.Node) bool { mutate(node, source, files, add); return true })
			}
		}
	}
	return all, nil
}

// mutate adds the mutants of one node of the syntax tree.
func mutate(node ast.Node, source []byte, files *token.FileSet, add func(from, to token.Pos, text string)) {
	textOf := func(n ast.Node) string {
		return string(source[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset])
	}
	negate := func(condition ast.Expr) {
		if condition != nil {
			add(condition.Pos(), condition.End(), "!("+textOf(condition)+")")
		}
	}
	switch n := node.(type) {
	case *ast.IfStmt:
		negate(n.Cond)
	case *ast.ForStmt:
		negate(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, condition := range clause.(*ast.CaseClause).List {
					negate(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		operator := func(text string) { add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), text) }
		switch {
		case n.Op == token.LAND:
			operator("||")
		case n.Op == token.LOR:
			operator("&&")
		case n.Op == token.ADD && !isText(n.X) && !isText(n.Y):
			operator("-")
		case n.Op == token.SUB:
			operator("+")
		case isCount(n.X) || isCount(n.Y): // of times the boundary is seldom met
			if other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]; other != "" {
				operator(other)
			}
		}
	case *ast.BasicLit:
		if number, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
			add(n.Pos(), n.End(), strconv.Itoa(number+1))
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			add(n.Pos(), n.End(), other)
		}
	case *ast.ExprStmt:
		add(n.Pos(), n.End(), "")
	case *ast.IncDecStmt:
		add(n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			add(n.Pos(), n.End(), "")
		}
	}
}

// isText reports whether an expression looks like a text, of which there is no difference.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}

// isCount reports whether an expression is a number or a length.
func isCount(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.Ident)
		return ok && (f.Name == "len" || f.Name == "cap")
	}
	return false
}

// usersOf returns for each directory those of the others whose packages, or their tests, use its package.
func usersOf(dirs []string) (map[string][]string, error) {
	users := make(map[string][]string)
	for _, user := range dirs {
		out, err := exec.Command("go", "list", "-deps", "-test", "./"+user).Output()
		if err != nil {
			return nil, fmt.Errorf("go list ./%s: %w", user, err)
		}
		for _, dir := range dirs {
			if dir != user && slices.Contains(strings.Fields(string(out)), "github.com/millrace/millrace/"+dir) {
				users[dir] = append(users[dir], user)
			}
		}
	}
	return users, nil
}

// checkTests returns an error if a test fails without a mutant.
func checkTests(dirs []string) error {
	for _, how := range []string{"-short", "-timeout=10m"} {
		args := []string{"test", "-vet=off", how}
		for _, dir := range dirs {
			args = append(args, "./"+dir)
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("tests fail without a mutant: go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// notCompiled is what kills a change that is not a mutant.
const notCompiled = "the compiler"

// kill returns which tests fail with the mutant; "" if none does.
func kill(m mutant, users []string) (by string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(string(source[:m.begin])+m.text+string(source[m.end:])), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	test := func(dir, which string, more ...string) (by string) {
		args := append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast"}, more...)
		out, err := exec.Command("go", append(args, "./"+dir)...).CombinedOutput()
		has := func(text string) bool { return strings.Contains(string(out), text) }
		switch {
		case err == nil:
			return ""
		case has("[build failed]"), has("[setup failed]"):
			return notCompiled
		case has("panic: test timed out"):
			which = "a time-out of " + which
		}
		return which + " of " + dir
	}
	if by := test(m.dir, "the short tests", "-short", "-timeout", "90s"); by != "" {
		return by, nil
	}
	for _, user := range users {
		if by := test(user, "the short tests", "-short", "-timeout", "3m"); by != "" {
			return by, nil
		}
	}
	return test(m.dir, "the tests", "-timeout", "5m"), nil
}
