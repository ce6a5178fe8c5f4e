package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// A batch is some lines of a usage file: pieces in the blob store, and then a manifest, which makes it complete. Its
// name contains the hash of its pieces. So a file that is shipped again gives the same batches, a corrected one gives
// others, and a batch that was stored in part is completed by shipping its file again.
const batchesContainer = "billing-batches"

// Bounds of batches and pieces.
const (
	maxBatchLines = 100_000
	maxBatchBytes = 16 << 20
	maxGroup      = 5000
	maxPiece      = 1 << 20 // bytes; a piece ends after half of it
	maxManifest   = 16 << 20
)

// manifest describes a batch. It is stored after the pieces.
type manifest struct {
	Batch      string    `json:"batch"`
	File       string    `json:"file"` // of the records
	HandedOver time.Time `json:"handed_over"`
	Pieces     []piece   `json:"pieces"`
}

// piece is up to a thousand lines, and one work item.
type piece struct {
	Records int    `json:"records"` // lines, the rejected ones included
	SHA256  string `json:"sha256"`
	text    []byte
}

func (m *manifest) records() (n int64) {
	for _, p := range m.Pieces {
		n += int64(p.Records)
	}
	return n
}

func manifestRef(batch string) blob.Ref {
	return blob.Ref{Container: batchesContainer, Name: batch + "/manifest.json"}
}

func pieceRef(batch string, n int) blob.Ref {
	return blob.Ref{Container: batchesContainer, Name: fmt.Sprintf("%s/piece-%05d.csv", batch, n)}
}

func tariffsRef(batch string) blob.Ref {
	return blob.Ref{Container: batchesContainer, Name: batch + "/tariffs.csv"}
}

var batchName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,60}[a-z0-9]$`)

func checkBatch(name string) error {
	if !batchName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a batch: use 2 to 62 lower-case letters, digits and hyphens", name)
	}
	return nil
}

func readManifest(ctx context.Context, store blob.Store, batch string) (m manifest, err error) {
	text, err := readAll(ctx, store, manifestRef(batch), maxManifest)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("read the manifest of batch %s: %w", batch, err)
	}
	return m, nil
}

// readAll reads a blob of at most limit bytes.
func readAll(ctx context.Context, store blob.Store, ref blob.Ref, limit int64) ([]byte, error) {
	r, err := store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err = errors.Join(err, r.Close()); err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%v has more than %d bytes", ref, limit)
	}
	return text, err
}

// source is a usage file, or the generated records of a day.
type source struct {
	name  string
	lines iter.Seq2[records.Record, error] // as of [records.Read]
}

// batch is a batch with its pieces in memory.
type batch struct {
	manifest
	rejected []records.Rejection // its lines that cannot be billed
}

// cut cuts a source into batches of pieces of at most group lines. An error that is not a rejection ends it.
func cut(s source, group int) iter.Seq2[*batch, error] {
	return func(yield func(*batch, error) bool) {
		b, bytes := &batch{}, 0
		for r, err := range s.lines {
			var rejection *records.Rejection
			if rejected := errors.As(err, &rejection); err != nil && !rejected {
				yield(nil, err)
				return
			} else if rejected {
				b.rejected = append(b.rejected, *rejection)
			}
			if n := len(b.Pieces); n == 0 || b.Pieces[n-1].Records == group || len(b.Pieces[n-1].text) > maxPiece/2 {
				if b.records() >= maxBatchLines || bytes > maxBatchBytes {
					if !yield(b.named(s.name), nil) {
						return
					}
					b, bytes = &batch{}, 0
				}
				b.Pieces = append(b.Pieces, piece{})
			}
			p := &b.Pieces[len(b.Pieces)-1]
			before := len(p.text)
			if p.Records++; rejection != nil {
				p.text = records.AppendRejection(p.text, rejection)
			} else {
				p.text = records.AppendPiece(p.text, &r)
			}
			bytes += len(p.text) - before
		}
		if len(b.Pieces) > 0 {
			yield(b.named(s.name), nil)
		}
	}
}

// named names a batch after its file, as far as that can be part of a name, and the hash of its pieces.
func (b *batch) named(file string) *batch {
	var sums strings.Builder
	for n := range b.Pieces {
		b.Pieces[n].SHA256 = digest(b.Pieces[n].text)
		sums.WriteString(b.Pieces[n].SHA256)
	}
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(file)), ".csv")
	name = strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(name, "-"), "-")
	name = strings.TrimRight(name[:min(len(name), 40)], "-")
	b.File = file
	b.Batch = strings.TrimLeft(name+"-"+digest([]byte(sums.String()))[:16], "-")
	return b
}

// ship stores a batch and tells the initiator, unless the batch is in the books. It can be repeated.
func (s *system) ship(ctx context.Context, b *batch) (ended bool, err error) {
	if ended, err := s.ended(ctx, b.Batch); err != nil || ended {
		return ended, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(sends)
	for n := range b.Pieces {
		group.Go(func() error {
			return s.store.Put(groupCtx, pieceRef(b.Batch, n), bytes.NewReader(b.Pieces[n].text), nil)
		})
	}
	if err := group.Wait(); err != nil {
		return false, fmt.Errorf("store batch %s: %w", b.Batch, err)
	}
	b.HandedOver = time.Now().UTC()
	text, err := json.Marshal(b.manifest)
	if err == nil {
		err = s.store.Create(ctx, manifestRef(b.Batch), bytes.NewReader(text), nil)
	}
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return false, fmt.Errorf("store the manifest of batch %s: %w", b.Batch, err)
	}
	_, err = s.batches.Send(ctx, batchMessage{b.Batch}, &producer.SendOptions{JobID: b.Batch})
	return false, err
}

// shipped is the outcome of shipAll.
type shipped struct {
	batches         []string
	lines, rejected int64
}

// shipAll ships one batch after the other, and waits for servers that are away.
func (s *system) shipAll(ctx context.Context, u *usage, show *cli.Show, done func(b *batch, ended bool)) (all shipped, err error) {
	for source := range u.sources() {
		before := all.lines
		for b, err := range cut(source, u.group) {
			if err != nil {
				return all, err
			}
			ended, err := s.ship(ctx, b)
			for err != nil && (queue.Transient(err) || blob.Transient(err)) && ctx.Err() == nil {
				select {
				case <-time.After(time.Second):
					ended, err = s.ship(ctx, b)
				case <-ctx.Done():
				}
			}
			if err != nil {
				return all, err
			}
			for i := range b.rejected {
				if all.rejected++; all.rejected <= shownRejections {
					show.Say("rejected: %v", &b.rejected[i])
				}
			}
			all.batches = append(all.batches, b.Batch)
			all.lines += b.records()
			done(b, ended)
		}
		if all.lines == before {
			show.Say("%s has no records", source.name)
		}
	}
	if more := all.rejected - shownRejections; more > 0 {
		show.Say("rejected: %s more; rejections.csv of the report has all of them", cli.Plural(int(more), "line"))
	}
	return all, nil
}

// shownRejections is how many rejected lines are shown.
const shownRejections = 10

const shipHelp = `Usage: billing ship [flags]

