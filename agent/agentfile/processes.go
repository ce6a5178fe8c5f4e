package agentfile

import (
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
)

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
		to.Command[0] = p.program(program)
	}
}

// program returns a path that stays one: joined with "." it would lose its separator, and be looked for in PATH.
func (p *parser) program(path string) string {
	joined := p.relative(path)
	if !filepath.IsAbs(joined) && !strings.ContainsRune(joined, filepath.Separator) {
		return "." + string(filepath.Separator) + joined
	}
	return joined
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
