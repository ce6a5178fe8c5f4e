package agent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// poolName matches what Pool.Name may be.
var poolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// check returns everything that is wrong with the pools.
func check(pools []Pool) (problems []error) {
	if len(pools) == 0 {
		return []error{errors.New("there is no pool: pass at least one")}
	}
	seen := map[string]int{}
	for i, p := range pools {
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("pool %d (%q): %w", i+1, p.Name, fmt.Errorf(format, args...)))
		}
		if !poolName.MatchString(p.Name) {
			wrong("Name must have 1 to 100 letters, digits, '-', '_' and '.', and begin with a letter or a digit")
		}
		if first, found := seen[strings.ToLower(p.Name)]; found {
			wrong("Name is also that of pool %d: names must be unique, without regard to case", first)
		} else {
			seen[strings.ToLower(p.Name)] = i + 1
		}
		if len(p.Queues) == 0 {
			wrong("Queues is empty: name at least the queue that the instances take jobs from")
		}
		checkQueues("Queues", p.Queues, wrong)
		checkQueues("Beacons", p.Beacons, wrong)
		if p.Actuator != nil && hook.IsNil(p.Actuator) {
			wrong("Actuator is a nil %T: leave it out for a dry run", p.Actuator)
		}
		if err := p.Policy.Check(); err != nil {
			wrong("%w", err)
		}
	}
	return problems
}

// checkQueues looks for queues that are nil or there twice: their messages would count twice.
func checkQueues(field string, queues []queue.Queue, wrong func(string, ...any)) {
	seen := map[queue.Name]int{}
	for i, q := range queues {
		if hook.IsNil(q) {
			wrong("%s[%d] is nil", field, i)
			continue
		}
		name := q.Name()
		if first, found := seen[name]; found {
			wrong("%s[%d] is %v like %s[%d]: its messages would count twice", field, i, name, field, first)
			continue
		}
		seen[name] = i
	}
}
