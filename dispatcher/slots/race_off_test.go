//go:build !race

package slots_test

const raced = false