Stores usage records in batches, and tells billing initiator. After an interruption, ship the same
files again: batches in the books are not billed again. Ship a corrected file like any other: records
in the books are recognized by their ids.

Flags:

` + usageHelp + accountHelp + blobsHelp

// shipping is the command ship.
func shipping(f *flag.FlagSet, show *cli.Show) func(map[string]bool) (millrace.Runner, error) {
	var u usage
	var at accountFlags
	u.flags(f)
	at.flags(f)
	logger := plainlog.New(show)
	ship := func(ctx context.Context, a *account.Account, b *account.Blobs) error {
		if _, err := a.Server(ctx); err != nil { // without a server, the error says how to start one
			return err
		}
		system, err := systemOn(a, b.Store, options{logger: logger})
		if err != nil {
			return err
		}
		show.Say("%s", u.from())
		all, err := system.shipAll(ctx, &u, show, func(b *batch, ended bool) {
			if ended {
				show.Say("batch %s is in the books already", b.Batch)
				return
			}
			show.Say("batch %s: %s in %s, handed over", b.Batch, cli.Plural(int(b.records()), "record"), cli.Plural(len(b.Pieces), "piece"))
		})
		if err == nil && all.lines > 0 && all.rejected == all.lines {
			err = fmt.Errorf("none of the %s can be billed; rejections.csv of the report has each with its reason", cli.Plural(int(all.lines), "line"))
		}
		return err
	}
	return func(given map[string]bool) (millrace.Runner, error) {
		return cli.Task(func(ctx context.Context) error {
			err := program.With(ctx, at.account, at.blobs, logger, func(a *account.Account, b *account.Blobs) error { return ship(ctx, a, b) })
			if ctx.Err() != nil {
				return errors.New("stopped; billing ship with the same flags continues")
			}
			return err
		}), u.check(given)
	}
}
