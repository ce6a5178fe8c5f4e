package agentfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/naming"
	"go.yaml.in/yaml/v4"
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
			return 1 + bytes.Count(text[:i], []byte("\n"))
		}
		i += size
	}
	return 0
}

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

// text returns a value as it is written, and whether it is one.
func (p *parser) text(n *yaml.Node, what, write string) (string, bool) {
	if !p.is(n, yaml.ScalarNode, what, write) {
		return "", false
	}
	if strings.TrimSpace(n.Value) == "" {
		p.fail(n, "%s is empty: write %s", what, write)
		return "", false
	}
	return n.Value, true
}

const aDuration = "a duration with a unit, such as 500ms, 30s, 5m or 24h"

// positive reads a duration that is more than zero, which would mean the default.
func (p *parser) positive(to *time.Duration, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		problems := len(p.problems)
		p.duration(to, what)(n)
		if len(p.problems) == problems && *to == 0 {
			p.fail(n, "%s is %s: write more than zero, or leave the key out for the default", what, n.Value)
		}
	}
}

// duration reads a duration. Whether it makes sense is for those to say who use it.
func (p *parser) duration(to *time.Duration, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := p.text(n, what, aDuration)
		if !ok {
			return
		}
		d, err := time.ParseDuration(text)
		switch {
		case err != nil && strings.Trim(text, "+-.0123456789") == "":
			p.fail(n, "%s %s has no unit: write %ss for seconds", what, text, text)
		case err != nil:
			p.fail(n, "%s is %s: write %s", what, quote(text), aDuration)
		case d < 0:
			p.fail(n, "%s is %s, which is negative", what, text)
		default:
			*to = d
		}
	}
}

// scalar reads a value that parse takes, or otherwise says what to write.
func (p *parser) scalar(what, write string, parse func(text string) bool) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if text, ok := p.text(n, what, write); ok && !parse(text) {
			p.fail(n, "%s is %s: write %s", what, quote(text), write)
		}
	}
}

func (p *parser) whole(to *int, what string) func(n *yaml.Node) {
	return p.scalar(what, "a whole number, such as 4", func(text string) bool {
		i, err := strconv.ParseInt(text, 10, 32)
		*to = int(i)
		return err == nil
	})
}

func (p *parser) fraction(to *float64, what string) func(n *yaml.Node) {
	return p.scalar(what, "a number, such as 0.8", func(text string) bool {
		f, err := strconv.ParseFloat(text, 64)
		*to = f
		return err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	})
}

func (p *parser) truth(to *bool, what string) func(n *yaml.Node) {
	return p.scalar(what, "true or false", func(text string) bool {
		*to = text == "true"
		return *to || text == "false"
	})
}

// decimals matches plain ones: no signs, exponents or words.
var decimals = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// price reads a sum of money.
func (p *parser) price(to *float64, what string) func(n *yaml.Node) {
	return p.scalar(what, "a decimal number without a currency, such as 0.05", func(text string) bool {
		*to, _ = strconv.ParseFloat(text, 64)
		return decimals.MatchString(text)
	})
}

// path reads a path, and makes it relative to the folder of the file.
func (p *parser) path(to *string, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if text, ok := p.text(n, what, "a path"); ok {
			*to = p.relative(text)
		}
	}
}

// relative returns a path relative to the folder of the file, if it is not absolute.
func (p *parser) relative(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.folder, path)
}

// each calls read for each value of a list, which must not be empty.
func (p *parser) each(n *yaml.Node, what, write string, read func(n *yaml.Node)) {
	if !p.is(n, yaml.SequenceNode, what, write) {
		return
	}
	if len(n.Content) == 0 {
		p.fail(n, "%s is empty: write %s", what, write)
	}
	for _, one := range n.Content {
		read(one)
	}
}

// secret matches what a location has beside a key or a signature, and the latter.
var secret = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=`)

// refuseSecrets refuses a file in which anything looks like a secret.
func (p *parser) refuseSecrets(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && secret.MatchString(n.Value) {
		p.fail(n, "this looks like a key or a signature, which must not stand in the file: put the location into an environment variable or a file, and name that under accounts")
	}
	for _, one := range n.Content { // aliases are not followed, and the depth is bounded
		p.refuseSecrets(one)
	}
}

// quote quotes what stands in the file, unless it looks like a secret.
func quote(text string) string {
	const longest = 80
	if secret.MatchString(text) {
		return "something with a secret"
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strconv.Quote(text)
}
