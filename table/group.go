package table

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/waiting"
)

type changeKind int

const (
	insertion changeKind = iota + 1
	replacement
	deletion
)

// Change is one change of a group, which [Store.Apply] makes. Make it with [Inserting], [Updating] or
// [Deleting]; the zero value is invalid.
type Change struct {
	kind   changeKind
	entity Entity
}

// Inserting is [Store.Insert] as a change. The entity must stay as it is until [Store.Apply] returns.
func Inserting(e Entity) Change { return Change{insertion, e} }

// Updating is [Store.Update] as a change. The entity must stay as it is until [Store.Apply] returns.
func Updating(e Entity) Change { return Change{replacement, e} }

// Deleting is [Store.Delete] as a change.
func Deleting(k Key, etag ETag) Change { return Change{deletion, Entity{Key: k, ETag: etag}} }

// Inserts reports whether the change inserts an entity.
func (c Change) Inserts() bool { return c.kind == insertion }

// Deletes reports whether the change deletes an entity.
func (c Change) Deletes() bool { return c.kind == deletion }

// Entity returns the entity that the change inserts or writes; of a deletion, its key and the expected version.
func (c Change) Entity() Entity { return c.entity }

// Against returns why the change cannot be made to an entity whose version is current; "" means that it does
// not exist. It is for authors of stores.
func (c Change) Against(current ETag) error {
	switch {
	case c.kind == insertion && current != "":
		return &Error{Key: c.entity.Key, Kind: ErrExists}
	case c.kind == insertion:
		return nil
	case current == "":
		return &Error{Key: c.entity.Key, Kind: ErrMissing}
	case c.entity.ETag != Any && c.entity.ETag != current:
		return &Error{Key: c.entity.Key, Kind: ErrPreconditionFailed}
	}
	return nil
}

// Limits of a group, by the service's "Performing entity group transactions".
const (
	maxChanges    = 100
	maxGroupBytes = 4 << 20
)

// CheckGroup returns what is wrong with a group of changes: [ErrInvalid] or [ErrTooLarge]. A group has 1 to 100
// changes in one partition, at most one of each entity, and up to 4 MiB, as [Entity.Size] counts; a cloud store counts the request, which is
// larger, and may refuse a smaller group with [ErrTooLarge]. The error names the key of the change that is wrong.
func CheckGroup(changes []Change) error {
	switch {
	case len(changes) == 0:
		return invalid("", "the group has no changes")
	case len(changes) > maxChanges:
		return tooLarge("apply it in several groups", "the group has %d changes, and a group at most %d", len(changes), maxChanges)
	}
	seen, size := make(map[Key]bool, len(changes)), 0
	for _, c := range changes {
		k := c.entity.Key
		switch err := c.Check(); {
		case err != nil:
			return ofKey(k, err)
		case k.Partition != changes[0].entity.Partition:
			return ofKey(k, invalid("apply a group for each partition", "the group has changes of the partition %q too", changes[0].entity.Partition))
		case seen[k]:
			return ofKey(k, invalid("make one change of an entity in a group", "the group changes the entity twice"))
		}
		seen[k] = true
		size += c.entity.Size()
	}
	if size > maxGroupBytes {
		return tooLarge("apply it in several groups", "the group has %d bytes, and a group at most %d", size, maxGroupBytes)
	}
	return nil
}

// ofKey names the entity of a change that is wrong.
func ofKey(k Key, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // the checks return no other type
		e.Key = k
	}
	return err
}

// Check returns what is wrong with a change alone: [ErrInvalid] or [ErrTooLarge].
func (c Change) Check() error {
	switch c.kind {
	case insertion:
		return c.entity.Check()
	case replacement:
		if err := checkETag(c.entity.Key, c.entity.ETag); err != nil {
			return err
		}
		return c.entity.Check()
	case deletion:
		if err := c.entity.Key.Check(); err != nil {
			return err
		}
		return checkETag(c.entity.Key, c.entity.ETag)
	}
	return invalid("make it with Inserting, Updating or Deleting", "the change is the zero value")
}

// ErrUnchanged is what the function of [Modify] returns, alone or wrapped, if there is nothing to write.
var ErrUnchanged = errors.New("the entity stays as it is")

// ModifyOptions configure [Modify]. Nil and the zero value mean the defaults.
type ModifyOptions struct {
	// Attempts is how often the entity is read and written at most. Defaults to 10.
	Attempts int
}

func (o *ModifyOptions) attempts() int {
	if o == nil || o.Attempts == 0 {
		return 10
	}
	return o.Attempts
}

// Modify changes an entity as one step: it reads the entity, calls change, and writes the result if nobody else
// has written meanwhile. Otherwise it waits for some milliseconds, longer each time, and begins again, with what the
// entity is then. An entity that does not exist has no ETag and no properties when change gets it, and is
// inserted. What change does besides changing the entity may happen several times. It cannot change the key.
//
// Modify returns the entity with its new version, and with Modified zero, which no store tells a writer; if change
// returned [ErrUnchanged], it returns the entity as change left it, with the version that was read. The error is that
// of change; that of a read or write; or, if other writers came first each time, [ErrPreconditionFailed], [ErrExists]
// or [ErrMissing]. A write without an answer fails with [ErrUnavailable], because it may have taken effect: the caller
// knows whether the change may be made twice.
func Modify(ctx context.Context, s Store, k Key, change func(e *Entity) error, o *ModifyOptions) (Entity, error) {
	attempts := o.attempts()
	if attempts < 1 {
		return Entity{}, Explain("modify", "", k, invalid("", "Attempts is %d", attempts))
	}
	for n := 1; ; n++ {
		e, lost, err := modifyOnce(ctx, s, k, change)
		if !lost {
			return e, err
		}
		if n == attempts {
			return Entity{}, fmt.Errorf("other writers came first %d times: %w", n, err)
		}
		if err := waitForOthers(ctx, n); err != nil {
			return Entity{}, Explain("modify", "", k, err)
		}
	}
}

// modifyOnce makes one attempt and reports whether it lost against another writer. Only the write can lose: change may
// fail with the same kinds of error, about other entities.
func modifyOnce(ctx context.Context, s Store, k Key, change func(e *Entity) error) (e Entity, lost bool, err error) {
	e, err = s.Get(ctx, k)
	missing := errors.Is(err, ErrMissing)
	if err != nil && !missing {
		return Entity{}, false, err
	}
	if missing {
		e = Entity{Key: k, Properties: map[string]any{}}
	}
	read := e.ETag
	if err := change(&e); errors.Is(err, ErrUnchanged) {
		e.Key, e.ETag = k, read
		return e, false, nil
	} else if err != nil {
		return Entity{}, false, err
	}
	e = e.Clone() // as it will be stored
	e.Key, e.ETag, e.Modified = k, read, time.Time{}
	if missing {
		e.ETag, err = s.Insert(ctx, e)
		lost = errors.Is(err, ErrExists)
	} else {
		e.ETag, err = s.Update(ctx, e)
		lost = errors.Is(err, ErrPreconditionFailed) || errors.Is(err, ErrMissing)
	}
	if err != nil {
		return Entity{}, lost, err
	}
	return e, false, nil
}

// waitForOthers waits for a random part of 2 ms, doubled with each attempt up to 500 ms. It is random and no function of
// the key, because those who must not wait equally long are the writers of one entity.
func waitForOthers(ctx context.Context, attempt int) error {
	longest := min(time.Millisecond<<min(attempt, 10), 500*time.Millisecond)
	if !waiting.For(rand.N(longest)+1, ctx.Done()) {
		return serviceerror.Ended(ctx)
	}
	return nil
}
