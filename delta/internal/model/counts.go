package model

// A counts is what a context has seen of a bit: about how many zeros and how many ones.
// It fits into a byte, which keeps the tables of contexts in a processor's caches. It is
// an index of pairs of numbers; 0 is none of either.
type counts uint8

// mostCounts[n] is how often one bit is counted at most while the other counts n times.
var mostCounts = [...]int{48, 24, 14, 10, 8, 7, 6, 6}

var (
	countsThen  [256][2]counts // what follows, by the next bit
	countsStart [256]uint16    // at first, the probability of a 1, out of 65536
)

func possibleCounts(pair [2]int) bool {
	less := min(pair[0], pair[1])
	return less < len(mostCounts) && max(pair[0], pair[1]) <= mostCounts[less]
}

// makeCounts makes the tables, and returns how many counts there are: at most 256.
func makeCounts() int {
	index := map[[2]int]counts{}
	var pairs [][2]int
	for zeros := range mostCounts[0] + 1 {
		for ones := range mostCounts[0] + 1 {
			if pair := [2]int{zeros, ones}; possibleCounts(pair) {
				index[pair] = counts(len(pairs))
				pairs = append(pairs, pair)
			}
		}
	}
	for i, pair := range pairs {
		countsStart[i] = uint16((pair[1]*5 + 2) << 16 / ((pair[0]+pair[1])*5 + 4))
		for bit := range 2 {
			next, other := pair, 1-bit
			next[bit]++
			if next[other] > 2 { // what is new counts more than what was long ago
				next[other] = 2 + (next[other]-2)/3
			}
			if !possibleCounts(next) {
				next[bit]--
				if next[other] == pair[other] {
					next[other] = max(next[other]-1, 0)
				}
			}
			countsThen[i][bit] = index[next]
		}
	}
	return len(pairs)
}
