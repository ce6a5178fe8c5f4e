package main

import (
	"context"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// mosaicProgram names the folders of this program, and says what its blobs are.
var mosaicProgram = account.Program{Name: "mosaic", Blobs: "pictures"}

// openRoles opens the roles that a process plays, once the queue server answers. It sets the options that depend on the
// account, unless they are set.
func openRoles(ctx context.Context, a *account.Account, b *account.Blobs, o roles.Options) (*roles.System, error) {
	if _, err := a.Server(ctx); err != nil {
		return nil, err
	}
	if o.Idle.Max == 0 {
		o.Idle = a.Idle()
	}
	o.Wakeups = a.Wakeups()
	return roles.Open(ctx, a.Queue, b.Store, &o)
}
