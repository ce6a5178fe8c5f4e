package scaling

// use is how much of a resource instances use.
type use struct {
	known bool
	share float64 // of what one instance has, on average
	total float64 // of all instances, as how many of them it would use up; 0 if unknown
}

// useMean is an average of [use].
type useMean struct{ share, total mean }

func (u *useMean) add(share, instances float64) {
	if instances == 0 {
		share = 0 // and nobody reports
	}
	u.share.add(share)
	u.total.add(share * instances)
}

func (u *useMean) of() use {
	if u.total.n == 0 {
		return use{}
	}
	return use{known: true, share: u.share.of(), total: u.total.of()}
}

// uses averages over the last minute what instances use, if it has a bound.
func (c *choice) uses(k int, m *moment) {
	if c.cpu == 0 && c.memory == 0 {
		return
	}
	now := c.past.at(k).age
	var cpu, memory useMean
	for j := k; j-k < mostSamples; j++ {
		p := c.past.at(j)
		if p == nil || p.age-now >= leastAverage {
			break
		}
		instances := p.ready
		if !known(instances) {
			instances = p.instances
		}
		cpu.add(p.cpu, instances)
		memory.add(p.memory, instances)
	}
	m.cpu, m.memory = cpu.of(), memory.of()
}

// mostForMemory is how many times as many instances as for the load memory may call for.
const mostForMemory = 2

// forUse is how many instances keep within the bounds of CPU and memory, spare ones not included. More instances share the
// same CPU time, but each needs some memory of its own, however many there are: that could call for ever more of them.
func (r *rules) forUse(m *moment, margin float64) int {
	return max(r.forCPU(m, margin), r.forMemory(m, margin))
}

func (r *rules) forCPU(m *moment, margin float64) int {
	if r.cpu == 0 {
		return 0
	}
	return ceil(m.cpu.total / r.cpu * margin)
}

func (r *rules) forMemory(m *moment, margin float64) int {
	if r.memory == 0 {
		return 0
	}
	return min(ceil(m.memory.total/r.memory*margin), mostForMemory*max(ceil(m.need*margin), 1))
}

// useKnown reports whether nothing that has a bound is unknown.
func (r *rules) useKnown(m *moment) bool {
	return (r.cpu == 0 || m.cpu.known) && (r.memory == 0 || m.memory.known)
}

// because says which bound, if any, calls for more instances than the load.
func (c *choice) because(t *text) {
	m := &c.now
	n := c.forUse(m, 1)
	if c.why == noDepth || n <= ceil(m.need) {
		return
	}
	u, what, bound := m.cpu, " % of their CPU, target ", c.cpu
	if n > c.forCPU(m, 1) {
		u, what, bound = m.memory, " % of their memory, target ", c.memory
	}
	t.count(" because instances use ", u.share*100, what)
	t.count("", bound*100, " %")
}
