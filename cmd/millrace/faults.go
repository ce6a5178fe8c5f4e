package main

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/millrace/millrace/emulator"
)

func (s *settings) parseFaults() (err error) {
	if s.rules, err = emulator.ParseFaults(s.faults); err != nil {
		return fmt.Errorf("-faults: %w", err)
	}
	if s.limits, err = emulator.ParseLimits(s.limit); err != nil {
		return fmt.Errorf("-limit: %w", err)
	}
	if len(s.rules) > 0 && s.seed == 0 {
		s.seed = newSeed()
	}
	return nil
}

// newSeed returns a random seed. It is short: users type it again.
func newSeed() uint64 { return 1 + rand.Uint64N(1_000_000) }

// injectFaults sets the options for -faults, -limit and -log.
func (s *settings) injectFaults(o *emulator.Options, out io.Writer) {
	if len(s.rules) > 0 {
		o.Faults = &emulator.Faults{Seed: s.seed, Rules: s.rules}
	}
	o.Limits = s.limits
	if s.log {
		o.Log = slog.New(slog.NewTextHandler(out, nil))
	}
}

// formatFaults returns rules as they were parsed.
func formatFaults(rules []emulator.Fault) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}
