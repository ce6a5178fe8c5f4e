package agentfile

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/queue"
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
		{"price", func(n *yaml.Node) { p.prices(n, &f.Prices) }},
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

func (p *parser) prices(n *yaml.Node, to *agent.Prices) {
	p.mapping(n, "price", []field{
		{"instance_hour", p.price(&to.InstanceHour, "instance_hour")},
		{"transactions", p.price(&to.Requests.Class1, "transactions")},
	})
}

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
	given := 0
	for _, one := range []string{a.Environment, a.File, a.Address} {
		if one != "" {
			given++
		}
	}
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
	})
	if !given && n.Kind == yaml.MappingNode {
		p.fail(n, "%s has no queues: write queues, such as [orders]", owner)
	}
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
	if prefixed && !slices.ContainsFunc(f.Accounts, func(a Account) bool { return a.Name == account }) {
		p.fail(n, "%s has %s, but the file has no account %s%s: write it under accounts, and where its location is", what, quote(text), quote(account), naming.Hint(account, accountNames(f)))
		return Queue{}, false
	}
	if err := queue.CheckName(name); err != nil {
		p.fail(n, "%s has %s: a name of a queue has 3 to 63 lower-case letters, digits and single hyphens, and begins and ends with a letter or digit", what, quote(text))
		return Queue{}, false
	}
	return Queue{account, name}, true
}

func accountNames(f *File) []string {
	all := make([]string, len(f.Accounts))
	for i, a := range f.Accounts {
		all[i] = a.Name
	}
	return all
}
