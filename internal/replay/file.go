package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A setting is one line "# name: value" of a file.
type setting struct {
	name string
	set  func(t *Trace, text string) error
	get  func(t *Trace) string // "" for what need not be written
}

// settings are those of a file, in the order in which they are written.
var settings = []setting{
	{"trace", setName, func(t *Trace) string { return t.Name }},
	duration("step", func(t *Trace) *time.Duration { return &t.Step }),
	duration("handling", func(t *Trace) *time.Duration { return &t.Handling }),
	count("slots", func(t *Trace) *int { return &t.Slots }),
	duration("start", func(t *Trace) *time.Duration { return &t.Start }),
	share("vary", func(t *Trace) *float64 { return &t.Vary }),
	duration("sla", func(t *Trace) *time.Duration { return &t.SLA }),
	count("initial", func(t *Trace) *int { return &t.Initial }),
	count("max", func(t *Trace) *int { return &t.Max }),
	{"accounts", setAccounts, func(t *Trace) string { return strings.Join(t.Accounts, ", ") }},
	share("noise", func(t *Trace) *float64 { return &t.Noise }),
	share("missing", func(t *Trace) *float64 { return &t.Missing }),
	{"seed", func(t *Trace, text string) (err error) {
		if t.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("seed is %q: write a whole number, such as 7", text)
		}
		return nil
	}, func(t *Trace) string { return strconv.FormatUint(t.Seed, 10) }},
}

// field is the setting of a field of the trace, which is not written if it is zero.
func field[T comparable](name string, of func(*Trace) *T, parse func(string) (T, error), write string, format func(T) string) setting {
	return setting{name, func(t *Trace, text string) error {
		value, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s is %q: write %s", name, text, write)
		}
		*of(t) = value
		return nil
	}, func(t *Trace) string {
		if *of(t) == *new(T) {
			return ""
		}
		return format(*of(t))
	}}
}

func duration(name string, of func(*Trace) *time.Duration) setting {
	return field(name, of, time.ParseDuration, "a duration, such as 90s", time.Duration.String)
}

func count(name string, of func(*Trace) *int) setting {
	return field(name, of, strconv.Atoi, "a whole number, such as 20", strconv.Itoa)
}

func share(name string, of func(*Trace) *float64) setting {
	parse := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	return field(name, of, parse, "a share, such as 0.05", number)
}

func setName(t *Trace, text string) error {
	if text == "" {
		return errors.New("trace has no name: write one, or leave out the line")
	}
	t.Name = text
	return nil
}

func setAccounts(t *Trace, text string) error {
	t.Accounts = nil
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if one == "" || slices.Contains(t.Accounts, one) {
			return fmt.Errorf("accounts are %q: write different names, separated by commas", text)
		}
		t.Accounts = append(t.Accounts, one)
	}
	return nil
}

// What a file leaves out.
const (
	defaultStep  = time.Minute
	defaultSlots = 64
	defaultStart = 30 * time.Second
	defaultSLA   = 2 * time.Minute
	defaultMax   = 20
)

// longestFile is how much of a file is read.
const longestFile = 64 << 20

// The columns of a file.
const (
	arrivalsColumn = "arrivals"
	poisonColumn   = "poison"
	handlingColumn = "handling"
	timeColumn     = "time"
)

