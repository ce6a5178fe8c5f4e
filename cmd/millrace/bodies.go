package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/stores"
)

func bodiesCommand() *command {
	return &command{name: "bodies", args: "VERB CONTAINER", does: "clean up after messages whose bodies are in a blob store", flags: newFlags("bodies"), more: bodiesMore,
		verbs: []*command{bodiesListCommand(), bodiesSweepCommand(), bodiesPurgeCommand()}}
}

const bodiesMore = `CONTAINER is the container or folder that package claimcheck was given. When a job is done, a
tombstone takes the place of its body: sweep removes it. A body that is not a tombstone belongs to a
message in a queue or a poison queue, or to none, as after a kill: purge removes those of an age that
no message reaches.
`

// bodyFlags are the flags that all verbs of bodies have.
type bodyFlags struct {
	store  storeFlag
	asJSON bool
}

// verb returns a verb with these flags, which has yet to be told what to run.
func (b *bodyFlags) verb(name, does, more string) *command {
	f := newFlags("bodies " + name)
	textVar(f, &b.store.given, "store", "", storeUsage)
	f.BoolVar(&b.store.verbose, "v", false, verboseUsage)
	f.BoolVar(&b.asJSON, "json", false, "print JSON")
	return &command{name: "bodies " + name, args: "CONTAINER", does: does, more: more, flags: f, minArgs: 1, maxArgs: 1}
}

func bodiesListCommand() *command {
	var (
		b     bodyFlags
		older time.Duration
		all   bool
	)
	v := b.verb("list", "list the stored bodies, one per line",
		"The names are those in the messages: millrace peek and millrace poison show print them.\n")
	v.flags.Var(duration{&older}, "older", "only what was stored at least this `duration` ago, such as 720h")
	v.flags.BoolVar(&all, "all", false, "list tombstones too")
	v.run = func(ctx context.Context, c *console, args []string) error {
		if older < 0 {
			return usageError{fmt.Errorf("-older %v is negative: specify an age, such as 720h", older)}
		}
		return c.onBodies(ctx, &b.store, args[0], nil, func(ctx context.Context, t *task, claims *claimcheck.Claims) error {
			return t.listBodies(ctx, claims, older, all, b.asJSON)
		})
	}
	return v
}

// listedBody is a body, as printed in JSON.
type listedBody struct {
	Ref       string    `json:"ref"`
	Size      int64     `json:"size"` // in bytes
	Stored    time.Time `json:"stored"`
	Tombstone bool      `json:"tombstone"`
}

