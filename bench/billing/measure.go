package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

// result is a run with one number of records.
type result struct {
	records int
	peaks   map[string]int64 // bytes, by the name of the process
	batches []batch          // in the order in which they came into the books
	begun   time.Time        // when the first batch was handed over
}

// batch is a row of the report.
type batch struct {
	records  int
	reported time.Time
	latency  time.Duration
}

// took is the time from handing over the first batch to the last one in the books.
func (r *result) took() time.Duration { return r.batches[len(r.batches)-1].reported.Sub(r.begun) }

func (r *result) rate() float64 { return float64(r.records) / r.took().Seconds() }

// memory is the sum of all peaks in bytes.
func (r *result) memory() (sum int64) {
	for _, peak := range r.peaks {
		sum += peak
	}
	return sum
}

func (r *result) percentile(percent int) time.Duration {
	var all []time.Duration
	for _, b := range r.batches {
		all = append(all, b.latency)
	}
	slices.Sort(all)
	return report.Percentile(all, percent)
}

func (p plan) measure(ctx context.Context, progress io.Writer) ([]*result, error) {
	bin, err := os.MkdirTemp("", "bench-billing-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", bin+string(filepath.Separator), "./cmd/millrace", "./examples/billing")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	var results []*result
	for _, n := range p.records {
		_, _ = fmt.Fprintf(progress, "%d records\n", n) // the figures matter more
		r, err := p.once(ctx, bin, n)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// days is how many batches so many records are.
func (p plan) days(records int) int { return (records + p.batch - 1) / p.batch }

// once runs all processes until everything is in the books.
func (p plan) once(ctx context.Context, bin string, n int) (_ *result, err error) {
	dir, err := os.MkdirTemp("", "bench-billing-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &site{bin: bin, dir: dir, peaks: make(map[string]int64)}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.startAll(ctx, p.workers); err != nil {
		return nil, err
	}
	ship, err := s.start(ctx, "ship", "billing", "ship", "-records", strconv.Itoa(n), "-days", strconv.Itoa(p.days(n)), "-account", s.location, "-blobs", filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, err
	}
	if _, err := s.controller.until(regexp.MustCompile("in the books .* after"), p.days(n)); err != nil {
		return nil, err
	}
	if err := ship.wait(); err != nil {
		return nil, err
	}
	books := filepath.Join(dir, "books.db")
	if out, err := exec.CommandContext(ctx, filepath.Join(bin, "billing"), "report", "-books", books, "-out", filepath.Join(dir, "report")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the report: %w\n%s", err, out)
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	r := &result{records: n, peaks: s.peaks}
	return r, r.read(filepath.Join(dir, "report", "batches.csv"))
}

// read reads the batches of a report.
func (r *result) read(path string) error {
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
	for _, row := range rows[1:] {
		records, err1 := strconv.Atoi(column(row, "billed"))
		handed, err2 := time.Parse(time.RFC3339Nano, column(row, "handed_over"))
		reported, err3 := time.Parse(time.RFC3339Nano, column(row, "reported"))
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if r.begun.IsZero() || handed.Before(r.begun) {
			r.begun = handed
		}
		r.batches = append(r.batches, batch{records, reported, reported.Sub(handed)})
	}
	slices.SortFunc(r.batches, func(a, b batch) int { return cmp.Compare(a.reported.UnixNano(), b.reported.UnixNano()) })
	billed := 0
	for _, b := range r.batches {
		billed += b.records
	}
	if billed != r.records {
		return fmt.Errorf("%d records are billed, not %d", billed, r.records)
	}
	return nil
}

// site is all processes.
type site struct {
	bin, dir   string
	peaks      map[string]int64
	running    []*process
	location   string // of the queues
	controller *process
}

// startAll starts all but billing ship.
func (s *site) startAll(ctx context.Context, workers int) error {
	server, err := s.start(ctx, "server", "millrace", "serve", "-addr", "127.0.0.1:0", "-data", filepath.Join(s.dir, "queues"))
	if err != nil {
		return err
	}
	if s.location, err = server.until(regexp.MustCompile(`\S*QueueEndpoint=\S*`), 1); err != nil {
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

// start starts a program.
func (s *site) start(ctx context.Context, name string, command ...string) (*process, error) {
	p := &process{name: name, site: s, cmd: exec.CommandContext(ctx, filepath.Join(s.bin, command[0]), command[1:]...)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	s.running = append(s.running, p)
	return p, nil
}

// stop ends what still runs, the server last, and can be called again.
func (s *site) stop() (err error) {
	slices.Reverse(s.running)
	for _, p := range s.running {
		_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
		err = errors.Join(err, p.wait())
	}
	s.running = nil
	return err
}

// process is a running program.
type process struct {
	name  string
	site  *site
	cmd   *exec.Cmd
	lines *bufio.Scanner
	ended bool
}

// until reads lines until so many match, and returns the last match.
func (p *process) until(pattern *regexp.Regexp, times int) (string, error) {
	for p.lines.Scan() {
		if found := pattern.FindString(strings.TrimSpace(p.lines.Text())); found != "" {
			if times--; times == 0 {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("%s ended early", p.name)
}

// wait waits for the end of the process, and notes its peak.
func (p *process) wait() error {
	if p.ended {
		return nil
	}
	p.ended = true
	for p.lines.Scan() { // or it waits for a reader
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.site.peaks[p.name] = peak(p.cmd.ProcessState)
	return nil
}
