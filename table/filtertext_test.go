package table_test

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/table"
)

// parse reads a filter as the service would: by a grammar, so that what is not a literal is an error.
func parse(text string) (condition, error) {
	if text == "" {
		return condition{connective: "and"}, nil
	}
	p := &parser{rest: text}
	c := p.condition()
	if p.err == nil && p.rest != "" {
		p.err = fmt.Errorf("%q is left", p.rest)
	}
	return c, p.err
}

type parser struct {
	rest string
	err  error // the first one
}

// condition reads a comparison, or conditions in parentheses with one connective between them.
func (p *parser) condition() condition {
	if !strings.HasPrefix(p.rest, "(") {
		return p.comparison()
	}
	c := condition{connective: "and"}
	for {
		p.take(regexp.MustCompile(`^\(`))
		c.parts = append(c.parts, p.condition())
		p.take(regexp.MustCompile(`^\)`))
		connective := strings.Trim(p.found(regexp.MustCompile(`^ (and|or) `)), " ")
		if connective == "" || p.err != nil {
			return c
		}
		if len(c.parts) > 1 && connective != c.connective {
			p.err = fmt.Errorf("%s after %s", connective, c.connective)
		}
		c.connective = connective
	}
}

var (
	name     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	operator = regexp.MustCompile(`^ (eq|ne|lt|le|gt|ge) `)
	quoted   = regexp.MustCompile(`(?s)^'([^']|'')*'`)
	typed    = regexp.MustCompile(`^(X|datetime|guid)'[^']*'`)
	word     = regexp.MustCompile(`^[-+.0-9a-zL]+`)
)

func (p *parser) comparison() condition {
	c := condition{property: p.take(name), operator: strings.Trim(p.take(operator), " ")}
	if text := p.found(quoted); text != "" {
		c.value = strings.ReplaceAll(text[1:len(text)-1], "''", "'")
		return c
	}
	kind, text, _ := strings.Cut(p.found(typed), "'")
	text = strings.TrimSuffix(text, "'")
	var err error
	switch kind {
	case "X":
		c.value, err = hex.DecodeString(text)
	case "datetime":
		c.value, err = time.Parse(time.RFC3339Nano, text)
	case "guid":
		c.value = table.GUID(text)
	default:
		c.value, err = constant(p.take(word))
	}
	if p.err == nil {
		p.err = err
	}
	return c
}

// constant reads a number or a bool.
func constant(text string) (any, error) {
	if text == "true" || text == "false" {
		return text == "true", nil
	}
	if large, found := strings.CutSuffix(text, "L"); found {
		return strconv.ParseInt(large, 10, 64)
	}
	if strings.ContainsAny(text, ".e") {
		return strconv.ParseFloat(text, 64)
	}
	small, err := strconv.ParseInt(text, 10, 32)
	return int32(small), err
}

// found takes what the pattern matches, or nothing.
func (p *parser) found(pattern *regexp.Regexp) string {
	text := pattern.FindString(p.rest)
	p.rest = p.rest[len(text):]
	return text
}

func (p *parser) take(pattern *regexp.Regexp) string {
	text := p.found(pattern)
	if text == "" && p.err == nil {
		p.err = fmt.Errorf("%q does not begin with %v", p.rest, pattern)
	}
	return text
}

// FuzzFilterText: a text in a filter is read back as it was, and nothing of it is read as anything else.
func FuzzFilterText(f *testing.F) {
	for _, text := range []string{"", "'", "' or A eq '", "''", "it's", "\x00", "ä🙂", "')", "a\nb"} {
		f.Add("A", text)
	}
	f.Add("A eq 'x' or B", "")
	f.Fuzz(func(t *testing.T, property, text string) {
		filter := table.And(table.Equal("First", int32(1)), table.Or(table.NotEqual(property, text), table.Equal("Last", true)))
		err := filter.Check()
		if valid := name.FindString(property) == property && property != "" && utf8.ValidString(text); !valid || err != nil {
			if !valid && err == nil {
				t.Errorf("%q and %q are accepted", property, text)
			}
			return
		}
		c, err := parse(filter.String())
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		if len(c.parts) != 2 || len(c.parts[1].parts) != 2 {
			t.Fatalf("%s has another form", filter)
		}
		if got := c.parts[1].parts[0]; got.property != property || got.operator != "ne" || got.value != text {
			t.Errorf("%s compares %s with %q", filter, got.property, got.value)
		}
	})
}
