package table

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
