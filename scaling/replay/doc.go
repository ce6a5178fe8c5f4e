// Package replay plays traces of load against rules that scale, in simulated time.
package replay
