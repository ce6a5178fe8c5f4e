package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/zstdcodec"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// A batch passes three queues. Each role puts its result before it deletes its message, so any process may be killed
// at any moment, and any message may come twice:
//
//	ship ─ batch ─> initiator ─ items ─> workers ─ results ─> controller ─> books

// batchMessage tells the initiator that a batch is stored, with its manifest.
type batchMessage struct {
	Batch string `json:"batch"`
}

// item is a piece of a batch, for a worker.
type item struct {
	Batch   string `json:"batch"`
	Item    int    `json:"item"`    // from 0
	Items   int    `json:"items"`   // of the batch
	Records int    `json:"records"` // lines of the piece
	SHA256  string `json:"sha256"`  // of the piece
}

// result tells the controller that the parts of some items are stored.
type result struct {
	Batch string `json:"batch"`
	Items int    `json:"items"` // of the batch
}

var (
	batchKind  = kinds.Kind[batchMessage]{Name: "batch"}
	itemKind   = kinds.Kind[item]{Name: "item"}
	resultKind = kinds.Kind[result]{Name: "result"}
	partCodec  = newPartCodec()
)

func newPartCodec() codec.Codec[books.Part] {
	c, err := zstdcodec.New[books.Part](nil, &zstdcodec.Options{MaxBody: maxPart})
	if err != nil {
		panic(err) // the options are invalid
	}
	return c
}

const (
	maxPart    = 64 << 20               // bytes of a part, unpacked
	maxTariffs = 16 << 20               // bytes of the tariffs as CSV
	together   = 16                     // items that a worker answers with one message, at most
	collecting = 100 * time.Millisecond // how long an item waits for others with the same answer
	sends      = 16                     // concurrent requests of one process
)

// split is the initiator's handler: it sends a message for each piece of a batch. The tariffs of the first initiator
// that splits a batch apply to all of it: they are stored once, beside the pieces.
func (s *system) split(ctx context.Context, m *listener.Message[batchMessage]) error {
	batch := m.Body.Batch
	if err := checkBatch(batch); err != nil {
		return listener.Poison(err)
	}
	err := s.sendItems(ctx, batch)
	ended, endErr := s.ended(ctx, batch)
	if endErr != nil {
		return errors.Join(err, endErr)
	}
	if ended {
		return s.clean(ctx, batch) // it was shipped again, or is in the books by now
	}
	return err
}

func (s *system) sendItems(ctx context.Context, batch string) error {
	if ended, err := s.ended(ctx, batch); err != nil || ended {
		return err
	}
	manifest, err := readManifest(ctx, s.store, batch)
	if err != nil {
		return err
	}
	var tariffs bytes.Buffer
	if err := s.tariffs.WriteCSV(&tariffs); err != nil {
		return err
	}
	if err := s.store.Create(ctx, tariffsRef(batch), &tariffs, nil); err != nil && !errors.Is(err, blob.ErrExists) {
		return fmt.Errorf("store the tariffs of batch %s: %w", batch, err)
	}
	items := func(yield func(item) bool) {
		for n, p := range manifest.Pieces {
			if !yield(item{Batch: batch, Item: n, Items: len(manifest.Pieces), Records: p.Records, SHA256: p.SHA256}) {
				return
			}
		}
	}
	_, err = s.items.SendAllSeq(ctx, items, &producer.SendAllOptions[item]{
		Concurrency: sends,
		Options: func(_ int, i item) producer.SendOptions {
			return producer.SendOptions{JobID: jobID(i.Batch, i.Item)}
		},
	})
	if err != nil {
		return fmt.Errorf("send the items of batch %s: %w", batch, err)
	}
	return nil
}

// charge is the worker's handler: it stores a part for each item, then sends one message for each batch.
func (s *system) charge(ctx context.Context, ms []*listener.Message[item]) []error {
	errs := make([]error, len(ms))
	stored := make(map[string][]int) // indexes of messages, by batch
	for i, m := range ms {
		if errs[i] = s.chargeItem(ctx, &m.Body); errs[i] == nil {
			stored[m.Body.Batch] = append(stored[m.Body.Batch], i)
		}
	}
	for _, batch := range slices.Sorted(maps.Keys(stored)) {
		first := ms[stored[batch][0]].Body
		ended, err := s.ended(ctx, batch)
		if ended && err == nil {
			err = s.parts.Sweep(ctx, batch) // these items came again, and their parts are not needed
		} else if err == nil {
			_, err = s.results.Send(ctx, result{batch, first.Items}, &producer.SendOptions{JobID: jobID(batch, first.Item)})
		}
		for _, i := range stored[batch] {
			errs[i] = err
		}
	}
	return errs
}

