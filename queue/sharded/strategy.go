package sharded

import "fmt"

// Strategy is how a [Queue] chooses the shard of a message.
type Strategy uint8

// The strategies. Shards that rest are left out by all but ByKey.
const (
	// RoundRobin takes the shard that was chosen longest ago.
	RoundRobin Strategy = iota

	// Random takes any shard.
	Random

	// ByKey takes a shard by EnqueueOptions.Key, the same for all messages with that key and in all
	// processes. A shard that is added takes its part of the keys from all others, 1/k of them if there
	// are k with it; all other keys stay where they are. The keys of a shard that is removed are spread
	// over the others. A message without a key is placed by RoundRobin.
	ByKey

	// LeastDepth takes two shards at random, and of them the one with fewer messages: the depth at the
	// last reading and what this Queue has placed since. The least of all would be flooded by producers
	// that all know the same reading. If one of the two has a depth that could not be read, the first of
	// them is taken, so such a shard gets about its share.
	LeastDepth
)

var strategyNames = [...]string{RoundRobin: "round robin", Random: "random", ByKey: "by key", LeastDepth: "least depth"}

// String returns the name of the strategy, such as "round robin".
func (s Strategy) String() string {
	if int(s) >= len(strategyNames) {
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
	return strategyNames[s]
}
