package agentfile

import (
	"fmt"
	"reflect"
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
	for i := range fields {
		name := keyOf(v.Type().Field(i).Name)
		fields[i] = field{name, p.value(v.Field(i), name)}
	}
	p.mapping(n, owner, fields)
	if len(p.problems) > before { // what is missing would be wrong again
		return
	}
	for _, err := range eachError(to.Check()) {
		p.fail(n, "%s: %s", owner, err)
	}
}

// value returns what reads a field.
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

// eachError returns the errors that an error joins.
func eachError(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only if it is one itself
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
