package poison

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/naming"
)

// Counts are numbers of messages.
type Counts struct {
	Chosen   int `json:"chosen"`   // by the filter
	Redriven int `json:"redriven"` // sent to a queue and deleted; in a dry run, that would be
	Purged   int `json:"purged"`   // deleted; in a dry run, that would be
	Expired  int `json:"expired"`  // left where they are because their life has ended
	Skipped  int `json:"skipped"`  // left where they are for another reason
	Failed   int `json:"failed"`   // left where they are because a request failed

	// Doubled were sent but possibly not deleted, or possibly sent twice, because a request
	// failed or took longer than the lease. They are among the others.
	Doubled int `json:"doubled"`
}

func (c *Counts) add(other Counts) {
	c.Chosen += other.Chosen
	c.Redriven += other.Redriven
	c.Purged += other.Purged
	c.Expired += other.Expired
	c.Skipped += other.Skipped
	c.Failed += other.Failed
	c.Doubled += other.Doubled
}

// Report says what a [Redrive] or a [Purge] has done.
type Report struct {
	Counts

	// Depth is how many messages the poison queue had at the start, hidden and expired ones
	// included; -1 if it may not be read.
	Depth int64 `json:"depth"`

	// Seen is how many of them were looked at. The rest was hidden: others work on it, or one
	// that was killed did and its lease has not ended.
	Seen int `json:"seen"`

	// ByReason has the numbers by the reason in the record; "" is for foreign messages.
	ByReason map[Reason]Counts `json:"byReason"`

	// Problems says why messages were not redriven or purged, or may be there twice, the most
	// frequent first: at most 20 kinds.
	Problems []Problem `json:"problems"`
}

// Problem is one kind of reason why messages stayed where they are or may be there twice.
type Problem struct {
	Text     string `json:"text"`     // of the first of them
	Messages int    `json:"messages"` // how many
}

// maxProblems bounds the kinds of problems in a report.
const maxProblems = 20

// clone returns a copy that later changes leave as it is.
func (r *Report) clone() Report {
	c := *r
	c.ByReason = maps.Clone(r.ByReason)
	c.Problems = slices.Clone(r.Problems)
	slices.SortStableFunc(c.Problems, func(a, b Problem) int { return b.Messages - a.Messages })
	return c
}

// count adds what became of one message.
func (r *Report) count(reason Reason, c Counts, problem error) {
	r.add(c)
	if r.ByReason == nil {
		r.ByReason = make(map[Reason]Counts)
	}
	sum := r.ByReason[reason]
	sum.add(c)
	r.ByReason[reason] = sum
	if problem == nil {
		return
	}
	kind := naming.Fingerprint(problem.Error())
	for i := range r.Problems {
		if naming.Fingerprint(r.Problems[i].Text) == kind {
			r.Problems[i].Messages++
			return
		}
	}
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, Problem{problem.Error(), 1})
	}
}
