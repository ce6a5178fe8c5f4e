package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/claimcheck"
	"github.com/millrace/millrace/stores"
)

const storeUsage = `where the bodies are: the ` + "`location`" + ` of an Azure storage account, as for -account, or a
directory
(default: the environment variable ` + accountVariable + `)`

type storeFlag struct {
	given   string
	verbose bool
}

func (s *storeFlag) add(f *flag.FlagSet) {
	f.Func("store", storeUsage, s.set)
	f.BoolVar(&s.verbose, "v", false, verboseUsage)
}

// set does not validate the location, because the flag package quotes an invalid value in its
// error.
func (s *storeFlag) set(given string) error {
	if strings.TrimSpace(given) == "" {
		return errors.New("must not be empty")
	}
	s.given = given
	return nil
}

// open opens the store. It sends no request, and does not create a directory.
func (s *storeFlag) open(c *console) (stores.BlobStore, error) {
	location, source, err := s.location(c)
	if err != nil {
		return nil, usageError{err}
	}
	if !isLocation(location) {
		if _, err := os.Stat(location); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	}
	store, err := stores.Blobs(location, nil)
	if known := (*blob.Error)(nil); errors.Is(err, blob.ErrInvalid) && errors.As(err, &known) {
		return nil, usageError{fmt.Errorf("%s: %s; %s", source, known.Detail, known.Hint)}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return store, nil
}

// location returns the store's location and which setting it comes from.
func (s *storeFlag) location(c *console) (location, source string, err error) {
	location, source = s.given, "-store"
	if location == "" {
		location, source = strings.TrimSpace(c.getenv(accountVariable)), accountVariable
	}
	if path, isFile := strings.CutPrefix(location, fromFile); isFile && s.given != "" {
		if location, err = readSecret(path); err != nil {
			return "", "", fmt.Errorf("%s: %w", source, err)
		}
	}
	switch {
	case location == "":
		return "", "", fmt.Errorf("no store is known: specify -store with a directory or the location of an account, or set %s", accountVariable)
	case s.given == "" && !isLocation(location): // not a directory, which nobody meant
		return "", "", fmt.Errorf("%s is not the location of an account: specify -store", accountVariable)
	}
	return location, source, nil
}

// onBodies runs do on the claims in a container of the store, and handles signals.
func (c *console) onBodies(ctx context.Context, s *storeFlag, container string, o *claimcheck.Options, do func(ctx context.Context, t *task, claims *claimcheck.Claims) error) error {
	if isLocation(container) {
		return usageError{fmt.Errorf("%s is not a container name", quote(container))}
	}
	if err := blob.CheckContainer(container); err != nil {
		return usageError{err}
	}
	store, err := s.open(c)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // nothing is left to write
	claims, err := claimcheck.New(store, container, o)
	if err != nil {
		return usageError{err}
	}
	finish, halt := context.WithCancel(ctx)
	defer halt()
	return millrace.Run(ctx, &runner{task: &task{console: c, verbose: s.verbose, finish: finish}, halt: halt, do: func(ctx context.Context, t *task) error {
		return do(ctx, t, claims)
	}})
}