func (s *system) chargeItem(ctx context.Context, i *item) error {
	if err := checkItem(i.Batch, i.Item, i.Items); err != nil {
		return listener.Poison(err)
	}
	tariffs, err := s.tariffsOf(ctx, i.Batch)
	if err != nil {
		return s.unlessEnded(ctx, i.Batch, err)
	}
	piece, err := readAll(ctx, s.store, pieceRef(i.Batch, i.Item), maxPiece)
	if err != nil {
		return s.unlessEnded(ctx, i.Batch, err)
	}
	part, err := chargePiece(piece, i, tariffs)
	if err != nil {
		return listener.Poison(fmt.Errorf("piece %d of batch %s is damaged: %w; ship the file again to replace it", i.Item, i.Batch, err))
	}
	if s.work > 0 { // as if a tariff service was asked
		select {
		case <-time.After(s.work):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	packed, err := partCodec.Encode(*part)
	if err != nil {
		return listener.Poison(err)
	}
	return s.parts.Put(ctx, i.Batch, i.Item, bytes.NewReader(packed))
}

// chargePiece charges the records of a piece. After an error the piece is damaged.
func chargePiece(piece []byte, i *item, tariffs records.Tariffs) (*books.Part, error) {
	if digest(piece) != i.SHA256 {
		return nil, fmt.Errorf("its %d bytes do not have the checksum of the manifest", len(piece))
	}
	part := new(books.Part)
	for r, err := range records.ReadPiece(bytes.NewReader(piece), jobID(i.Batch, i.Item)) {
		var rejection *records.Rejection
		if errors.As(err, &rejection) {
			part.Rejected = append(part.Rejected, *rejection)
			continue
		}
		if err != nil {
			return nil, err
		}
		currency, amount, err := tariffs.Charge(&r)
		if err != nil {
			part.Rejected = append(part.Rejected, r.Reject(err.Error()))
			continue
		}
		part.Charged = append(part.Charged, books.Charged{Record: r, Currency: currency, Amount: amount})
	}
	return part, nil
}

// tariffsOf returns the tariffs that were fixed for a batch.
func (s *system) tariffsOf(ctx context.Context, batch string) (records.Tariffs, error) {
	if known := s.known.Load(); known != nil && known.batch == batch {
		return known.tariffs, nil
	}
	text, err := readAll(ctx, s.store, tariffsRef(batch), maxTariffs)
	if err != nil {
		return nil, fmt.Errorf("read the tariffs of batch %s: %w", batch, err)
	}
	tariffs, _, err := records.ReadTariffs(bytes.NewReader(text), tariffsRef(batch).String())
	if err != nil {
		return nil, fmt.Errorf("read the tariffs of batch %s: %w", batch, err)
	}
	s.known.Store(&knownTariffs{batch, tariffs})
	return tariffs, nil
}

// collect is the controller's handler: after the last result of a batch it records the batch in the books, and deletes
// its blobs.
func (s *system) collect(ctx context.Context, m *listener.Message[result]) error {
	batch, items := m.Body.Batch, m.Body.Items
	if err := checkItem(batch, 0, items); err != nil {
		return listener.Poison(err)
	}
	complete, err := s.parts.Complete(ctx, batch, items)
	if err != nil || !complete {
		return err
	}
	ran, reported := false, books.Batch{}
	_, err = s.parts.Once(ctx, batch, func(ctx context.Context) ([]byte, error) {
		if reported, err = s.record(ctx, batch, items); err != nil {
			return nil, err
		}
		ran = true
		return []byte("{}"), nil
	})
	if err != nil {
		return err // the next delivery finds the end, if another controller was first
	}
	if ran {
		s.logger.Info("a batch is in the books", "batch", batch, "records", reported.Records, "rejected", reported.Rejected,
			"after", reported.Latency().Round(time.Millisecond))
		s.reported(reported)
	} else if m.DequeueCount == 1 {
		return nil // the handler that ran cleans up, and keeps its message until then
	}
	return s.clean(ctx, batch)
}

// record adds up the parts of a batch in the books. One part is in memory at a time.
func (s *system) record(ctx context.Context, batch string, items int) (books.Batch, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return books.Batch{}, context.Cause(ctx)
	}
	manifest, err := readManifest(ctx, s.store, batch)
	if err != nil {
		return books.Batch{}, err
	}
	if len(manifest.Pieces) != items {
		return books.Batch{}, listener.Poison(fmt.Errorf("batch %s has %d items, not %d", batch, len(manifest.Pieces), items))
	}
	b := books.Batch{Name: batch, File: manifest.File, Items: int64(items), Records: manifest.records(), HandedOver: manifest.HandedOver}
	_, err = s.books.Record(ctx, &b, readParts(s.parts.Parts(ctx, batch, items)))
	if errors.Is(err, books.ErrInvalid) {
		err = listener.Poison(err)
	}
	return b, err
}

func readParts(stored iter.Seq2[*gather.Part, error]) iter.Seq2[*books.Part, error] {
	return func(yield func(*books.Part, error) bool) {
		for one, err := range stored {
			var part books.Part
			if err == nil {
				var packed []byte
				if packed, err = io.ReadAll(io.LimitReader(one, maxPart)); err == nil {
					part, err = partCodec.Decode(packed)
				}
			}
			if !yield(&part, err) || err != nil {
				return
			}
		}
	}
}

func (s *system) ended(ctx context.Context, batch string) (bool, error) {
	_, ended, err := s.parts.End(ctx, batch)
	return ended, err
}

// clean deletes everything of a batch that is in the books, except its end. It can be repeated.
func (s *system) clean(ctx context.Context, batch string) error {
	for info, err := range s.store.List(ctx, batchesContainer, batch+"/") {
		if err == nil {
			err = s.store.Delete(ctx, info.Ref)
		}
		if err != nil {
			return fmt.Errorf("delete batch %s: %w", batch, err)
		}
	}
	return s.parts.Sweep(ctx, batch)
}

// unlessEnded returns err, or nil if a blob is missing because another process has recorded the batch meanwhile.
func (s *system) unlessEnded(ctx context.Context, batch string, err error) error {
	if !errors.Is(err, blob.ErrMissing) {
		return err
	}
	ended, endErr := s.ended(ctx, batch)
	if endErr != nil || !ended {
		return errors.Join(err, endErr)
	}
	return s.clean(ctx, batch)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func checkItem(batch string, item, items int) error {
	if items > gather.MaxParts || item < 0 || item >= items {
		return fmt.Errorf("batch %q cannot have an item %d of %d", batch, item, items)
	}
	return checkBatch(batch)
}
