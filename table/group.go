package table

// changeKind is what a change does.
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

// Inserting is [Store.Insert] as a change.
func Inserting(e Entity) Change { return Change{insertion, e} }

// Updating is [Store.Update] as a change.
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

// CheckGroup returns what is wrong with a group of changes: [ErrInvalid] or [ErrTooLarge].
func CheckGroup(changes []Change) error {
	switch {
	case len(changes) == 0:
		return invalid("", "the group has no changes")
	case len(changes) > maxChanges:
		return tooLarge("apply it in several groups", "the group has %d changes, and a group at most %d", len(changes), maxChanges)
	}
	seen, size := make(map[Key]bool, len(changes)), 0
	for _, c := range changes {
		if err := c.Check(); err != nil {
			return err
		}
		switch k := c.entity.Key; {
		case k.Partition != changes[0].entity.Partition:
			return invalid("apply a group for each partition", "the group is of the partitions %q and %q", changes[0].entity.Partition, k.Partition)
		case seen[k]:
			return invalid("", "the group changes the row %q twice", k.Row)
		default:
			seen[k] = true
		}
		size += c.entity.Size()
	}
	if size > maxGroupBytes {
		return tooLarge("apply it in several groups", "the group has %d bytes, and a group at most %d", size, maxGroupBytes)
	}
	return nil
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
