package main

import (
	"context"
	"time"

	"github.com/millrace/millrace/examples/mosaic/roles"
)

// hints say what an order waits for if nothing happens to it. It is a [millrace.Runner].
type hints struct {
	order *roles.Order
	show  *display
}

// quiet is how long nothing happens before a hint: longer than a slice takes, and shorter than a user's patience.
const quiet = 5 * time.Second

// Run gives each hint once, until ctx ends.
func (h *hints) Run(ctx context.Context) error {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	var last stage
	given := make(map[roles.Roles]bool)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now, err := h.stage(ctx)
		if err != nil { // the order reports it if it lasts
			continue
		}
		if now == last && !given[now.role] {
			given[now.role] = true
			h.give(now.role)
		}
		last = now
	}
}

// Halt does nothing: Run returns when its context ends.
func (*hints) Halt() {}

// stage is how far an order is.
type stage struct {
	role  roles.Roles // that it waits for
	shown int         // slices that are finished
}

func (h *hints) stage(ctx context.Context) (stage, error) {
	role, err := h.order.WaitsFor(ctx)
	return stage{role, h.show.finished()}, err
}

func (h *hints) give(role roles.Roles) {
	const again = "; the work of one that was killed is taken up again half a minute later"
	switch role {
	case roles.Controller:
		h.show.Say("still waiting: no controller has taken this up for %v. Start one in another terminal with mosaic controller, or use -roles all%s", quiet, again)
	case roles.Processor:
		h.show.Say("still waiting: no processor has finished a slice for %v. Start one in another terminal with mosaic processor, or use -roles all%s", quiet, again)
	}
}
