package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// job is what a contender has to do.
type job struct {
	location    string // a connection string
	queue       string
	concurrency int           // handlers at once
	handler     time.Duration // how long each waits
}

// connections is how many idle connections everybody's pool keeps: handlers'
// deletes may be on the wire beside the next handlers', and the dequeues.
func (j job) connections() int { return 2*j.concurrency + 64 }

// loops is how many goroutines fetch.
func (j job) loops() int { return (j.concurrency + 31) / 32 }

// handle is the handler: it waits, as for a database. Zero does nothing at all.
func (j job) handle() {
	if j.handler > 0 {
		time.Sleep(j.handler)
	}
}

// running is a contender at work.
type running struct {
	done func() int64 // messages handled and deleted so far
	stop func() error // ends it, waits, and tells what went wrong
}

// contender is a way to consume a queue.
type contender struct {
	name  string
	start func(context.Context, job) (*running, error)
}

func (c contender) String() string { return c.name }

// The first is what the others are compared with.
var contenders = []contender{
	{"ideal", startIdeal},
	{"sample", startSample},
	{"millrace", startListener},
	{"millrace-http1", startListenerHTTP1},
	{"loop", startLoop},
	{"loop-http1", startLoopHTTP1},
}

// byDefault leaves out the loops, which tell what the listener costs from what its
// queue does.
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
	return contender{}, fmt.Errorf("there is no contender %q: they are %s", name, contenderNames())
}
