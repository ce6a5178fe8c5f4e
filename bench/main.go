package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	serveIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	p := plan{
		handlers:    []time.Duration{0, time.Millisecond, 20 * time.Millisecond},
		latencies:   []time.Duration{0, 10 * time.Millisecond},
		secure:      []bool{false},
		concurrency: []int{256, 512},
		contenders:  byDefault,
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	listVar(flags, &p.handlers, time.ParseDuration, "handlers", "how long a handler waits, separated by commas")
	listVar(flags, &p.latencies, time.ParseDuration, "latencies", "how long the service takes over a request")
	listVar(flags, &p.secure, strconv.ParseBool, "tls", "whether over TLS; true needs a system that heeds SSL_CERT_FILE, such as Linux")
	listVar(flags, &p.concurrency, strconv.Atoi, "concurrency", "how many handlers run at once")
	listVar(flags, &p.contenders, contenderByName, "contenders", "who: "+contenderNames())
	only := flags.String("only", "", "a regular expression that a cell must match, such as \"c512/handler20ms/latency10ms/TLS\"")
	flags.IntVar(&p.rounds, "rounds", 3, "how often every cell is measured")
	flags.DurationVar(&p.window, "for", time.Second, "how long a cell is measured")
	flags.DurationVar(&p.warmUp, "warm-up", 400*time.Millisecond, "how long it runs before that")
	flags.IntVar(&p.size, "size", 1024, "bytes of a message")
	profile := flags.String("profile", "", "write a processor profile of the measured windows to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	filter, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	p.only = filter
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // only a person reads it
		p.profile = file
	}
	s, err := startServer(p.endpoints())
	if err != nil {
		return err
	}
	results, err := p.measure(ctx, s, func(text string) { fmt.Fprint(os.Stderr, text) })
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	return writeTable(os.Stdout, results)
}

// listVar defines a flag whose value is a list. Its default is the present value.
func listVar[T any](flags *flag.FlagSet, into *[]T, parse func(string) (T, error), name, usage string) {
	var defaults []string
	for _, v := range *into {
		defaults = append(defaults, fmt.Sprint(v))
	}
	flags.Func(name, usage+" (default "+strings.Join(defaults, ",")+")", func(text string) error {
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
