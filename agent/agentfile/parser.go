package agentfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/millrace/millrace/internal/naming"
)

// parser turns the nodes of a file into values and collects what is wrong.
type parser struct {
	folder   string // of the file
	problems []Problem
}

// fail records a problem at a node.
func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, Problem{n.Line, fmt.Sprintf(format, args...)})
}

// load returns the root of the document, or nil after a problem.
func (p *parser) load(text []byte) *yaml.Node {
	if len(text) > MaxSize {
		p.problems = append(p.problems, Problem{0, fmt.Sprintf("it has more than %d bytes", MaxSize)})
		return nil
	}
	if line := unreadable(text); line > 0 {
		p.problems = append(p.problems, Problem{line, "it has bytes that are no text in UTF-8"})
		return nil
	}
	var document yaml.Node
	if err := yaml.Load(text, &document); err != nil {
		p.problems = append(p.problems, syntaxProblem(text, err))
		return nil
	}
	return document.Content[0]
}

// unreadable returns the first line with a byte that is no text, or 0.
func unreadable(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && !strings.ContainsRune("\t\r\n", r) {
			return lineAt(text, i)
		}
		i += size
	}
	return 0
}

func lineAt(text []byte, offset int) int { return 1 + strings.Count(string(text[:offset]), "\n") }

// syntaxProblem says why a text is no YAML.
func syntaxProblem(text []byte, err error) Problem {
	if strings.TrimSpace(withoutComments(text)) == "" {
		return Problem{0, "it is empty: write pools and what they need; see https://github.com/millrace/millrace/blob/main/docs/agent.md"}
	}
	known := (*yaml.LoadError)(nil)
	if !errors.As(err, &known) {
		return Problem{0, "it is no YAML: " + err.Error()}
	}
	line := known.Mark.Line
	if line == 0 { // the only one without a position that is left
		return Problem{0, "it is not one document of YAML: " + known.Message}
	}
	hint := ""
	if lines := strings.Split(string(text), "\n"); line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t") {
		hint = ": indent with spaces, not with tabs"
	}
	return Problem{line, "it is no YAML: " + known.Message + hint}
}

func withoutComments(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// field is a key that a mapping may have, and what reads its value.
type field struct {
	name string
	read func(n *yaml.Node)
}

// mapping reads a mapping. The owner is what errors call it, such as "pool orders".
func (p *parser) mapping(n *yaml.Node, owner string, fields []field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	for key, value := range p.pairs(n, owner) {
		i := slices.Index(names, key.Value)
		if i < 0 {
			p.fail(key, "%s has no key %s%s; the keys are %s", owner, quote(key.Value), naming.Hint(key.Value, names), strings.Join(names, ", "))
			continue
		}
		fields[i].read(value)
	}
}

// pairs yields the keys of a mapping, which are scalars, with their values. It refuses other keys, and those that are there
// already.
func (p *parser) pairs(n *yaml.Node, owner string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if !p.is(n, yaml.MappingNode, owner, "key: value on lines of their own") {
			return
		}
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case key.Kind != yaml.ScalarNode:
				p.fail(key, "%s has a key that is no word", owner)
				continue
			case seen[key.Value] > 0:
				p.fail(key, "%s has the key %s already on line %d", owner, quote(key.Value), seen[key.Value])
				continue
			}
			seen[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

// is reports whether a node is of a kind, and otherwise says what to write. What is the subject of the sentence.
func (p *parser) is(n *yaml.Node, kind yaml.Kind, what, write string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		p.fail(n, "%s is an alias, which is not supported: write the value itself", what)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		p.fail(n, "%s has no value: write %s", what, write)
	case n.Kind != kind:
		p.fail(n, "%s is %s: write %s", what, kindName(n.Kind), write)
	default:
		return true
	}
	return false
}

func kindName(k yaml.Kind) string {
	switch k {
	case yaml.MappingNode:
		return "a mapping of keys to values"
	case yaml.SequenceNode:
		return "a list"
	}
	return "one value"
}
