// Package blobtest is the conformance suite that every [blob.Store] passes: memory, directory,
// and Azure Blob Storage, spoken to Azurite. What passes it can stand in for any other.
//
// A test of an implementation calls [Run] with a [Harness] that opens it:
//
//	func TestConformance(t *testing.T) {
//		blobtest.Run(t, blobtest.Harness{Bubble: true, Open: func(t *testing.T) blob.Manager {
//			return mystore.New()
//		}})
//	}
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Time
//
// With [Harness.Bubble] each test runs in a testing/synctest bubble, and times of modification
// are exact. Without it time is real, tests run in parallel, and times are only compared with
// each other and, roughly, with the clock of this machine.
//
// # Cost
//
// Some 8,000 calls, most of them small puts of the property test, which is left out with -short.
// The suite uses containers with names of its own, and deletes the blobs that it stored.
package blobtest
