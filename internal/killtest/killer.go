// Package killtest kills processes in tests: simulated ones at a step of their work, and real ones.
package killtest

import (
	"errors"
	"sync"
)

// Killer kills a simulated process at its nth step of a kind, before or after that takes effect. A
// step is a request that does something, or a handler. The zero value kills nothing. It is safe for
// concurrent use.
type Killer struct {
	// Kind is that of the step. Empty for a process that is not killed.
	Kind string

	// Nth is the number of the step among those of its kind, from 1.
	Nth int

	// After says that the step takes effect before the process is killed.
	After bool

	mu    sync.Mutex
	steps int  // of the kind so far; guarded by mu
	dead  bool // guarded by mu
}

// ErrKilled is the error of every step of a process that was killed.
var ErrKilled = errors.New("the process was killed")

// Step takes a step by calling act. It returns ErrKilled if the process was killed before or at the step.
func (k *Killer) Step(kind string, act func() error) error {
	k.mu.Lock()
	if k.dead {
		k.mu.Unlock()
		return ErrKilled
	}
	if kind == k.Kind {
		k.steps++
		k.dead = k.steps == k.Nth
	}
	now := k.dead
	k.mu.Unlock()
	if now && !k.After {
		return ErrKilled
	}
	err := act()
	if k.Dead() { // also if another step was the last while this one was under way
		return ErrKilled
	}
	return err
}

// Dead reports whether the process was killed.
func (k *Killer) Dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// Every runs a test for every step of these kinds that its process takes, before and after the step takes
// effect: kill runs a process with the killer and reports whether it was killed. Every returns the
// kinds at which no process was.
func Every(kinds []string, kill func(*Killer) (killed bool)) (never []string) {
	for _, kind := range kinds {
		for _, after := range []bool{false, true} {
			for n, killed := 1, true; killed; n++ {
				killed = kill(&Killer{Kind: kind, Nth: n, After: after})
				if !killed && n == 1 {
					never = append(never, kind)
				}
			}
		}
	}
	return never
}
