package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// manyResult is what was measured of a file of very many entities.
type manyResult struct {
	entities int
	size     int64         // of the file, in bytes
	inserted time.Duration // in groups, by 16 callers
	opened   []paged       // one of each round
}

// paged is what the process reports that opens the file and pages through it.
type paged struct {
	Opened   time.Duration
	Paged    time.Duration
	Entities int
	Pages    int

	// Memory of its own, without the mapped file, in bytes: before the file was opened, after it, and the most while
	// it paged. All are 0 where the system does not say.
	Before, After, Most int64
}

// pageVariable makes this program the process that opens a file and pages through it.
const pageVariable = "MILLRACE_BENCH_TABLE"

// pageThroughIfAsked makes this process that process, and does not return, if it was started as one.
func pageThroughIfAsked() {
	path := os.Getenv(pageVariable)
	if path == "" {
		return
	}
	p, err := pageThrough(context.Background(), path)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func pageThrough(ctx context.Context, path string) (p paged, err error) {
	p.Before = ownMemory()
	begun := time.Now()
	db, err := filetable.Open(path, nil)
	if err != nil {
		return p, err
	}
	p.Opened, p.After = time.Since(begun), ownMemory()
	p.Most = p.After
	s, err := db.Table("Blogs")
	if err != nil {
		return p, errors.Join(err, db.Close())
	}
	begun = time.Now()
	for q, more := (table.Query{}), true; more; p.Pages++ {
		page, err := s.Query(ctx, q)
		if err != nil {
			return p, errors.Join(err, db.Close())
		}
		p.Entities += len(page.Entities)
		p.Most = max(p.Most, ownMemory())
		q.Token = page.Next
		more = page.Next != ""
	}
	p.Paged = time.Since(begun)
	return p, db.Close()
}

// ownMemory returns the memory of this process without mapped files, in bytes; 0 where the system does not say.
func ownMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// measureMany fills a file and has another process open it and page through it, once in each round.
func (p plan) measureMany(ctx context.Context, progress io.Writer) (*manyResult, error) {
	_, _ = fmt.Fprintf(progress, "%d entities in a file\n", p.many)
	dir, err := os.MkdirTemp(p.dir, "many")
	if err != nil {
		return nil, err
	}
	t, err := openFile(dir)
	if err != nil {
		return nil, err
	}
	m, begun := &measured{target: t}, time.Now()
	if err := errors.Join(m.fill(ctx, p.many), t.close()); err != nil {
		return nil, err
	}
	r := &manyResult{entities: int(m.inserted.Load()), inserted: time.Since(begun)}
	path := filepath.Join(dir, "tables.db")
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r.size = info.Size()
	for range p.rounds {
		one, err := pageInProcess(ctx, path)
		if err != nil {
			return nil, err
		}
		if one.Entities != r.entities {
			return nil, fmt.Errorf("the pages have %d entities, want %d", one.Entities, r.entities)
		}
		r.opened = append(r.opened, one)
	}
	return r, os.RemoveAll(dir)
}

func pageInProcess(ctx context.Context, path string) (p paged, err error) {
	program, err := os.Executable()
	if err != nil {
		return p, err
	}
	c := exec.CommandContext(ctx, program)
	c.Env = append(os.Environ(), pageVariable+"="+path)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(out, &p)
}
