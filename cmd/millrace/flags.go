package main

import (
	"errors"
	"flag"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
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

// textVar adds a flag with a text. It refuses a blank one, such as that of an unset variable in a script, which would mean
// something else; instead says what to do about it. Nothing else is checked, because the flag package quotes an
// invalid value in its error.
func textVar(f *flag.FlagSet, to *string, name, instead, usage string) {
	f.Func(name, usage, func(given string) error {
		if strings.TrimSpace(given) == "" {
			return errors.New("must not be empty" + instead)
		}
		*to = given
		return nil
	})
}

// path adds a flag for a file or a directory.
func path(f *flag.FlagSet, to *string, name, usage string) {
	textVar(f, to, name, ": give a name, or omit the flag", usage)
}

// fromFile begins a value that names a file with the secret: all users of the machine can see the
// command line.
const fromFile = "@"

// secret matches a secret parameter of a connection string or an address.
var secret = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=[^&;\s"'<>]*`)

// redact removes secrets from messages, where misplaced arguments may have put them.
func redact(text string) string { return secret.ReplaceAllString(text, "$1=REDACTED") }

// quote quotes an argument for people, unless it looks like a location, which may contain a
// secret.
func quote(arg string) string {
	if isLocation(arg) {
		return "the location of an account (give it with -account)"
	}
	if len(arg) > 80 {
		arg = arg[:80] + "…"
	}
	return fmt.Sprintf("%q", arg)
}

// isLocation reports whether an argument looks like a connection string or an address.
func isLocation(arg string) bool { return azurestorage.IsLocation(arg) }

// textFlag is a flag for a value with a text.
type textFlag struct {
	text func() string
	set  func(text string) error
}

// String implements flag.Value.
func (f textFlag) String() string {
	if f.text == nil { // of the zero value, which the flag package compares with
		return ""
	}
	return f.text()
}

// Set implements flag.Value.
func (f textFlag) Set(text string) error { return f.set(text) }

// wholeVar defines a flag for a whole number within bounds. Its default is the present value.
func wholeVar(f *flag.FlagSet, to *int64, name string, least, most int64, usage string) {
	f.Var(textFlag{func() string { return strconv.FormatInt(*to, 10) }, func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return errors.New("write a whole number, such as 1000")
		}
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be between %s and %s", thousands(whole(least)), thousands(whole(most)))
		}
		*to = n
		return nil
	}}, name, usage)
}

const maxSpan = 24 * time.Hour

// spanVar defines a flag for a duration of up to a day. Its default is the present value.
func spanVar(f *flag.FlagSet, to *time.Duration, name string, least time.Duration, usage string) {
	f.Var(textFlag{func() string { return span(*to) }, func(text string) error {
		var d time.Duration
		if err := (duration{&d}).Set(text); err != nil {
			return err
		}
		if d < least || d > maxSpan {
			return fmt.Errorf("must be between %s and %s", span(least), span(maxSpan))
		}
		*to = d
		return nil
	}}, name, usage)
}

// span returns a duration without the parts that are zero, such as 22h.
func span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

const (
	maxDecimal  = 1_000_000
	maxDecimals = 9
)

// decimals matches plain ones: neither NaN, nor exponents, signs or fractions.
var decimals = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// decimalVar defines a flag for a decimal number that is not under the least, and is kept exactly. Its
// default is the present value.
func decimalVar(f *flag.FlagSet, to **big.Rat, name string, least int64, usage string) {
	text := func() string {
		if *to == nil {
			return ""
		}
		return decimal(*to, maxDecimals)
	}
	f.Var(textFlag{text, func(text string) error {
		if !decimals.MatchString(text) {
			return fmt.Errorf("write a decimal number, such as 0.004, with up to %d decimals", maxDecimals)
		}
		n, _ := new(big.Rat).SetString(text) // it cannot fail after that
		if n.Cmp(whole(least)) < 0 || n.Cmp(whole(maxDecimal)) > 0 {
			return fmt.Errorf("must be between %d and %s", least, thousands(whole(maxDecimal)))
		}
		*to = n
		return nil
	}}, name, usage)
}
