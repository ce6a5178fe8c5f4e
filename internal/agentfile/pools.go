package agentfile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent/azure"
	"go.yaml.in/yaml/v4"
)

func (p *parser) file(n *yaml.Node, f *File) {
	var pools *yaml.Node
	p.mapping(n, "the file", []field{
		{"interval", func(n *yaml.Node) {
			p.positive(&f.Interval, "interval")(n)
			if f.Interval > 0 && f.Interval < minInterval {
				p.fail(n, "interval is %v: write %v or more", f.Interval, minInterval)
			}
		}},
		{"folder", p.path(&f.Folder, "folder")},
		{"price", func(n *yaml.Node) {
			p.mapping(n, "price", []field{
				{"instance_hour", p.price(&f.Prices.InstanceHour, "instance_hour")},
				{"transactions", p.price(&f.Prices.Requests.Class1, "transactions")},
			})
		}},
		{"accounts", func(n *yaml.Node) { p.accounts(n, f) }},
		{"pools", func(n *yaml.Node) { pools = n }},
	})
	switch {
	case pools != nil: // read after the accounts, wherever they stand
		p.pools(pools, f)
	case n.Kind == yaml.MappingNode:
		p.fail(n, "the file has no pools: write pools, and the name of each with its queues")
	}
}

// minInterval is the least that an agent accepts.
const minInterval = time.Second

// names matches names of pools and accounts. Files are named after pools.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// name checks a name of a pool or an account.
func (p *parser) name(n *yaml.Node, what string) bool {
	if !names.MatchString(n.Value) {
		p.fail(n, "%s cannot be called %s: a name has up to 63 lower-case letters, digits and hyphens, and begins and ends with none of the latter", what, quote(n.Value))
		return false
	}
	return true
}

func (p *parser) accounts(n *yaml.Node, f *File) {
	for key, value := range p.pairs(n, "accounts") {
		if !p.name(key, "an account") {
			continue
		}
		f.Accounts = append(f.Accounts, Account{Name: key.Value})
		p.account(value, &f.Accounts[len(f.Accounts)-1])
	}
}

func (p *parser) account(n *yaml.Node, a *Account) {
	owner := "account " + a.Name
	before := len(p.problems)
	p.mapping(n, owner, []field{
		{"environment", func(n *yaml.Node) {
			a.Environment, _ = p.text(n, "environment", "the name of an environment variable with the location")
			if strings.ContainsAny(a.Environment, "=\x00") {
				p.fail(n, "environment is %s: write only the name of an environment variable", quote(a.Environment))
			}
		}},
		{"file", p.path(&a.File, "file")},
		{"address", func(n *yaml.Node) { p.address(n, a) }},
	})
	given := len(slices.DeleteFunc([]string{a.Environment, a.File, a.Address}, func(one string) bool { return one == "" }))
	if given != 1 && len(p.problems) == before {
		p.fail(n, "%s has %d locations: write one of environment, file and address", owner, given)
	}
}

// address reads an address without a secret.
func (p *parser) address(n *yaml.Node, a *Account) {
	const write = "https://ACCOUNT.queue.core.windows.net, or UseDevelopmentStorage=true for the server on this machine"
	text, ok := p.text(n, "address", write)
	switch {
	case !ok:
	case text == "UseDevelopmentStorage=true", strings.HasPrefix(text, "https://") && !strings.Contains(text, "?"):
		a.Address = text
	default:
		p.fail(n, "address is none without a secret: write %s", write)
	}
}

func (p *parser) pools(n *yaml.Node, f *File) {
	for key, value := range p.pairs(n, "pools") {
		if !p.name(key, "a pool") {
			continue
		}
		f.Pools = append(f.Pools, Pool{Name: key.Value})
		p.pool(value, &f.Pools[len(f.Pools)-1], f)
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		p.fail(n, "pools is empty: write the name of each pool with its queues")
	}
}

func (p *parser) pool(n *yaml.Node, to *Pool, f *File) {
	owner := "pool " + to.Name
	given := false
	p.mapping(n, owner, []field{
		{"queues", func(n *yaml.Node) {
			given = true
			to.Queues = p.queues(n, "queues of "+owner, f)
			for _, q := range to.Queues {
				for _, other := range f.Pools[:len(f.Pools)-1] {
					if slices.Contains(other.Queues, q) {
						p.fail(n, "%s has the queue %s, which pool %s has already: %s", owner, q, other.Name, oneQueue)
					}
				}
			}
		}},
		{"beacons", func(n *yaml.Node) { to.Beacons = p.queues(n, "beacons of "+owner, f) }},
		{"policy", func(n *yaml.Node) { p.policy(n, "the policy of "+owner, &to.Policy) }},
		{"processes", func(n *yaml.Node) {
			to.Processes = new(Processes)
			p.processes(n, "processes of "+owner, to.Processes)
			if f.Folder == "" {
				p.fail(n, "processes of %s need a folder, in which the agent keeps which of them run: write folder beside pools", owner)
			}
		}},
		{"azure", func(n *yaml.Node) { p.azure(n, owner, to, f) }},
	})
	if !given && n.Kind == yaml.MappingNode {
		p.fail(n, "%s has no queues: write queues, such as [orders]", owner)
	}
	if to.Processes != nil && to.Azure != "" {
		p.fail(n, "%s has both processes and azure: write one of them", owner)
	}
}