// Read reads a trace from a file of comma-separated values. Errors name the file, the line and the reason. It does not check that the trace can be
// replayed: [Run] does.
//
// Lines that begin with # are settings, or comments if they have no colon after one of these names:
//
//	# trace: mondays         its name; defaults to that of the file
//	# step: 1m               how long each line of figures lasts; defaults to 1m
//	# handling: 250ms        how long a message occupies a slot; needed unless there is a column of that name
//	# slots: 64              handlers of one instance at once; defaults to 64
//	# start: 30s             until an instance takes its first job; defaults to 30s
//	# vary: 0.5              start is within ± this share; defaults to 0
//	# sla: 2m                within what time a job should end; defaults to 2m
//	# initial: 1             instances at the beginning; defaults to 1
//	# max: 20                most instances; defaults to 20
//	# accounts: one, two     storage accounts that share the load; defaults to one
//	# noise: 0.05            how far readings are off; defaults to 0
//	# missing: 0.01          share of readings that fail; defaults to 0
//	# seed: 1                of the random numbers; defaults to 0
//
// The first other line names the columns, in any order: arrivals, which is needed, poison, handling (a duration) and time, which is not
// read. Each line after it is one step, and its handling time is that of every job that begins in it. Empty lines are skipped.
func Read(r io.Reader, name string) (Trace, error) {
	t := Trace{Name: name, Step: defaultStep, Slots: defaultSlots, Start: defaultStart, SLA: defaultSLA, Initial: 1, Max: defaultMax}
	bounded := &io.LimitedReader{R: r, N: longestFile + 1}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(nil, 1<<20)
	var columns []string
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if n == 1 {
			text = strings.TrimPrefix(text, "\ufeff") // a byte order mark
		}
		var err error
		switch {
		case text == "":
		case strings.HasPrefix(text, "#"):
			err = t.readSetting(text[1:])
		case columns == nil:
			columns, err = readColumns(text)
		default:
			err = t.readStep(columns, text)
		}
		if err != nil {
			return Trace{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	switch {
	case lines.Err() != nil:
		return Trace{}, fmt.Errorf("%s: %w", name, lines.Err())
	case bounded.N == 0:
		return Trace{}, fmt.Errorf("%s: it is longer than %d MiB: replay a part of it, or longer steps", name, longestFile>>20)
	case len(t.Arrivals) == 0:
		return Trace{}, fmt.Errorf("%s: there are no steps: write a line that says %s, and a number of messages in each line after it", name, arrivalsColumn)
	case t.Handling == 0 && t.Handlings == nil:
		return Trace{}, fmt.Errorf("%s: nothing says how long a message is handled: write a line such as # handling: 250ms", name)
	}
	return t, nil
}

func (t *Trace) readSetting(text string) error {
	name, value, found := strings.Cut(text, ":")
	if !found {
		return nil
	}
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	for _, s := range settings {
		if s.name == name {
			return s.set(t, value)
		}
	}
	return nil
}

func readColumns(text string) ([]string, error) {
	columns := strings.Split(text, ",")
	for i, c := range columns {
		columns[i] = strings.ToLower(strings.TrimSpace(c))
		if !slices.Contains([]string{arrivalsColumn, poisonColumn, handlingColumn, timeColumn}, columns[i]) {
			return nil, fmt.Errorf("column %q: the columns are arrivals, poison, handling and time, and their names come before the figures", c)
		}
		if slices.Contains(columns[:i], columns[i]) {
			return nil, fmt.Errorf("column %q: it is there twice", c)
		}
	}
	if !slices.Contains(columns, arrivalsColumn) {
		return nil, errors.New("there is no column arrivals: it says how many messages come in each step")
	}
	return columns, nil
}

func (t *Trace) readStep(columns []string, text string) error {
	values := strings.Split(text, ",")
	if len(values) != len(columns) {
		return fmt.Errorf("there are %d values in %d columns", len(values), len(columns))
	}
	for i, c := range columns {
		if err := t.readValue(c, strings.TrimSpace(values[i])); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trace) readValue(column, text string) error {
	switch column {
	case arrivalsColumn, poisonColumn:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= mostMessages) {
			return fmt.Errorf("%s is %q: write a number of messages, such as 120", column, text)
		}
		if column == arrivalsColumn {
			t.Arrivals = append(t.Arrivals, n)
		} else {
			t.Poison = append(t.Poison, n)
		}
	case handlingColumn:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("handling is %q: write a duration, such as 250ms", text)
		}
		t.Handlings = append(t.Handlings, d)
	}
	return nil
}

// Write writes the trace as [Read] reads it. A name that Read would read otherwise is an error: it must be one line, not empty, without spaces around it.
func (t *Trace) Write(w io.Writer) error {
	if t.Name == "" || t.Name != strings.TrimSpace(t.Name) || strings.ContainsAny(t.Name, "\r\n") {
		return fmt.Errorf("trace %q: its name must be one line, not empty, without spaces around it", t.Name)
	}
	for _, a := range t.Accounts {
		if a == "" || a != strings.TrimSpace(a) || strings.ContainsAny(a, ",\r\n") {
			return fmt.Errorf("trace %q: account %q: a name has no commas, lines and spaces around it", t.Name, a)
		}
	}
	var b strings.Builder
	for _, s := range settings {
		// What Read would put in the place of nothing is written even if it is zero.
		switch text := s.get(t); {
		case text != "":
			fmt.Fprintf(&b, "# %s: %s\n", s.name, text)
		case s.name == "start":
			fmt.Fprintln(&b, "# start: 0s")
		case s.name == "initial":
			fmt.Fprintln(&b, "# initial: 0")
		}
	}
	columns := []string{arrivalsColumn}
	if t.Poison != nil {
		columns = append(columns, poisonColumn)
	}
	if t.Handlings != nil {
		columns = append(columns, handlingColumn)
	}
	fmt.Fprintln(&b, strings.Join(columns, ","))
	for i, n := range t.Arrivals {
		b.WriteString(number(n))
		if t.Poison != nil {
			b.WriteString("," + number(t.poison(i)))
		}
		if t.Handlings != nil {
			b.WriteString("," + t.Handlings[i].String())
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number returns the shortest text of a number that is read as the same number.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
