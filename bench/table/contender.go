package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/filetable"
)

// target is a table to measure. It is safe for concurrent use.
type target interface {
	insert(ctx context.Context, entities []table.Entity) error // one of them, or a group
	get(ctx context.Context, k table.Key) error
	page(ctx context.Context, from table.Key) (entities int, err error) // of one partition
	remove(ctx context.Context, keys []table.Key) error                 // one of them, or a group
	close() error
}

// contender is a kind of table.
type contender struct {
	name string

	// open makes an empty table, in a new file in a folder if it is kept in one. The error is errAbsent if it cannot be
	// had here.
	open func(dir string) (target, error)
}

// errAbsent means that a contender is not installed.
var errAbsent = errors.New("not installed")

var contenders = []contender{{"filetable", openFile}, {"sqlite", openSQLite}, {"azurite", openAzurite}}

// store is a [table.Store] to measure.
type store struct {
	table.Store
	end func() error
}

func openFile(dir string) (target, error) {
	db, err := filetable.Open(filepath.Join(dir, "tables.db"), nil)
	if err != nil {
		return nil, err
	}
	s, err := db.Table("Blogs")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store{s, db.Close}, nil
}

// openAzurite starts Azurite, so that what others have stored in it does not make it slow.
func openAzurite(string) (target, error) {
	location, stop, err := azuritetest.StartTable()
	if err != nil && strings.Contains(err.Error(), "no Azurite here") {
		return nil, fmt.Errorf("%w: Azurite; npm install azurite, and set AZURITE to its azurite-queue executable", errAbsent)
	}
	if err != nil {
		return nil, err
	}
	s, err := aztable.Open(location, "Blogs", &aztable.Options{TryTimeout: time.Minute})
	if err != nil {
		stop()
		return nil, err
	}
	return store{s, func() error { err := s.Close(); stop(); return err }}, nil
}

func (s store) insert(ctx context.Context, entities []table.Entity) (err error) {
	if len(entities) == 1 {
		_, err = s.Insert(ctx, entities[0])
		return err
	}
	var changes []table.Change
	for _, e := range entities {
		changes = append(changes, table.Inserting(e))
	}
	_, err = s.Apply(ctx, changes)
	return err
}

func (s store) get(ctx context.Context, k table.Key) error {
	_, err := s.Get(ctx, k)
	return err
}

func (s store) page(ctx context.Context, from table.Key) (int, error) {
	p, err := s.Query(ctx, table.Query{Partition: from.Partition, FromRow: from.Row})
	return len(p.Entities), err
}

func (s store) remove(ctx context.Context, keys []table.Key) error {
	if len(keys) == 1 {
		return s.Delete(ctx, keys[0], table.Any)
	}
	var changes []table.Change
	for _, k := range keys {
		changes = append(changes, table.Deleting(k, table.Any))
	}
	_, err := s.Apply(ctx, changes)
	return err
}

func (s store) close() error { return s.end() }
