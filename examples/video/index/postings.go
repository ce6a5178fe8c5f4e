package index

import (
	"context"
	"errors"

	"github.com/millrace/millrace/table"
)

// countProperty of a head is how many postings its term has.
const countProperty = "Count"

// head is the key of a term's head.
func (t term) head() table.Key { return table.Key{Partition: t.String()} }

// posting is the key of a video's posting.
func (t term) posting(video string) table.Key { return table.Key{Partition: t.String(), Row: video} }

func (t term) entry() table.Key { return table.Key{Partition: t.field, Row: t.word} }

// add makes a posting, or gives the one that is there this version if it has an older one. Then it lists the term in the directory, even if the
// posting is there, because its worker may have been killed in between.
func (x *Index) add(ctx context.Context, t term, video string, version int64) error {
	if err := x.contend(ctx, func() error { return x.post(ctx, t, video, version) }); err != nil {
		return err
	}
	return x.contend(ctx, func() error { return x.list(ctx, t) })
}

func (x *Index) post(ctx context.Context, t term, video string, version int64) error {
	posting, err := find(ctx, x.postings, t.posting(video))
	if err != nil || posting.Int(versionProperty) >= version {
		return err
	}
	posting.Properties[versionProperty] = version
	if posting.ETag != "" {
		_, err = x.postings.Update(ctx, posting)
		return err
	}
	return x.changeWithHead(ctx, t, table.Inserting(posting), +1)
}

// remove deletes a posting if its version is not later than the given one. Then it takes the term out of the directory if this was its last posting, also
// if the posting is gone, because its worker may have been killed in between.
func (x *Index) remove(ctx context.Context, t term, video string, version int64) error {
	if err := x.contend(ctx, func() error { return x.unpost(ctx, t, video, version) }); err != nil {
		return err
	}
	return x.contend(ctx, func() error { return x.unlist(ctx, t) })
}

func (x *Index) unpost(ctx context.Context, t term, video string, version int64) error {
	posting, err := find(ctx, x.postings, t.posting(video))
	if err != nil || posting.ETag == "" || posting.Int(versionProperty) > version {
		return err
	}
	return x.changeWithHead(ctx, t, table.Deleting(posting.Key, posting.ETag), -1)
}

// changeWithHead makes a change of a posting and adds to the count in the head, in one group. The group fails if another worker
// has changed the head since it was read, so the count is always based on the current one. A head without postings is deleted.
func (x *Index) changeWithHead(ctx context.Context, t term, posting table.Change, more int64) error {
	head, err := find(ctx, x.postings, t.head())
	if err != nil {
		return err
	}
	count := head.Int(countProperty) + more
	head.Properties[countProperty] = count
	change := table.Updating(head)
	switch {
	case head.ETag == "" && count > 0:
		change = table.Inserting(head)
	case head.ETag != "" && count == 0:
		change = table.Deleting(head.Key, head.ETag)
	case count <= 0:
		// Another worker has deleted the last posting since this one was read. So the read is repeated.
		return table.ErrPreconditionFailed
	}
	_, err = x.postings.Apply(ctx, []table.Change{change, posting})
	return err
}

// list writes a term's entry in the directory unconditionally. An existing entry gets a new version too: a worker that has seen the term without postings, before, then fails to delete the entry.
func (x *Index) list(ctx context.Context, t term) error {
	entry := table.Entity{Key: t.entry(), ETag: table.Any}
	_, err := x.terms.Update(ctx, entry)
	if errors.Is(err, table.ErrMissing) {
		_, err = x.terms.Insert(ctx, entry)
	}
	return err
}

// unlist deletes a term's entry in the directory if the term has no postings. It reads the entry before the head: who adds a
// posting after that writes the entry after that, and so the deletion fails.
func (x *Index) unlist(ctx context.Context, t term) error {
	entry, err := find(ctx, x.terms, t.entry())
	if err != nil || entry.ETag == "" {
		return err
	}
	head, err := find(ctx, x.postings, t.head())
	if err != nil || head.ETag != "" {
		return err
	}
	return x.terms.Delete(ctx, entry.Key, entry.ETag)
}