// listBodies prints one line per body.
func (t *task) listBodies(ctx context.Context, claims *claimcheck.Claims, older time.Duration, all, asJSON bool) error {
	l := newListing(t.console.out, asJSON)
	var bodies, tombstones count
	for body, err := range claims.List(ctx) {
		if err != nil {
			return errors.Join(err, l.flush())
		}
		since, err := body.Age()
		if err != nil {
			since = max(time.Since(body.Modified), 0) // nothing is removed
		}
		if since < older {
			continue
		}
		of, what := &bodies, "bytes"
		if body.Settled {
			of, what = &tombstones, "bytes, a tombstone"
		}
		of.add(body, since)
		if body.Settled && !all {
			continue
		}
		if err := l.row(listedBody{body.Ref.String(), body.Size, body.Modified, body.Settled}, body.Ref.String(), age(since), fmt.Sprintf("%d %s", body.Size, what)); err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil || asJSON {
		return err
	}
	printf(t.console.err, "%v, and %s.\n", &bodies, plural(tombstones.blobs, "tombstone"))
	return nil
}

// count adds up bodies.
type count struct {
	blobs  int
	bytes  int64
	oldest time.Duration
}

func (c *count) add(b claimcheck.Body, age time.Duration) {
	c.blobs++
	c.bytes += b.Size
	c.oldest = max(c.oldest, age)
}

func (c *count) String() string {
	s := fmt.Sprintf("%s of %s", plural(c.blobs, "body"), plural(c.bytes, "byte"))
	if c.blobs > 0 {
		s += fmt.Sprintf(", the oldest stored %s ago", age(c.oldest))
	}
	return s
}

func bodiesSweepCommand() *command {
	var (
		b         bodyFlags
		dryRun    bool
		retention time.Duration
	)
	v := b.verb("sweep", "remove old tombstones", `By its tombstone, a message that is a duplicate of one whose job is done is recognized and deleted.
When the tombstone is gone, such a message is poison. No body is removed.
`)
	v.flags.BoolVar(&dryRun, "dry-run", false, "remove nothing, only print the numbers")
	durationVar(v.flags, &retention, "retention", 14*24*time.Hour, "keep tombstones for this `duration`")
	v.run = func(ctx context.Context, c *console, args []string) error {
		if retention < time.Millisecond {
			return usageError{fmt.Errorf("-retention %v is too short: specify how long duplicates may come, such as 336h", retention)}
		}
		return c.onBodies(ctx, &b.store, args[0], &claimcheck.Options{Retention: retention}, func(ctx context.Context, t *task, claims *claimcheck.Claims) error {
			return t.sweepBodies(ctx, args[0], claims, &b, retention, dryRun)
		})
	}
	return v
}

func (t *task) sweepBodies(ctx context.Context, container string, claims *claimcheck.Claims, b *bodyFlags, retention time.Duration, dryRun bool) error {
	if dryRun {
		would, err := old(ctx, claims, true, retention)
		return t.reportBodies(ctx, container, b, bodiesRemoved{DryRun: true, Blobs: would.blobs}, "tombstone", err)
	}
	removed, err := claims.Sweep(ctx)
	return t.reportBodies(ctx, container, b, bodiesRemoved{Blobs: removed.Blobs}, "tombstone", err)
}

func bodiesPurgeCommand() *command {
	var (
		b           bodyFlags
		dryRun, yes bool
		older       time.Duration
	)
	v := b.verb("purge", "remove bodies that no message needs, by their age", `Nothing tells which bodies a message still needs. Choose an age that no message reaches, in its queue
and in the poison queue together; a message without its body is poison, with the reason blobgone. It
asks for the container's name to be typed, unless -yes or -dry-run is given. Tombstones stay.
`)
	v.flags.BoolVar(&dryRun, "dry-run", false, "remove nothing, only print the numbers")
	v.flags.BoolVar(&yes, "yes", false, "do not ask for confirmation")
	v.flags.Var(duration{&older}, "older", "remove what was stored at least this `duration` ago, such as 2160h")
	v.run = func(ctx context.Context, c *console, args []string) error {
		if older < time.Millisecond {
			return usageError{errors.New("-older is required: specify an age that no message reaches, such as 2160h")}
		}
		return c.onBodies(ctx, &b.store, args[0], nil, func(ctx context.Context, t *task, claims *claimcheck.Claims) error {
			return t.purgeBodies(ctx, args[0], claims, &b, older, dryRun, yes)
		})
	}
	return v
}

// purgeBodies removes bodies, after a dry run that says which.
func (t *task) purgeBodies(ctx context.Context, container string, claims *claimcheck.Claims, b *bodyFlags, older time.Duration, dryRun, yes bool) error {
	if dryRun || !yes {
		if !dryRun && !t.console.interactive {
			return usageError{fmt.Errorf("cannot ask for confirmation, because the standard input is not a terminal: use -yes to purge %s", container)}
		}
		would, err := old(ctx, claims, false, older)
		if err != nil || dryRun || would.blobs == 0 {
			return t.reportBodies(ctx, container, b, bodiesRemoved{DryRun: dryRun, Blobs: would.blobs, Bytes: would.bytes}, "body", err)
		}
		printf(t.console.err, "This removes %v, from %s for good. Messages that need one become poison.\n", &would, container)
		if err := t.askToType(ctx, "nothing was removed", container); err != nil {
			return err
		}
	}
	removed, err := claims.Purge(ctx, older)
	return t.reportBodies(ctx, container, b, bodiesRemoved{Blobs: removed.Blobs, Bytes: removed.Bytes}, "body", err)
}

// old counts the tombstones that a sweep would remove, or the bodies that a purge would.
func old(ctx context.Context, claims *claimcheck.Claims, tombstones bool, than time.Duration) (count, error) {
	var c count
	for body, err := range claims.List(ctx) {
		if err != nil {
			return c, err
		}
		if body.Settled != tombstones {
			continue
		}
		age, err := body.Age()
		if err != nil {
			return c, err
		}
		if age > than {
			c.add(body, age)
		}
	}
	return c, nil
}

// bodiesRemoved is the output of sweep and purge in JSON.
type bodiesRemoved struct {
	Container string `json:"container"`
	DryRun    bool   `json:"dryRun"`
	Blobs     int    `json:"blobs"`
	Bytes     int64  `json:"bytes"`
	Error     string `json:"error,omitempty"` // why it ended early
}

// reportBodies prints how much was removed, even if the command ended early.
func (t *task) reportBodies(ctx context.Context, container string, b *bodyFlags, r bodiesRemoved, what string, err error) error {
	r.Container = container
	if err != nil && r.Blobs == 0 && ctx.Err() == nil {
		return err
	}
	number := plural(r.Blobs, what)
	if what == "body" {
		number += " of " + plural(r.Bytes, "byte")
	}
	would := "was"
	if r.DryRun {
		would = "would be"
	}
	so := fmt.Sprintf("%s of %s %s", number, container, verbFor(r.Blobs, would, "removed"))
	var printed error
	switch {
	case b.asJSON:
		if err != nil {
			r.Error = redact(err.Error())
		}
		printed = printJSON(t.console.out, r)
	case err == nil:
		_, printed = fmt.Fprintf(t.console.out, "%s.\n", so)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return interruption{fmt.Errorf("interrupted; %s; run it again for the rest", so)}
	case err != nil:
		return &explainedError{fmt.Sprintf("%v; %s before that", err, so), err}
	}
	return printed
}

const storeUsage = `where the bodies are: the ` + "`location`" + ` of an Azure storage account, as for -account, or a
directory
(default: the environment variable ` + accountVariable + `)`

type storeFlag struct {
	given   string
	verbose bool
}

// open opens the store. It sends no request, and does not create a directory.
func (s *storeFlag) open(c *console) (*stores.BlobStore, error) {
	location, source, err := s.location(c)
	if err != nil {
		return nil, usageError{err}
	}
	if !isLocation(location) {
		if _, err := os.Stat(location); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	}
	store, err := stores.OpenBlobs(location, nil)
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
		if location, err = azurestorage.ReadSecret(path); err != nil {
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
	if err := blobcheck.Container(container); err != nil {
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
	return c.work(ctx, &task{verbose: s.verbose}, func(ctx context.Context, t *task) error { return do(ctx, t, claims) })
}
