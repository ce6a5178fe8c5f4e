package localqueue

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// maxSettings is the limit, in bytes, of an access policy or an account's service
// properties: some 30 times what the service's maximum of five policies or five CORS rules
// takes.
const maxSettings = 64 << 10

// AccessPolicy returns what [Queue.SetAccessPolicy] stored, or nil for none. The caller
// owns the slice.
func (q *Queue) AccessPolicy(ctx context.Context) ([]byte, error) {
	const op = "get access policy"
	s, _, err := q.begin(ctx, noSpace)
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	policy := bytes.Clone(s.policy)
	if err := q.end(s).wait(ctx); err != nil {
		return nil, q.fail(op, "", err)
	}
	return policy, nil
}

// SetAccessPolicy stores the queue's access policy: at most 64 KiB, else it fails with
// [queue.ErrTooLarge]. The engine does not interpret the bytes. Nil and empty mean none. A
// drop removes it with the queue.
func (q *Queue) SetAccessPolicy(ctx context.Context, policy []byte) error {
	const op = "set access policy"
	if err := checkSettings(policy); err != nil {
		return q.fail(op, "", err)
	}
	s, _, err := q.begin(ctx, needsSpace)
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.policy
	s.policy = cloneSettings(policy)
	q.recordState(s, func() { s.policy = old })
	if err := q.end(s).wait(ctx); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// ServiceProperties returns what [Engine.SetServiceProperties] stored for the account, or
// nil for none. The caller owns the slice.
func (e *Engine) ServiceProperties(ctx context.Context, accountName string) ([]byte, error) {
	const op = "get service properties"
	name := queue.Name{Account: accountName}
	if err := ready(ctx, nil); err != nil {
		return nil, queue.Explain(err, op, name, "")
	}
	if err := e.enter(noSpace); err != nil {
		return nil, queue.Explain(err, op, name, "")
	}
	properties, seen := e.account(accountName, false).settings()
	e.leave()
	if err := seen.wait(ctx); err != nil {
		return nil, queue.Explain(err, op, name, "")
	}
	return properties, nil
}

// settings also returns the newest change that it shows. It is safe on nil.
func (a *accountState) settings() ([]byte, *ticket) {
	if a == nil {
		return nil, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return bytes.Clone(a.properties), a.pending
}

// SetServiceProperties stores the settings of an account, which need not have a queue: at
// most 64 KiB, else it fails with [queue.ErrTooLarge]. The engine does not interpret the
// bytes. Nil and empty mean none.
func (e *Engine) SetServiceProperties(ctx context.Context, accountName string, properties []byte) error {
	const op = "set service properties"
	name := queue.Name{Account: accountName}
	if err := ready(ctx, checkSettings(properties)); err != nil {
		return queue.Explain(err, op, name, "")
	}
	if err := e.enter(needsSpace); err != nil {
		return queue.Explain(err, op, name, "")
	}
	seen := e.set(e.account(accountName, true), accountName, cloneSettings(properties))
	e.leave()
	if err := seen.wait(ctx); err != nil {
		return queue.Explain(err, op, name, "")
	}
	return nil
}

func (e *Engine) set(a *accountState, name string, properties []byte) *ticket {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.properties
	a.properties = properties
	if e.committer != nil {
		a.pending = e.committer.add(storage.AccountSaved{Name: name, Properties: properties}, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.properties, a.pending = old, nil
		})
	}
	return a.pending
}

func checkSettings(b []byte) error {
	if len(b) <= maxSettings {
		return nil
	}
	return &queue.Error{Kind: queue.ErrTooLarge, Detail: fmt.Sprintf("settings have %d bytes, the limit is %d", len(b), maxSettings)}
}

// cloneSettings returns a copy of b, nil if it is empty.
func cloneSettings(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}
