package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// completeVerb in place of a shell prints words. Only the scripts use it.
const completeVerb = "words"

// completionScripts make a shell ask this program for words. The shell itself completes file names
// where the program has no words.
var completionScripts = []struct{ shell, load, script string }{
	{"bash", "source <(millrace completion bash)", `_millrace() {
    local IFS=$'\n'
    COMPREPLY=($(millrace completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _millrace millrace
`},
	{"zsh", "source <(millrace completion zsh)", `#compdef millrace
_millrace() {
    local -a found
    found=(${(f)"$(millrace completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then
        compadd -- $found
    else
        _files
    fi
}
if [[ $funcstack[1] == _millrace ]]; then
    _millrace
else
    compdef _millrace millrace
fi
`},
	{"fish", "millrace completion fish | source", `function __millrace_words
    set -l before (commandline -opc)
    millrace completion words -- $before[2..-1] "$(commandline -ct)" 2>/dev/null
end
complete -c millrace -n 'test -n "$(__millrace_words)"' -f -a '(__millrace_words)'
`},
}

func completionCommand() *command {
	more := "It prints a script that completes commands, verbs, and flags. Write into the file that your shell\nreads when it starts:\n\n"
	for _, one := range completionScripts {
		more += fmt.Sprintf("  %-6s%s\n", one.shell, one.load)
	}
	return &command{name: "completion", args: "SHELL", does: "print a script that completes commands in bash, zsh or fish", flags: newFlags("completion"),
		more: more, minArgs: 1, maxArgs: -1,
		run: func(_ context.Context, c *console, args []string) error {
			if args[0] == completeVerb {
				_, err := io.WriteString(c.out, strings.Join(completions(args[1:]), ""))
				return err
			}
			for _, one := range completionScripts {
				if one.shell == args[0] && len(args) == 1 {
					_, err := io.WriteString(c.out, one.script)
					return err
				}
			}
			return usageError{fmt.Errorf("no script for %s: the shells are %s", quote(strings.Join(args, " ")), strings.Join(shells(), ", "))}
		}}
}

func shells() []string {
	var all []string
	for _, one := range completionScripts {
		all = append(all, one.shell)
	}
	return all
}

// completions returns the words that begin with the last of the arguments and may stand in its
// place, each on a line.
func completions(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	before, last := args[:len(args)-1], args[len(args)-1]
	var found []string
	for _, word := range following(before, strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(word, last) {
			found = append(found, word+"\n")
		}
	}
	return found
}

// following returns the words that may follow the arguments: flags, or commands and verbs.
func following(before []string, flags bool) []string {
	if len(before) == 0 {
		return commandNames()
	}
	if before[0] == "help" {
		return following(before[1:], false)
	}
	o, err := find(before[0])
	if err == nil && o.verbs != nil {
		if len(before) == 1 {
			return o.verbNames()
		}
		o, err = o.verb(before[1])
	}
	switch {
	case err != nil:
		return nil
	case o.name == "completion" && len(before) == 1:
		return shells()
	case !flags || slices.Contains(before, "--") || o.awaitsValue(before[len(before)-1]):
		return nil
	}
	return o.flagNames("-")
}

// awaitsValue reports whether an argument is a flag and the next argument is its value.
func (o *command) awaitsValue(arg string) bool {
	f := o.flags.Lookup(strings.TrimLeft(arg, "-"))
	if f == nil || !strings.HasPrefix(arg, "-") {
		return false
	}
	b, ok := f.Value.(interface {
		flag.Value
		IsBoolFlag() bool
	})
	return !ok || !b.IsBoolFlag()
}
