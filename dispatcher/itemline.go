package dispatcher

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/keyed"
)

// itemLine is the order in which an [Each] calls its handler for the items of a group: that of the
// group, except that an item whose key an earlier one has is called when that is done. Meanwhile it
// takes none of the concurrency. The items learn from middleware which keys they have.
type itemLine struct {
	group *group

	mu      sync.Mutex
	fresh   int                    // the next item that was not looked at; guarded by mu
	ready   []int                  // items to be called, before the fresh ones; guarded by mu
	gaveWay []int                  // their key is held elsewhere, and others go first; guarded by mu
	stuck   []int                  // the same, after they have waited in vain; guarded by mu
	retried bool                   // whether stuck were called again, and none is done since; guarded by mu
	running map[int]bool           // items whose handlers are called; guarded by mu
	open    map[int]bool           // items that were looked at and are not done; guarded by mu
	back    map[int]error          // items that were postponed; guarded by mu
	funcs   []*keyFunc             // guarded by mu
	lines   map[keyed.Key]*keyLine // guarded by mu
	ofItem  map[int][]keyed.Key    // guarded by mu
}

// keyFunc is a function that middleware uses for keys.
type keyFunc struct {
	of      *keyed.Func
	unknown map[int]bool // the items, open or postponed, whose keys it has not told
}

// keyLine has the open items of a key. If one was postponed, so are the later ones: their order
// stays, and they have no use for a place in a line of their own.
type keyLine struct {
	items     []int // ascending
	postponed error
}

func newItemLine(g *group) *itemLine {
	return &itemLine{
		group: g, running: map[int]bool{}, open: map[int]bool{}, back: map[int]error{},
		lines: map[keyed.Key]*keyLine{}, ofItem: map[int][]keyed.Key{},
	}
}

// next returns the next item to be called. It returns nil if there is no such item until another
// one has returned, or at all if none runs.
func (l *itemLine) next() *lineItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var item int
		switch {
		case len(l.ready) > 0:
			item, l.ready = l.ready[0], l.ready[1:]
			l.running[item] = true
		case l.fresh < len(l.group.results):
			item = l.fresh
			l.fresh++
			if l.group.resultOf(item).state != jobLeft {
				continue
			}
			l.open[item], l.running[item] = true, true
			for _, f := range l.funcs {
				l.learn(item, f)
			}
		case len(l.gaveWay) > 0: // not by way of ready: they would give way to each other for ever
			item, l.gaveWay = l.gaveWay[0], l.gaveWay[1:]
			l.running[item] = true
		case len(l.running) == 0 && len(l.stuck) > 0:
			some := len(l.stuck)
			if l.retried {
				some = 1 // alone, it waits as a single job does: they would wait for each other for ever
			}
			l.ready, l.stuck, l.retried = l.stuck[:some:some], l.stuck[some:], true
			continue
		default:
			return nil
		}
		if !l.postpone(item) && l.isFirst(item) {
			return &lineItem{line: l, item: item}
		}
		delete(l.running, item)
	}
}

// postpone gives an item the result of an earlier one with its key that was postponed, if there is
// such an item. Requires mu.
func (l *itemLine) postpone(item int) bool {
	for _, key := range l.ofItem[item] {
		if err := l.lines[key].postponed; err != nil {
			l.group.itemReturned(item, err, explicitResult(err), nil, 0)
			l.close(item, err)
			return true
		}
	}
	return false
}

// isFirst reports whether no earlier item has a key of this one. Requires mu.
func (l *itemLine) isFirst(item int) bool {
	return !slices.ContainsFunc(l.ofItem[item], func(key keyed.Key) bool {
		return l.lines[key].items[0] != item
	})
}

// returned notes what came of a call.
func (l *itemLine) returned(c *lineItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, c.item)
	switch {
	case !c.later:
		l.close(c.item, c.err)
		l.ready = slices.Concat(l.ready, l.gaveWay, l.stuck)
		l.gaveWay, l.stuck, l.retried = nil, nil, false
	case !l.isFirst(c.item): // close makes it ready
	case c.behind:
		l.ready = append(l.ready, c.item)
	case c.gaveWay:
		l.gaveWay = append(l.gaveWay, c.item)
	default:
		l.stuck = append(l.stuck, c.item)
	}
}

