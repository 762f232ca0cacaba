package fleet

import (
	"cmp"
	"slices"
)

// choice is something that may be taken: what it is worth, and what it takes of a budget.
type choice struct {
	value int64
	costs int64
}

const (
	// slackInverse: what is chosen is worth at least 1 - 1/slackInverse of the best.
	slackInverse = 200
	// maxStates bounds the search, which then is less exact.
	maxStates = 100_000
)

// choose returns the indexes, ascending, of choices whose costs together are within a
// budget, and whose value together is within half a percent of the most that there can be.
//
// It takes the densest first, which is nearly always good enough: what one choice is worth
// at most is then what is lost. Where that is too much, as with few choices, it keeps all
// combinations that no other beats in value and costs both. Combinations whose values
// differ by less than their share of the half percent count as one, which bounds their number.
func choose(list []choice, budget int64) []int {
	var order []int
	for i, c := range list {
		if c.value > 0 && c.costs <= budget {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return denser(list[a], list[b]) })
	taken, value, best := densest(list, order, budget)
	if best-value > best/slackInverse {
		if t, v := combine(list, order, budget, value); v > value {
			taken = t
		}
	}
	slices.Sort(taken)
	return taken
}

// denser orders choices by value for costs, the best first.
func denser(a, b choice) int {
	if a.costs == 0 || b.costs == 0 {
		return cmp.Or(cmp.Compare(a.costs, b.costs), cmp.Compare(b.value, a.value))
	}
	return cmp.Or(cmp.Compare(float64(b.value)/float64(b.costs), float64(a.value)/float64(a.costs)), cmp.Compare(b.value, a.value))
}

// densest takes what fits, in the order. best is a bound of what any choice can be worth.
func densest(list []choice, order []int, budget int64) (taken []int, value, best int64) {
	left := budget
	full := false
	for _, i := range order {
		c := list[i]
		if c.costs <= left {
			taken, value, left = append(taken, i), value+c.value, left-c.costs
			continue
		}
		if !full { // the bound takes a part of the first that does not fit
			full, best = true, value+int64(float64(c.value)*float64(left)/float64(c.costs))+1
		}
	}
	if !full {
		best = value
	}
	return taken, value, best
}

// state is a combination of choices.
type state struct {
	value, costs int64
	last         int // the index of the choice that was added last; -1: none was
	before       *state
}

// combine finds the best combination that is worth more than floor.
func combine(list []choice, order []int, budget, floor int64) (taken []int, value int64) {
	grain := max(floor/slackInverse/int64(len(order)), 1)
	states := []*state{{last: -1}}
	for n, i := range order {
		c := list[i]
		var more []*state
		for _, s := range states {
			if s.costs+c.costs <= budget {
				more = append(more, &state{s.value + c.value, s.costs + c.costs, i, s})
			}
		}
		states = undominated(append(states, more...), grain)
		rest := order[n+1:]
		states = slices.DeleteFunc(states, func(s *state) bool {
			_, _, bound := densest(list, rest[:min(len(rest), 64)], budget-s.costs)
			if len(rest) > 64 { // what follows is less dense than all of these
				bound += int64(float64(budget-s.costs) * density(list[rest[64]]))
			}
			return s.value+bound <= floor
		})
		for len(states) > maxStates {
			grain *= 2
			states = undominated(states, grain)
		}
	}
	var best *state
	for _, s := range states {
		if best == nil || s.value > best.value {
			best = s
		}
	}
	if best == nil {
		return nil, 0
	}
	for s := best; s.last >= 0; s = s.before {
		taken = append(taken, s.last)
	}
	return taken, best.value
}

func density(c choice) float64 {
	if c.costs == 0 {
		return float64(c.value)
	}
	return float64(c.value) / float64(c.costs)
}

// undominated leaves out states that cost as much as another one or more, and are worth
// less than a grain more.
func undominated(states []*state, grain int64) []*state {
	slices.SortFunc(states, func(a, b *state) int { return cmp.Or(cmp.Compare(a.costs, b.costs), cmp.Compare(b.value, a.value)) })
	kept := states[:0]
	for _, s := range states {
		if len(kept) == 0 || s.value/grain > kept[len(kept)-1].value/grain {
			kept = append(kept, s)
		}
	}
	return kept
}
