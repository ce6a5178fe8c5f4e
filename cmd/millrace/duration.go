package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// durationVar defines a flag for a duration, with its default.
func durationVar(f *flag.FlagSet, to *time.Duration, name string, otherwise time.Duration, usage string) {
	*to = otherwise
	f.Var(duration{to}, name, usage)
}

// duration is a flag for a duration. Unlike the flag package's it explains an invalid value.
type duration struct{ to *time.Duration }

// String implements flag.Value.
func (d duration) String() string {
	if d.to == nil || *d.to == 0 {
		return "" // the help omits it
	}
	return d.to.String()
}

// Set implements flag.Value.
func (d duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil && text != "" && strings.Trim(text, "+-.0123456789") == "" {
		return fmt.Errorf("missing unit, write %ss for seconds", text)
	}
	if err != nil {
		return errors.New("write a number with a unit, such as 500ms, 30s, 5m or 24h")
	}
	*d.to = parsed
	return nil
}
