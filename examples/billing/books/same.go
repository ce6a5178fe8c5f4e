package books

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

// same fails with ErrInvalid unless the batch of this name that is in the books has the same records, sums and number of
// rejections. Another one would be taken for recorded, and its records be lost.
func (b *Books) same(ctx context.Context, tx *sql.Tx, batch *Batch, sums *totals.Totals, rejections []records.Rejection) error {
	var count, rejected int64
	row := tx.QueryRowContext(ctx, b.dialect.sql("SELECT records, rejected FROM @batches WHERE name = ?"), batch.Name)
	if err := row.Scan(&count, &rejected); err != nil {
		return err
	}
	equal := count == batch.Records && rejected == int64(len(rejections))
	if equal {
		var err error
		if equal, err = b.sameSums(ctx, tx, batch.Name, sums); err != nil {
			return err
		}
	}
	if !equal {
		return fmt.Errorf("%w: another batch of this name is in the books, with %d records, %d of them rejected, or other sums; this one has %d, %d of them rejected",
			ErrInvalid, count, rejected, batch.Records, len(rejections))
	}
	return nil
}

func (b *Books) sameSums(ctx context.Context, tx *sql.Tx, batch string, sums *totals.Totals) (_ bool, err error) {
	missing := make(map[totals.Key]totals.Sum)
	for key, sum := range sums.All() {
		missing[key] = sum
	}
	rows, err := tx.QueryContext(ctx, b.dialect.sql("SELECT account, tariff, currency, records, quantity, amount FROM @sums WHERE batch = ?"), batch)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key totals.Key
		var sum totals.Sum
		if err := rows.Scan(&key.Account, &key.Tariff, &key.Currency, &sum.Records, &sum.Quantity, &sum.Amount); err != nil {
			return false, err
		}
		want, ok := missing[key]
		if !ok || want.Records != sum.Records || !want.Quantity.Equal(sum.Quantity) || !want.Amount.Equal(sum.Amount) {
			return false, nil
		}
		delete(missing, key)
	}
	return len(missing) == 0, rows.Err()
}