// azure reads the id of a resource of Azure, which only one pool may scale.
func (p *parser) azure(n *yaml.Node, owner string, to *Pool, f *File) {
	id, ok := p.text(n, "azure of "+owner, "the id of a container app or a scale set")
	if !ok {
		return
	}
	if err := azure.Check(id); err != nil {
		p.fail(n, "azure of %s is %s: %v", owner, quote(id), err)
		return
	}
	for _, other := range f.Pools {
		if strings.EqualFold(other.Azure, id) {
			p.fail(n, "azure of %s is that of pool %s: the two would undo each other's changes", owner, other.Name)
			return
		}
	}
	to.Azure = id
}

func (p *parser) queues(n *yaml.Node, what string, f *File) (found []Queue) {
	p.each(n, what, "a list, such as [orders]", func(n *yaml.Node) {
		q, ok := p.queue(n, what, f)
		if !ok {
			return
		}
		if slices.Contains(found, q) {
			p.fail(n, "%s has %s twice", what, q)
			return
		}
		found = append(found, q)
	})
	return found
}

// queue reads the name of a queue, which may follow that of an account.
func (p *parser) queue(n *yaml.Node, what string, f *File) (Queue, bool) {
	text, ok := p.text(n, what, "the name of a queue, or ACCOUNT/QUEUE")
	if !ok {
		return Queue{}, false
	}
	account, name, prefixed := strings.Cut(text, "/")
	if !prefixed {
		account, name = "", text
	}
	var accounts []string
	for _, a := range f.Accounts {
		accounts = append(accounts, a.Name)
	}
	if prefixed && !slices.Contains(accounts, account) {
		p.fail(n, "%s has %s, but the file has no account %s%s: write it under accounts, and where its location is", what, quote(text), quote(account), naming.Hint(account, accounts))
		return Queue{}, false
	}
	if err := driver.CheckName(name); err != nil {
		p.fail(n, "%s has %s: a name of a queue has 3 to 63 lower-case letters, digits and single hyphens, and begins and ends with a letter or digit", what, quote(text))
		return Queue{}, false
	}
	return Queue{account, name}, true
}

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
	case "ToZero", "Forecast", "Spare", "Wait", "CPU", "Memory": // there it means what it says
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

// keyOf returns the key of a field, such as down_after of DownAfter, and cpu of CPU.
func keyOf(field string) string {
	var b strings.Builder
	lower := false // the letter before
	for _, r := range field {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('_')
		}
		lower = unicode.IsLower(r)
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

// processes reads how instances are started on this machine.
func (p *parser) processes(n *yaml.Node, owner string, to *Processes) {
	given := false
	p.mapping(n, owner, []field{
		{"command", func(n *yaml.Node) {
			given = true
			p.command(n, to)
		}},
		{"environment", func(n *yaml.Node) { p.environment(n, to) }},
		{"grace", p.positive(&to.Grace, "grace")},
		{"log", p.path(&to.Log, "log")},
	})
	if !given && n.Kind == yaml.MappingNode {
		p.fail(n, "%s has no command: write a list of the program and its arguments, such as [./worker]", owner)
	}
}

// command reads a program and its arguments. Arguments may be empty.
func (p *parser) command(n *yaml.Node, to *Processes) {
	const what, write = "command", "a list of the program and its arguments, such as [./worker, -queue, orders]"
	p.each(n, what, write, func(n *yaml.Node) {
		if p.is(n, yaml.ScalarNode, what, write) {
			to.Command = append(to.Command, n.Value)
		}
	})
	if len(to.Command) == 0 {
		return
	}
	switch program := to.Command[0]; {
	case strings.TrimSpace(program) == "":
		p.fail(n, "command begins with nothing: write %s", write)
	case strings.ContainsRune(program, filepath.Separator): // otherwise it is looked for in PATH
		to.Command[0] = p.relative(program)
		// Joined with "." it would lose its separator, and be looked for in PATH.
		if path := to.Command[0]; !filepath.IsAbs(path) && !strings.ContainsRune(path, filepath.Separator) {
			to.Command[0] = "." + string(filepath.Separator) + path
		}
	}
}

func (p *parser) environment(n *yaml.Node, to *Processes) {
	for key, value := range p.pairs(n, "environment") {
		if key.Value == "" || strings.ContainsRune(key.Value, '=') {
			p.fail(key, "environment has the variable %s: write NAME: value", quote(key.Value))
			continue
		}
		if p.is(value, yaml.ScalarNode, key.Value, "its value, or \"\" for an empty one") {
			to.Environment = append(to.Environment, key.Value+"="+value.Value)
		}
	}
}
