package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// data is what is served: in memory, or in a directory.
type data struct {
	engine *localqueue.Engine
	dir    string           // "" in memory
	found  *filequeue.Found // what was in the directory; nil in memory
	heap   []byte           // see heapSize
}

// heapSize is a piece of the heap that nobody writes to, so that it takes addresses and no
// memory. The collector runs when the heap has doubled. With the messages in a directory
// the heap is so small that this comes several times a second, and takes a tenth of the
// server's processor time; with this piece it comes after as many bytes as it has. A higher
// GOGC would let large heaps grow as many times. With the messages in memory it gains
// nothing.
const heapSize = 32 << 20

// openData returns the engine that the settings ask for. It must be closed.
func (s *settings) openData() (*data, error) {
	if s.data == "" {
		return &data{engine: localqueue.New(s.engineOptions())}, nil
	}
	store, err := filequeue.Open(s.data)
	if errors.Is(err, filequeue.ErrCorrupt) {
		return nil, fmt.Errorf("-data: %w; nothing was changed: move the file away to begin with nothing, or give another directory", err)
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

// mostDamage is how many pieces of damage are printed. Files that lost much have many.
const maxDamage = 10

// summary says in a line what the data is, and in more lines what is wrong with it.
func (d *data) summary() (line string, damage []string) {
	if d.found == nil {
		return "in memory only: gone when this ends", nil
	}
	for _, one := range d.found.Damage[:min(len(d.found.Damage), maxDamage)] {
		damage = append(damage, one.String())
	}
	if more := d.found.Damaged - len(damage); more > 0 {
		damage = append(damage, fmt.Sprintf("and %d more", more))
	}
	if d.found.Copy != "" {
		damage = append(damage, "the file as it was is kept as "+d.found.Copy)
	}
	line = fmt.Sprintf("%s: %s in %s", d.dir, plural(d.found.Messages, "message"), plural(d.found.Queues, "queue"))
	if d.found.Torn {
		line += "; the log ends in the middle of a commit, as after a kill or a power cut; if the disk lost its end, what it had may have been acknowledged"
	}
	return line, damage
}

func plural(n int, what string) string {
	return strings.TrimSuffix(fmt.Sprintf("%d %ss", n, what), map[bool]string{true: "s"}[n == 1])
}

func (s *settings) engineOptions() *localqueue.Options {
	o := &localqueue.Options{DeletingFor: s.deletingFor, Seed: s.seed}
	if o.DeletingFor == 0 {
		o.DeletingFor = -1 // zero would be the default
	}
	return o
}
