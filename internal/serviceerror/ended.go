package serviceerror

import (
	"context"
	"errors"
	"fmt"
)

// Ended returns nil while ctx has not ended. Then it returns the context's error joined with its cause, which is what a
// call of a queue, blob, or table fails with.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
