package agentfile

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/millrace/millrace/scaling"
)

// policy reads a policy. Its keys are the fields of [scaling.Policy] in lower case, with underscores, so that none can be
// forgotten.
func (p *parser) policy(n *yaml.Node, owner string, to *scaling.Policy) {
	before := len(p.problems)
	v := reflect.ValueOf(to).Elem()
	fields := make([]field, v.NumField())
	lines := map[string]*yaml.Node{} // by the name of the field
	for i := range fields {
		name := v.Type().Field(i).Name
		read := p.value(v.Field(i), keyOf(name))
		fields[i] = field{keyOf(name), func(n *yaml.Node) {
			lines[name] = n
			problems := len(p.problems)
			read(n)
			if len(p.problems) == problems && v.Field(i).IsZero() {
				p.refuseZero(n, name)
			}
		}}
	}
	p.mapping(n, owner, fields)
	if len(p.problems) > before { // what is missing would be wrong again
		return
	}
	for _, err := range eachError(to.Check()) {
		at, text := n, strings.TrimPrefix(err.Error(), "scaling policy: ")
		// The policy calls its fields what Go programs call them.
		text = word.ReplaceAllStringFunc(text, func(name string) string {
			if _, known := v.Type().FieldByName(name); !known {
				return name
			}
			if found := lines[name]; found != nil && at == n {
				at = found
			}
			return keyOf(name)
		})
		p.fail(at, "%s: %s", owner, text)
	}
}

// refuseZero refuses a zero for which the policy would take its default.
func (p *parser) refuseZero(n *yaml.Node, field string) {
	switch field {
	case "ToZero", "Forecast", "Spare", "Wait": // there it means what it says
	case "Min":
		p.fail(n, "min is 0: write to_zero: true instead, so that the last instance may go too")
	default:
		p.fail(n, "%s is %s: write more than zero, or leave the key out for the default", keyOf(field), n.Value)
	}
}

// word matches the name of a field.
var word = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

func (p *parser) value(v reflect.Value, name string) func(n *yaml.Node) {
	switch to := v.Addr().Interface().(type) {
	case *int:
		return p.whole(to, name)
	case *bool:
		return p.truth(to, name)
	case *float64:
		return p.fraction(to, name)
	case *time.Duration:
		return p.duration(to, name)
	}
	panic(fmt.Sprintf("agentfile: no value of a file is a %v, as %s is", v.Type(), name)) // a test reads each of them
}

// keyOf returns the key of a field, such as down_after of DownAfter.
func keyOf(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func eachError(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
