package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/emulator"
)

func faultsCommand() *command {
	return &command{name: "faults", args: "VERB", does: "make a server that runs fail on purpose, and end it", flags: newFlags("faults"), more: faultsMore,
		verbs: []*command{faultsSetCommand(), faultsShowCommand(), faultsClearCommand()}}
}

const faultsMore = `It works on a server that millrace serve or package emulator runs, for all its accounts and all
clients, also those that are connected. Other servers, such as Azure and Azurite, have no faults.
`

// maxFaultsQuery is how many bytes of rules a request may carry: a server accepts heads of up to 64 KiB.
const maxFaultsQuery = 60_000

func faultsSetCommand() *command {
	var account accountFlag
	var seed uint64
	f := newFlags("faults set")
	account.addAlone(f)
	f.Uint64Var(&seed, "seed", 0, "make the faults with a share repeatable; 0 is a random seed")
	return &command{name: "faults set", args: "RULES", does: "replace the faults of a server by these", flags: f, minArgs: 1, maxArgs: -1,
		more:     "The rules apply to the requests that arrive from then on, and count them from 1. Most shells want quotes\naround rules that begin with an asterisk.\n",
		epilogue: faultRulesHelp("RULES"),
		run: func(ctx context.Context, c *console, args []string) error {
			rules, err := emulator.ParseFaults(strings.Join(args, " "))
			if err != nil {
				return usageError{err}
			}
			if len(rules) == 0 {
				return usageError{errors.New("no rules: write one, such as *:503, or end the faults with millrace faults clear")}
			}
			if seed == 0 {
				seed = newSeed()
			}
			query := "&rules=" + url.QueryEscape(formatFaults(rules)) + "&seed=" + strconv.FormatUint(seed, 10)
			if len(query) > maxFaultsQuery {
				return usageError{fmt.Errorf("%d rules are too long for a request, which carries them in its address: use fewer", len(rules))}
			}
			return c.onServer(ctx, &account, func(_ context.Context, t *task, s *faultsClient) error {
				_, err := s.send(t.finish, http.MethodPut, query)
				return t.report(err, "%s has the faults %s (repeat with -seed %d).\n", s.host(), formatFaults(rules), seed)
			})
		}}
}

func faultsShowCommand() *command {
	return faultsVerb("faults show", "show the faults of a server", func(ctx context.Context, t *task, s *faultsClient) error {
		text, err := s.send(ctx, http.MethodGet, "")
		if err != nil {
			return err
		}
		rules, seed := parseShownFaults(text)
		if len(rules) == 0 {
			return t.report(nil, "%s has no faults.\n", s.host())
		}
		return t.report(nil, "%s has the faults %s (repeat with -seed %s).\n", s.host(), strings.Join(rules, " "), seed)
	})
}

func faultsClearCommand() *command {
	return faultsVerb("faults clear", "end the faults of a server", func(_ context.Context, t *task, s *faultsClient) error {
		_, err := s.send(t.finish, http.MethodDelete, "")
		return t.report(err, "%s has no faults.\n", s.host())
	})
}

// faultsVerb returns a verb without arguments.
func faultsVerb(name, does string, do func(context.Context, *task, *faultsClient) error) *command {
	var account accountFlag
	f := newFlags(name)
	account.addAlone(f)
	return &command{name: name, does: does, flags: f, run: func(ctx context.Context, c *console, _ []string) error {
		return c.onServer(ctx, &account, do)
	}}
}

// onServer runs do with a client for the faults of the account's server, and handles signals.
func (c *console) onServer(ctx context.Context, a *accountFlag, do func(context.Context, *task, *faultsClient) error) error {
	return c.onAccount(ctx, a, func(ctx context.Context, t *task) error {
		location, source, err := a.location(c)
		if err != nil {
			return usageError{fmt.Errorf("%s: %w", source, err)}
		}
		s, err := newFaultsClient(location, source)
		if err != nil {
			return err
		}
		defer s.close()
		return do(ctx, t, s)
	})
}

// parseShownFaults returns the rules and the seed in a response. Lines that begin with another word are ignored.
func parseShownFaults(text string) (rules []string, seed string) {
	for line := range strings.Lines(text) {
		switch word, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " "); word {
		case "rule":
			rules = append(rules, escapeControls(rest))
		case "seed":
			seed = escapeControls(rest)
		}
	}
	return rules, seed
}
