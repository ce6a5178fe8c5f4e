package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/codec/zstdcodec"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
	"github.com/millrace/millrace/gather"
)

// part is what a Worker found in an item, or the Controller in all items of a batch.
type part struct {
	Billed   int64               `json:"billed"` // records
	Totals   *totals.Totals      `json:"totals"`
	Rejected []records.Rejection `json:"rejected,omitempty"` // records that cannot be charged
}

// maxPart bounds a part when it is unpacked.
const maxPart = 64 << 20

var partCodec = zstdcodec.New[part](nil, &zstdcodec.Options{MaxBody: maxPart})

// charge returns what the records of an item cost. An error says that the item is damaged.
func charge(item *WorkItem, tariffs *records.Tariffs) (p part, err error) {
	p.Totals = new(totals.Totals)
	for r, err := range records.ReadPiece(strings.NewReader(item.Records), jobID(item.Batch, item.Item)) {
		if err != nil {
			return part{}, err
		}
		currency, amount, err := tariffs.Charge(&r)
		if err != nil {
			p.Rejected = append(p.Rejected, records.Rejection{File: item.File, Line: r.Line, ID: r.ID, Reason: err.Error()})
			continue
		}
		p.Billed++
		p.Totals.Add(totals.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}, r.Quantity, amount)
	}
	return p, nil
}

// merge adds up the parts of a batch, one of which is in memory at a time.
func merge(ctx context.Context, g *gather.Gather, batch string, items int) (part, error) {
	all := part{Totals: new(totals.Totals)}
	for stored, err := range g.Parts(ctx, batch, items) {
		if err != nil {
			return part{}, err
		}
		p, err := readPart(stored)
		if err != nil {
			return part{}, fmt.Errorf("read part %d of batch %s: %w", stored.Number, batch, err)
		}
		all.Billed += p.Billed
		all.Totals.Merge(p.Totals)
		all.Rejected = append(all.Rejected, p.Rejected...)
	}
	return all, nil
}

func readPart(r io.Reader) (part, error) {
	packed, err := io.ReadAll(io.LimitReader(r, maxPart))
	if err != nil {
		return part{}, err
	}
	p, err := partCodec.Decode(packed)
	if err == nil && p.Totals == nil {
		err = errors.New("it has no totals")
	}
	return p, err
}
