package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// job is the work of a contender.
type job struct {
	location    string // a connection string
	queue       string
	concurrency int           // handlers at once
	handler     time.Duration // how long each waits
	load        float64       // messages a second of the first contender; 0 for that itself
}

// connections returns the size of every contender's connection pool. Deletes may be in flight together
// with those of the next handlers and the dequeues.
func (j job) connections() int { return 2*j.concurrency + 64 }

// loops returns how many goroutines fetch.
func (j job) loops() int { return (j.concurrency + 31) / 32 }

// handle is the handler: it waits, as for a database, or does nothing if the time is zero.
func (j job) handle() {
	if j.handler > 0 {
		time.Sleep(j.handler)
	}
}

// running is a running contender.
type running struct {
	done     func() int64 // messages handled and deleted so far
	heldBack func() int64 // dequeues that a limit has held back so far; nil for none
	stop     func() error // stops it, waits and returns its error
}

// contender is a way to consume a queue.
type contender struct {
	name  string
	start func(context.Context, job) (*running, error)
}

func (c contender) String() string { return c.name }

// The others are compared with the first.
var contenders = []contender{
	{"ideal", startIdeal},
	{"sample", startSample},
	{"millrace", startListener},
	{"millrace-http1", startListenerHTTP1},
	{"loop", startLoop},
	{"loop-http1", startLoopHTTP1},
	{"millrace-limited", startLimited},
	{"millrace-rate", startRate},
	{"millrace-concurrency", startConcurrency},
}

// byDefault leaves out the loops, which separate the cost of the listener from that of its queue, and the limits.
var byDefault = contenders[:4]

func contenderNames() string {
	var names []string
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func contenderByName(name string) (contender, error) {
	for _, c := range contenders {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("unknown contender %q: choose from %s", name, contenderNames())
}
