package main

import (
	"context"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// mosaicProgram names the folders of this program, and says what its blobs are.
var mosaicProgram = account.Program{Name: "mosaic", Blobs: "pictures"}

// openRoles opens the roles that a process plays. It sets the options that depend on the account.
func openRoles(ctx context.Context, a *account.Account, b *account.Blobs, o roles.Options) (*roles.System, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Patience())
	defer cancel()
	o.Idle, o.Wakeups, o.Place = a.Idle(), a.Wakeups(), b.Place
	system, err := roles.Open(ctx, a.Queue, b.Store, &o)
	return system, a.Explain(err)
}
