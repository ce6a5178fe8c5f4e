package aztable_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/table"
)

// parseFilter reads the OData expression of a query as the service does, as far as aztable writes it.
func parseFilter(text string) (table.Query, error) {
	p := &filterParser{rest: text}
	if text == "" {
		return p.q, nil
	}
	f, err := p.or(true)
	if err == nil && p.rest != "" {
		err = fmt.Errorf("what follows is not understood: %q", p.rest)
	}
	p.q.Filter = f
	return p.q, err
}

type filterParser struct {
	rest string
	q    table.Query
}

func (p *filterParser) cut(prefix string) bool {
	var found bool
	p.rest, found = strings.CutPrefix(p.rest, prefix)
	return found
}

// or reads conditions that "or" connects. Only at the top are keys among them.
func (p *filterParser) or(top bool) (table.Filter, error) {
	return p.list(" or ", table.Or, func() (table.Filter, error) {
		return p.list(" and ", table.And, func() (table.Filter, error) { return p.one(top) })
	})
}

func (p *filterParser) list(connective string, join func(...table.Filter) table.Filter, one func() (table.Filter, error)) (table.Filter, error) {
	var all []table.Filter
	for {
		f, err := one()
		if err != nil {
			return f, err
		}
		all = append(all, f)
		if !p.cut(connective) {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return join(all...), nil
}

var comparison = regexp.MustCompile(`^(\w+) (eq|ne|lt|le|gt|ge) `)

func (p *filterParser) one(top bool) (table.Filter, error) {
	if p.cut("(") {
		f, err := p.or(false)
		if err == nil && !p.cut(")") {
			err = errors.New("a parenthesis is not closed")
		}
		return f, err
	}
	m := comparison.FindStringSubmatch(p.rest)
	if m == nil {
		return table.Filter{}, fmt.Errorf("no comparison: %q", p.rest)
	}
	p.rest = p.rest[len(m[0]):]
	value, err := p.literal()
	if err != nil {
		return table.Filter{}, err
	}
	if text, isText := value.(string); top && isText {
		switch m[1] + " " + m[2] {
		case "PartitionKey eq":
			p.q.Partition = text
			return table.Filter{}, nil
		case "RowKey ge":
			p.q.FromRow = text
			return table.Filter{}, nil
		case "RowKey lt":
			p.q.ToRow = text
			return table.Filter{}, nil
		}
	}
	of := map[string]func(string, any) table.Filter{
		"eq": table.Equal, "ne": table.NotEqual, "lt": table.Less, "le": table.LessOrEqual, "gt": table.Greater, "ge": table.GreaterOrEqual,
	}[m[2]]
	return of(m[1], value), nil
}

var number = regexp.MustCompile(`^-?[0-9.]+(e[+-]?[0-9]+)?L?`)

func (p *filterParser) literal() (any, error) {
	for prefix, parse := range map[string]func(string) (any, error){
		"'":         func(s string) (any, error) { return s, nil },
		"X'":        func(s string) (any, error) { return hex.DecodeString(s) },
		"datetime'": func(s string) (any, error) { return time.Parse(time.RFC3339Nano, s) },
		"guid'":     func(s string) (any, error) { return table.GUID(s), nil },
	} {
		if p.cut(prefix) {
			text, rest, err := cutLiteral("'" + p.rest)
			if err != nil {
				return nil, err
			}
			p.rest = rest
			return parse(text)
		}
	}
	switch {
	case p.cut("true"):
		return true, nil
	case p.cut("false"):
		return false, nil
	}
	text := number.FindString(p.rest)
	p.rest = p.rest[len(text):]
	if digits, long := strings.CutSuffix(text, "L"); long {
		return strconv.ParseInt(digits, 10, 64)
	}
	if strings.ContainsAny(text, ".e") {
		return strconv.ParseFloat(text, 64)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}
