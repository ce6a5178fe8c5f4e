package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parser reads the value of a flag, or one of several.
type parser[T any] func(text string) (T, error)

// one defines a flag with a single value.
func one[T any](f *flag.FlagSet, into *T, preset T, parse parser[T], name, usage string) {
	*into = preset
	f.Func(name, fmt.Sprintf("%s (default %v)", usage, preset), func(text string) (err error) {
		*into, err = parse(text)
		return err
	})
}

// several defines a flag with values that are separated by commas.
func several[T any](f *flag.FlagSet, into *[]T, preset []T, parse parser[T], name, usage string) {
	*into = preset
	defaults := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(preset), "[]")), ",")
	f.Func(name, fmt.Sprintf("%s, separated by commas (default %s)", usage, defaults), func(text string) error {
		*into = nil
		for one := range strings.SplitSeq(text, ",") {
			v, err := parse(strings.TrimSpace(one))
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return nil
	})
}

// between refuses values outside a range.
func between[T cmp.Ordered](least, most T, parse parser[T]) parser[T] {
	return func(text string) (T, error) {
		v, err := parse(text)
		inside := v >= least && v <= most // NaN is not
		if err != nil || !inside {
			return v, fmt.Errorf("write a value from %v to %v", least, most)
		}
		return v, nil
	}
}

// named looks up values by their names.
func named[T fmt.Stringer](all []T) parser[T] {
	return func(text string) (found T, err error) {
		for _, one := range all {
			if one.String() == text {
				return one, nil
			}
		}
		return found, fmt.Errorf("unknown %q: choose from %v", text, all)
	}
}

const many = 1 << 30

// The usual ranges.
var (
	positive    = between(1, many, strconv.Atoi)
	notNegative = between(0, many, strconv.Atoi)
	lasting     = between(time.Microsecond, 24*time.Hour, time.ParseDuration)
	orNothing   = between(0, 24*time.Hour, time.ParseDuration)
)

// turns says how often each contender is measured.
type turns struct{ rounds int }

func (t *turns) flags(f *flag.FlagSet) {
	one(f, &t.rounds, 3, positive, "rounds", "how often each is measured")
}

// seed reads the seed of a schedule.
func seed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		err = errors.New("write a number")
	}
	return n, err
}

// ascending sorts numbers and removes repeated ones.
func ascending(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
