package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// billing measures the billing example: how many records a second its roles, as processes on millrace serve, take from
// shipping to the books, and how much memory all processes take together. All share the machine, and the server waits
// for the disk. Memory is the sum of the peaks of all processes, as the system tells when they have ended; the peaks
// need not have been at the same time.
type billing struct {
	records        []int
	batch, workers int
}

func (p *billing) flags(f *flag.FlagSet) {
	several(f, &p.records, []int{200_000, 2_000_000}, positive, "records", "how many records; memory is compared with the fewest")
	one(f, &p.batch, 20_000, positive, "batch", "records of a batch, which is a day: more records are more days")
	one(f, &p.workers, 2, positive, "workers", "processes that charge records")
}

func (p *billing) check() error {
	p.records = ascending(p.records)
	return nil
}

func (p *billing) run(ctx context.Context, h *harness) (*report, error) {
	bin, err := h.build(ctx, "github.com/millrace/millrace/cmd/millrace", "github.com/millrace/millrace/examples/billing")
	if err != nil {
		return nil, err
	}
	var all []*billingResult
	for _, n := range p.records {
		h.say("%d records", n)
		r, err := p.once(ctx, h, bin, n)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return &report{head: h.machine + ".\n\n", table: p.table(all)}, nil
}

// billingResult is a run with one number of records.
type billingResult struct {
	records int
	peaks   int64           // the sum, in bytes
	batches []time.Duration // from handing over to the books, sorted
	took    time.Duration   // from handing over the first batch to the last one in the books
}

// once runs all processes until everything is in the books.
func (p *billing) once(ctx context.Context, h *harness, bin string, n int) (_ *billingResult, err error) {
	dir, err := h.folder("billing")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &site{bin: bin, dir: dir}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.startAll(ctx, p.workers); err != nil {
		return nil, err
	}
	days := (n + p.batch - 1) / p.batch
	ship, err := s.start(ctx, "ship", "billing", "ship", "-records", strconv.Itoa(n), "-days", strconv.Itoa(days), "-account", s.location, "-blobs", filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, err
	}
	if _, err := s.controller.until(regexp.MustCompile("in the books .* after"), days); err != nil {
		return nil, err
	}
	if err := ship.wait(); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "billing"), "report", "-books", filepath.Join(dir, "books.db"), "-out", filepath.Join(dir, "report")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("make the report: %w\n%s", err, out)
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	r := &billingResult{records: n, peaks: s.peaks}
	return r, r.read(filepath.Join(dir, "report", "batches.csv"))
}

// read reads the batches of a report.
func (r *billingResult) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	billed, first, last := 0, time.Now(), time.Time{}
	for _, row := range rows[1:] {
		records, err1 := strconv.Atoi(column(row, "billed"))
		handed, err2 := time.Parse(time.RFC3339Nano, column(row, "handed_over"))
		reported, err3 := time.Parse(time.RFC3339Nano, column(row, "reported"))
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if handed.Before(first) {
			first = handed
		}
		if reported.After(last) {
			last = reported
		}
		r.batches = append(r.batches, reported.Sub(handed))
		billed += records
	}
	if billed != r.records {
		return fmt.Errorf("%d records are billed, not %d", billed, r.records)
	}
	slices.Sort(r.batches)
	r.took = last.Sub(first)
	return nil
}

type site struct {
	bin, dir   string
	peaks      int64
	running    []*program
	location   string // of the queues
	controller *program
}

// startAll starts all but billing ship.
func (s *site) startAll(ctx context.Context, workers int) error {
	server, err := s.start(ctx, "server", "millrace", "serve", "-addr", "127.0.0.1:0", "-data", filepath.Join(s.dir, "queues"))
	if err != nil {
		return err
	}
	if s.location, err = server.until(connectionString, 1); err != nil {
		return err
	}
	shared := []string{"-account", s.location, "-blobs", filepath.Join(s.dir, "blobs")}
	if _, err := s.start(ctx, "initiator", append([]string{"billing", "initiator"}, shared...)...); err != nil {
		return err
	}
	for i := range workers {
		if _, err := s.start(ctx, fmt.Sprintf("worker %d", i+1), append([]string{"billing", "worker"}, shared...)...); err != nil {
			return err
		}
	}
	s.controller, err = s.start(ctx, "controller", append([]string{"billing", "controller", "-books", filepath.Join(s.dir, "books.db")}, shared...)...)
	return err
}

func (s *site) start(ctx context.Context, name string, command ...string) (*program, error) {
	p, err := startProgram(ctx, name, filepath.Join(s.bin, command[0]), command[1:]...)
	if err == nil {
		s.running = append(s.running, p)
	}
	return p, err
}

// stop ends what still runs, the server last, and can be called again.
func (s *site) stop() (err error) {
	for _, p := range slices.Backward(s.running) {
		err = errors.Join(err, p.stop())
		s.peaks += peak(p.cmd.ProcessState)
	}
	s.running = nil
	return err
}

const secondsOfADay = 24 * 60 * 60

func (p *billing) table(all []*billingResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Batches of %d records, %d workers, one process for each other role, and the server:\n\n", p.batch, p.workers)
	b.WriteString("| records | seconds | records a second | as millions a day | latency of a batch, p50 | p99 | memory, sum of all peaks |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range all {
		perSecond := float64(r.records) / r.took.Seconds()
		fmt.Fprintf(&b, "| %d | %.1f | %.0f | %.0f | %.2f s | %.2f s | %s |\n", r.records, r.took.Seconds(), perSecond, perSecond*secondsOfADay/1e6,
			percentile(r.batches, 50).Seconds(), percentile(r.batches, 99).Seconds(), mebibytes(r.peaks))
	}
	return b.String()
}
