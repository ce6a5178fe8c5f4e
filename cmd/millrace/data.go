package main

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// data is the served data, in memory or in a directory.
type data struct {
	engine *localqueue.Engine
	dir    string           // "" in memory
	found  *filequeue.Found // contents of the directory at the start; nil in memory
	heap   []byte           // heap ballast, see heapSize
}

// heapSize is the size of an unused heap allocation, which takes addresses but no memory. The
// collector runs when the heap has doubled. With messages in a directory the heap is so small
// that this happens several times a second, and takes a tenth of the server's CPU time. A higher
// GOGC would let large heaps grow by the same factor. With messages in memory it has no effect.
const heapSize = 32 << 20

// openData opens the engine of the settings. It must be closed.
func (s *settings) openData() (*data, error) {
	if s.data == "" {
		return &data{engine: localqueue.New(s.engineOptions())}, nil
	}
	store, err := filequeue.Open(s.data)
	if errors.Is(err, filequeue.ErrCorrupt) {
		return nil, fmt.Errorf("-data: %w; nothing was changed: move the file away to start empty, or use another directory", err)
	}
	if err != nil {
		return nil, fmt.Errorf("-data: %w", err)
	}
	engine, err := localqueue.Open(store, s.engineOptions())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-data %s: %w", s.data, err), store.Close())
	}
	found := store.Found()
	return &data{engine: engine, dir: s.data, found: &found, heap: make([]byte, heapSize)}, nil
}

func (d *data) close() error {
	if err := d.engine.Close(); err != nil {
		return fmt.Errorf("close the data in %s: %w", d.dir, err)
	}
	return nil
}

// maxDamage limits the damage that is printed. Badly damaged files have many entries.
const maxDamage = 10

// summary describes the data on one line, and its damage on more.
func (d *data) summary() (line string, damage []string) {
	if d.found == nil {
		return "in memory only: lost when the server stops", nil
	}
	for _, one := range d.found.Damage[:min(len(d.found.Damage), maxDamage)] {
		damage = append(damage, one.String())
	}
	if more := d.found.Damaged - len(damage); more > 0 {
		damage = append(damage, fmt.Sprintf("and %d more", more))
	}
	if d.found.Copy != "" {
		damage = append(damage, "the original file is kept as "+d.found.Copy)
	}
	line = fmt.Sprintf("%s: %s in %s", d.dir, plural(d.found.Messages, "message"), plural(d.found.Queues, "queue"))
	if d.found.Torn {
		line += "; the log ends in the middle of a commit, as after a kill or a power cut; if the disk lost its end, acknowledged changes may be missing"
	}
	return line, damage
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (s *settings) engineOptions() *localqueue.Options {
	o := &localqueue.Options{DeletingFor: s.deletingFor, Seed: s.seed}
	if o.DeletingFor == 0 {
		o.DeletingFor = -1 // zero would be the default
	}
	return o
}
