package main

import (
	"iter"
	"sync"
)

// atATime is how many requests a command about several queues has in progress.
const atATime = 8

// inOrder calls do for each item, a few at a time, and yields the results in the order of the items,
// as early as that order allows. It returns when no call is in progress.
func inOrder[T, R any](items []T, do func(T) R) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		var calls sync.WaitGroup
		defer calls.Wait()
		results := make(chan chan R, atATime)
		start := func(item T) {
			result := make(chan R, 1)
			results <- result
			calls.Go(func() { result <- do(item) })
		}
		for _, item := range items[:min(len(items), atATime)] {
			start(item)
		}
		for i, item := range items {
			if !yield(item, <-<-results) {
				return
			}
			if next := i + atATime; next < len(items) {
				start(items[next])
			}
		}
	}
}
