package aztable

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

// Query implements [table.Store] with Query Entities. The page of a table that does not exist is empty.
func (t *Table) Query(ctx context.Context, q table.Query) (table.Page, error) {
	options, bad := t.queryOptions(q)
	var page table.Page
	err := t.read(ctx, table.Key{Partition: q.Partition}, bad, exchange{
		send: func(try context.Context) error {
			_, err := t.client.NewListEntitiesPager(options).NextPage(try) // one page, one request
			return err
		},
		statuses: []int{http.StatusOK},
		read: func(a *answer) (err error) {
			page, err = t.readPage(q, a)
			return err
		},
	})
	if hasCode(err, codeTableNotFound) {
		return table.Page{}, nil
	}
	if err != nil {
		return table.Page{}, table.Explain("query", t.name, table.Key{Partition: q.Partition}, err)
	}
	return page, nil
}

func (t *Table) queryOptions(q table.Query) (*aztables.ListEntitiesOptions, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	o := &aztables.ListEntitiesOptions{}
	if q.Token != "" {
		at, err := t.readToken(q)
		if err != nil {
			return nil, err
		}
		o.NextPartitionKey = &at.partition
		if at.row != "" {
			o.NextRowKey = &at.row
		}
	}
	if text := condition(q); text != "" {
		o.Filter = &text
	}
	if q.Top != 0 {
		top := int32(q.Top) //nolint:gosec // it is at most 1,000
		o.Top = &top
	}
	return o, nil
}

// condition returns the filter of a query with its partition and rows, as OData.
func condition(q table.Query) string {
	quoted := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	var parts []string
	if q.Partition != "" {
		parts = append(parts, partitionName+" eq "+quoted(q.Partition))
	}
	if q.FromRow != "" {
		parts = append(parts, rowName+" ge "+quoted(q.FromRow))
	}
	if q.ToRow != "" {
		parts = append(parts, rowName+" lt "+quoted(q.ToRow))
	}
	if text := q.Filter.String(); text != "" {
		parts = append(parts, "("+text+")")
	}
	return strings.Join(parts, " and ")
}

// The headers with which the service says where the next page begins.
const (
	nextPartitionHeader = "x-ms-continuation-NextPartitionKey"
	nextRowHeader       = "x-ms-continuation-NextRowKey"
)

func (t *Table) readPage(q table.Query, a *answer) (table.Page, error) {
	var document struct {
		Value *[]map[string]any `json:"value"`
	}
	if err := a.decode(&document); err != nil {
		return table.Page{}, err
	}
	if document.Value == nil {
		return table.Page{}, &azurestorage.ForeignError{Lacks: "list of entities"}
	}
	var page table.Page
	for _, d := range *document.Value {
		e, err := newEntity(d)
		if err != nil {
			return table.Page{}, err
		}
		page.Entities = append(page.Entities, e)
	}
	next := place{a.Header.Get(nextPartitionHeader), a.Header.Get(nextRowHeader)}
	if next != (place{}) {
		if !next.valid() {
			return table.Page{}, &azurestorage.ForeignError{Lacks: "place of the next page"}
		}
		page.Next = t.newToken(q, next)
	}
	return page, nil
}

// place is where a page begins, in the service's own words, which need not be keys. One of them may be empty.
type place struct{ partition, row string }

func (p place) valid() bool {
	return p != (place{}) && !strings.ContainsFunc(p.partition+p.row, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// newToken returns the token of a place. It begins with a checksum, by which a token is known to be of this
// query.
func (t *Table) newToken(q table.Query, p place) table.Token {
	// A digest of the query, apart from Top and Token, and of the place.
	var all []byte
	for _, part := range []string{strings.ToLower(t.name), q.Partition, q.FromRow, q.ToRow, q.Filter.String(), p.partition, p.row} {
		all = append(binary.AppendUvarint(all, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(all)
	return table.Token(base64.RawURLEncoding.EncodeToString(append(sum[:tokenSum], p.partition+"\x00"+p.row...)))
}

const tokenSum = 8 // bytes

func (t *Table) readToken(q table.Query) (place, error) {
	bad := invalid("use Next of the page before, unchanged, with the query that it came from", "%.100q is no token of this query", string(q.Token))
	text, err := base64.RawURLEncoding.DecodeString(string(q.Token))
	if err != nil || len(text) < tokenSum {
		return place{}, bad
	}
	partition, row, _ := strings.Cut(string(text[tokenSum:]), "\x00")
	p := place{partition, row}
	// The decoder skips line ends and ignores unused bits, so only the place's own token is taken for it.
	if !p.valid() || t.newToken(q, p) != q.Token {
		return place{}, bad
	}
	return p, nil
}
