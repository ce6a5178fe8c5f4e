package main

import (
	"errors"

	"github.com/millrace/millrace/queue/localqueue"
)

// openEngine returns the engine that the settings ask for, and what to call when it
// is no longer used.
func (s *settings) openEngine() (engine *localqueue.Engine, closeEngine func() error, err error) {
	if s.data != "" {
		return nil, nil, errors.New("-data is not in this build: leave it out to keep everything in memory")
	}
	return localqueue.New(s.engineOptions()), func() error { return nil }, nil
}

func (s *settings) engineOptions() *localqueue.Options {
	o := &localqueue.Options{DeletingFor: s.deletingFor, Seed: s.seed}
	if o.DeletingFor == 0 {
		o.DeletingFor = -1 // zero would be the default
	}
	return o
}
