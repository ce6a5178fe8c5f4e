package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/table"
)

// Sizes of what is measured.
const (
	groupSize     = 100    // entities of a group
	pageSize      = 1000   // entities of a page
	partitionSize = 10_000 // entities of a partition, a multiple of the others
)

var (
	title = strings.Repeat("A blog of gophers. ", 2)
	text  = strings.Repeat("What gophers do all day long, and why. ", 6)
	begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// keyOf returns the key of the nth entity. The order of keys is that of numbers.
func keyOf(n int) table.Key {
	return table.Key{Partition: fmt.Sprintf("channel%05d", n/partitionSize), Row: fmt.Sprintf("%09d", n)}
}

// entityOf returns the nth entity: a blog of some 300 bytes.
func entityOf(n int) table.Entity {
	return table.Entity{Key: keyOf(n), Properties: map[string]any{
		"Title": title, "Text": text, "UserId": "ann", "Likes": int64(n), "CreatedOn": begun.Add(time.Duration(n) * time.Second),
	}}
}

// entitiesFrom returns n entities from a number on.
func entitiesFrom(first, n int) []table.Entity {
	entities := make([]table.Entity, n)
	for i := range entities {
		entities[i] = entityOf(first + i)
	}
	return entities
}
