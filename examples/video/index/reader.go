package index

import (
	"context"
	"sort"

	"github.com/millrace/millrace/table"
)

// anyOf reads the postings of several terms as if they were of one.
type anyOf []*reader

// seek returns the first video from a row on that any of the terms has.
func (a anyOf) seek(ctx context.Context, row string) (video string, found bool, err error) {
	for _, r := range a {
		next, ok, err := r.seek(ctx, row)
		if err != nil {
			return "", false, err
		}
		if ok && (!found || next < video) {
			video, found = next, true
		}
	}
	return video, found, nil
}

type reader struct {
	store table.Store
	term  term

	from string   // where the page begins; "" before the first one
	page []string // the videos in it
	last bool     // there are no postings behind it
}

// pageSize is how many postings a reader holds.
const pageSize = 64

// seek returns the first video from a row on. Rows may only go up from call to call.
func (r *reader) seek(ctx context.Context, row string) (video string, found bool, err error) {
	for {
		if r.from != "" {
			if i := sort.SearchStrings(r.page, row); i < len(r.page) {
				return r.page[i], true, nil
			}
			if r.last {
				return "", false, nil
			}
		}
		if err := r.load(ctx, row); err != nil {
			return "", false, err
		}
	}
}

// load reads the page that begins at a row. A page without entities is not the end, so it reads on until there are some.
func (r *reader) load(ctx context.Context, row string) error {
	q := table.Query{Partition: r.term.String(), FromRow: row, Top: pageSize}
	r.from, r.page = row, r.page[:0]
	for len(r.page) == 0 {
		page, err := r.store.Query(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entities {
			r.page = append(r.page, e.Row)
		}
		if q.Token = page.Next; q.Token == "" {
			r.last = true
			break
		}
	}
	return nil
}
