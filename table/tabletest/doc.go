// Package tabletest is the conformance suite that every [table.Store] passes: memory, the tables of a file, and Azure
// Tables, spoken to Azurite. What passes it can stand in for any other.
//
// A test of an implementation calls [Run] with a [Harness] that opens it:
//
//	func TestConformance(t *testing.T) {
//		tabletest.Run(t, tabletest.Harness{Bubble: true, Open: func(t *testing.T, name string) table.Store {
//			return mystore.New(name)
//		}})
//	}
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Time
//
// With [Harness.Bubble] each test runs in a testing/synctest bubble, and times of modification are exact. Without it
// time is real, tests run in parallel, and times are only compared with each other.
//
// # Cost
//
// Some 10,000 calls, most of them of the property test, which is left out with -short. The others store some 3,000
// entities and 20 MiB.
package tabletest