// close removes the item from the lines of its keys, and lets those be called that were behind it.
// Requires mu.
func (l *itemLine) close(item int, err error) {
	keys := l.ofItem[item]
	delete(l.ofItem, item)
	delete(l.open, item)
	if explicitResult(err).postponed() {
		l.back[item] = err
	} else {
		for _, f := range l.funcs {
			delete(f.unknown, item)
		}
	}
	for _, key := range keys {
		line := l.lines[key]
		line.items = slices.DeleteFunc(line.items, func(other int) bool { return other == item })
		line.postponed = cmp.Or(l.back[item], line.postponed)
		if len(line.items) > 0 && !l.waits(line.items[0]) {
			l.ready = append(l.ready, line.items[0])
		}
	}
}

// waits reports whether the item is called, or will be without being the first of a line first.
// Requires mu.
func (l *itemLine) waits(item int) bool {
	return l.running[item] || slices.Contains(slices.Concat(l.ready, l.gaveWay, l.stuck), item)
}

// join puts the item into the line of its key. Requires mu.
func (l *itemLine) join(item int, key keyed.Key) {
	line := l.lines[key]
	if line == nil {
		line = &keyLine{}
		l.lines[key] = line
	}
	line.postponed = cmp.Or(l.back[item], line.postponed)
	if at, found := slices.BinarySearch(line.items, item); !found && l.open[item] {
		line.items = slices.Insert(line.items, at, item)
		l.ofItem[item] = append(l.ofItem[item], key)
	}
}

// learn asks a function for the key of an item. Requires mu, which it unlocks meanwhile. An item
// that cannot be decoded has no key. The function may end its goroutine.
func (l *itemLine) learn(item int, f *keyFunc) {
	l.mu.Unlock()
	var key keyed.Key
	found := false
	if h, err := l.group.delivery.job.decodeItem(item); err == nil {
		var asked sync.WaitGroup
		asked.Go(func() {
			ask := func() error {
				key, found = (*f.of)(h.decoded())
				return nil
			}
			contained(ask, func(err error) { found = found && err == nil })
		})
		asked.Wait()
	}
	l.mu.Lock()
	delete(f.unknown, item)
	if found {
		l.join(item, key)
	}
}

// lineItem is one call of the handler for an item. It implements keyed.Item.
type lineItem struct {
	line *itemLine
	item int

	behind  bool // an earlier item has its key; guarded by line.mu
	gaveWay bool // another item could run, if the key is held elsewhere; guarded by line.mu

	later bool  // it asks for another call; written before the call has returned
	err   error // of the handler; written before the call has returned
}

// Claim implements keyed.Item.
func (c *lineItem) Claim(key keyed.Key, of *keyed.Func) bool {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.funcOf(of)
	delete(f.unknown, c.item)
	l.join(c.item, key)
	for _, other := range slices.Sorted(maps.Keys(f.unknown)) { // they began at the same time
		if other < c.item {
			l.learn(other, f)
		}
	}
	c.behind = !l.isFirst(c.item) || l.lines[key].postponed != nil
	return !c.behind
}

// funcOf returns the function, which may be new to the line. Requires mu.
func (l *itemLine) funcOf(of *keyed.Func) *keyFunc {
	for _, f := range l.funcs {
		if f.of == of {
			return f
		}
	}
	f := &keyFunc{of, maps.Clone(l.open)}
	for item := range l.back {
		f.unknown[item] = true
	}
	l.funcs = append(l.funcs, f)
	return f
}

// Others implements keyed.Item.
func (c *lineItem) Others() (startable, running bool) {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	c.gaveWay = len(l.ready) > 0 || l.fresh < len(l.group.results)
	return c.gaveWay, len(l.running) > 1
}

// isLater reports whether middleware asks for another call of the item in this delivery.
func isLater(err error, said *resultError) bool {
	return said.postponed() && errors.Is(err, keyed.ErrLater)
}
