// Package paired keeps sends working while a queue cannot be reached: a primary queue, and backlog queues
// in a secondary account that take its messages meanwhile.
package paired
