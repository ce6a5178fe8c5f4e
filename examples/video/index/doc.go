// Package index keeps an index of videos in three tables: who plays in which video, who has directed it, and which words
// its title and its keywords have. Any number of workers write it at the same time, and [Index.Search] reads it.
//
// # Tables
//
// Videos has an entity for each video, with its credits and their version. It alone determines the credits of a video.
//
// Postings has a partition for each term, such as "actor:zoe". A row for each video that has the term is a posting. The
// row "" is the head, which counts the postings: a posting and the head change in one group, under the ETag of the head,
// so the count is exact even under concurrent writes.
//
// Terms has a partition for each field, such as "actor", and a row for each word in it. A search for words that begin
// with "zo" reads a range of these rows.
//
// # Consistency
//
// Nothing holds the tables together, so [Index.Put] makes steps that may be repeated and may come late. Three rules keep
// the index right:
//
//   - A posting has the version of the credits that it was made for. A worker adds postings of its own version only, and
//     deletes postings of older ones only, or of its own if that was replaced. So no worker undoes a newer version's work.
//   - The entity of a video names the credits before, until their postings are deleted. So the next worker finishes the work of a
//     killed one.
//   - A worker reads the entity again after it has added its postings. If there is a newer version meanwhile, it removes
//     them again.
//
// When the last [Index.Put] of every version of a video has succeeded, the index has each posting once, and the counts are
// exact. Until then a search may miss a video that has just come, but it finds no video by old credits, because it compares
// each video's entity with the query.
//
// # Concurrency
//
// An index is safe for concurrent use. Nothing here starts a goroutine. A call ends with its context.
//
// # Cost
//
// A new video takes four requests, and four for each of its terms, or five for a term that no video has. A search takes two for each
// term of its words, for the count and for a page of postings, one for each further page of up to 64 postings, and one for each video that
// it finds.
package index
