package agentfile

import (
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

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

func (p *parser) whole(to *int, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		const write = "a whole number, such as 4"
		text, ok := p.text(n, what, write)
		if !ok {
			return
		}
		i, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			p.fail(n, "%s is %s: write %s", what, quote(text), write)
			return
		}
		*to = int(i)
	}
}

func (p *parser) fraction(to *float64, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		const write = "a number, such as 0.8"
		text, ok := p.text(n, what, write)
		if !ok {
			return
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			p.fail(n, "%s is %s: write %s", what, quote(text), write)
			return
		}
		*to = f
	}
}

// truth reads true or false.
func (p *parser) truth(to *bool, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		const write = "true or false"
		text, ok := p.text(n, what, write)
		if !ok {
			return
		}
		switch text {
		case "true":
			*to = true
		case "false":
			*to = false
		default:
			p.fail(n, "%s is %s: write %s", what, quote(text), write)
		}
	}
}

// decimals matches plain ones: no signs, exponents or words.
var decimals = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// price reads a sum of money.
func (p *parser) price(to *float64, what string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		const write = "a decimal number without a currency, such as 0.05"
		text, ok := p.text(n, what, write)
		if !ok {
			return
		}
		if !decimals.MatchString(text) {
			p.fail(n, "%s is %s: write %s", what, quote(text), write)
			return
		}
		*to, _ = strconv.ParseFloat(text, 64) // it cannot fail after that
	}
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
