package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/agent/agentfile"
)

const agentMore = `It measures the pools of a file, decides how many instances each needs, and starts and ends processes on
this machine. Each decision that changes something is a line with its reason. The file is described, with
an example, at ` + documents + `agent.md

With -dry-run it says for an hour what it would do, and then what that would cost. With -replay it plays a
trace of load against the policy and against the rules that others use, and asks no account.
`

const agentEpilogue = `
The first Ctrl-C lets instances finish their jobs and end, or go on with -leave. The second ends the agent
at once; what still runs is left to itself, until the next agent with the same folder takes over.
`

type agentSettings struct {
	account accountFlag
	config  string
	dryRun  bool
	length  time.Duration // of a dry run
	leave   bool
	replay  string
	pool    string
	asJSON  bool
}

// end returns after what time a dry run ends: right before a measurement that would fall due at its end.
func (s *agentSettings) end() time.Duration { return s.length - 1 }

func agentCommand() *command {
	s := new(agentSettings)
	f := newFlags("agent")
	path(f, &s.config, "config", "the `file` that says what to scale, YAML")
	s.account.addAlone(f)
	f.BoolVar(&s.dryRun, "dry-run", false, "change nothing: say what would be done, and what that would cost")
	durationVar(f, &s.length, "for", 0, "how long a dry run takes, a `duration` (default 1h)")
	f.BoolVar(&s.leave, "leave", false, "leave instances at work when the agent stops; the next one with the same folder\ntakes over")
	path(f, &s.replay, "replay", "play the trace in this `file` against the policy, CSV")
	f.StringVar(&s.pool, "pool", "", "with -replay: the policy of the pool with this `name`, if the file has several")
	f.BoolVar(&s.asJSON, "json", false, "print one JSON object per decision, each on its own line, and one per pool at the end")
	return &command{name: "agent", does: "start and end instances as the load requires", more: agentMore, epilogue: agentEpilogue, flags: f,
		run: func(ctx context.Context, c *console, _ []string) error {
			if err := s.check(); err != nil {
				return usageError{err}
			}
			file, err := agentfile.Read(s.config)
			if err != nil {
				return c.problems(err, s.config)
			}
			if s.replay != "" {
				return s.replayTrace(c, file)
			}
			return s.scale(ctx, c, file)
		}}
}

// check refuses flags that are missing or contradict each other.
func (s *agentSettings) check() error {
	switch {
	case s.config == "":
		return errors.New("missing -config: write millrace agent -config FILE; an example of the file is at " + documents + "agent.md")
	case s.length < 0:
		return fmt.Errorf("-for %v is negative", s.length)
	case s.length > 0 && !s.dryRun:
		return errors.New("-for is how long a dry run takes: add -dry-run")
	case s.leave && s.dryRun:
		return errors.New("-leave with -dry-run: a dry run has no instances to leave; omit one of them")
	case s.replay != "" && (s.dryRun || s.leave || s.account.given != ""):
		return errors.New("-replay asks no account and has no instances: omit -dry-run, -leave and -account")
	case s.pool != "" && s.replay == "":
		return errors.New("-pool chooses the policy for -replay: add that, or omit -pool")
	}
	if s.length == 0 {
		s.length = time.Hour
	}
	return nil
}

// problems prints what is wrong with a file, a line each, if there is more than one, and returns the error for the last line.
func (c *console) problems(err error, path string) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return err
	}
	for _, line := range lines {
		printf(c.err, "%s\n", escapeControls(redact(line)))
	}
	return fmt.Errorf("%s: %d errors, listed above", path, len(lines))
}

// scale runs an agent until a signal, or until a dry run is over.
func (s *agentSettings) scale(ctx context.Context, c *console, file *agentfile.File) error {
	location, source, err := s.account.location(c)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", source, err)}
	}
	opened, err := file.Open(&agentfile.Sources{Default: location, Getenv: c.getenv})
	if err != nil {
		return c.problems(err, s.config)
	}
	defer opened.Close()
	finish, halt := context.WithCancel(ctx)
	defer halt()
	return millrace.Run(ctx, newAgentRun(finish, halt, s, c, file, opened.Pools))
}
