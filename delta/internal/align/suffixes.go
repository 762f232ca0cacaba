package align

import (
	"context"
	"math/bits"
	"slices"
)

type letter interface{ ~byte | ~int32 }

// sortSuffixes writes the suffix array of s, whose letters are less than k, to sa, by
// induced sorting (Nong, Zhang and Chan, "Linear Suffix Array Construction by Almost Pure
// Induced-Sorting", 2009). For a text of bytes it needs, beside the array, one or two
// bytes of memory for each, four at worst. s has less than 2 Gi letters. It checks ctx
// after each pass.
//
// Suffix i is small if it is less than suffix i+1, and large otherwise, as the last
// one is. A turn is a small suffix after a large one. The order of the turns gives
// that of the large suffixes in one pass over the array, and that of all small ones
// in another pass: each suffix that a pass reaches tells where its predecessor
// comes. An entry whose predecessor the pass must not place is complemented. Whoever
// places a suffix finds that out: it has just read the letter, and the one before
// lies beside it. So each suffix costs a pass one access at random.
func sortSuffixes[T letter](ctx context.Context, s []T, sa []int32, k int) error {
	clear(sa)
	if len(s) < 2 {
		return nil
	}
	b := buckets{first: make([]int32, k+1), at: make([]int32, k)}
	for _, c := range s {
		b.first[int(c)+1]++
	}
	for c := range k {
		b.first[c+1] += b.first[c]
	}
	m, err := sortTurns(ctx, s, sa, b)
	if err != nil {
		return err
	}
	clear(sa[m:])
	at := b.ends()
	for i, p := range slices.Backward(sa[:m]) {
		sa[i] = 0
		c := s[p]
		at[c]--
		sa[at[c]] = p
	}
	placeLarge(s, sa, b.starts())
	if err := ctx.Err(); err != nil {
		return err
	}
	placeSmall(s, sa, b.ends())
	return ctx.Err()
}

// buckets has the parts of a suffix array whose suffixes begin with the same letter.
type buckets struct {
	first []int32 // where each begins, and the end of the last
	at    []int32
}

func (b buckets) starts() []int32 { copy(b.at, b.first); return b.at }
func (b buckets) ends() []int32   { copy(b.at, b.first[1:]); return b.at }

// turns has a bit for each suffix that is a turn.
type turns []uint64

func turnsOf[T letter](s []T) turns {
	t := make(turns, len(s)/64+1)
	small := uint64(0) // suffix i+1 is
	for i := len(s) - 2; i >= 0; {
		word := uint64(0)
		for w := (i + 1) / 64; i >= 0 && (i+1)/64 == w; i-- {
			// Without branches: half of them would be mispredicted.
			less, equal := uint64(0), uint64(0)
			if s[i] < s[i+1] {
				less = 1
			}
			if s[i] == s[i+1] {
				equal = 1
			}
			was := small
			small = less | equal&was
			word |= (was &^ small) << uint((i+1)&63)
		}
		t[(i+2)/64] = word
	}
	return t
}

// backward yields the turns, the last one first.
func (t turns) backward(yield func(p int) bool) {
	for w := len(t) - 1; w >= 0; w-- {
		for x := t[w]; x != 0; {
			k := bits.Len64(x) - 1
			x ^= 1 << uint(k)
			if !yield(w*64 + k) {
				return
			}
		}
	}
}

// sortTurns writes the turns to the beginning of sa, which is zero, in their order, and
// returns how many there are.
func sortTurns[T letter](ctx context.Context, s []T, sa []int32, b buckets) (int, error) {
	n, m := len(s), 0
	at := b.ends()
	t := turnsOf(s)
	for p := range t.backward {
		c := s[p]
		at[c]--
		sa[at[c]] = int32(p)
		m++
	}
	if m == 0 {
		return 0, nil
	}
	reachLarge(s, sa, b.starts())
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	reachSmall(s, sa, b.ends())
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	// Now they are sorted up to the turn that follows each.
	i := 0
	for _, v := range sa {
		if v < 0 {
			sa[i] = ^v
			i++
		}
	}
	names := nameTurns(s, sa, t, m)
	order := sa[n-m:]
	i = n
	for k := m + n/2; k >= m; k-- {
		if k < n && sa[k] > 0 {
			i--
			sa[i] = sa[k] - 1
		}
	}
	if names == m {
		for i, v := range order {
			sa[v] = int32(i)
		}
	} else if err := sortSuffixes(ctx, order, sa[:m], names); err != nil {
		return 0, err
	}
	i = m
	for p := range t.backward {
		i--
		order[i] = int32(p)
	}
	for i, v := range sa[:m] {
		sa[i] = order[v]
	}
	return m, nil
}

// nameTurns numbers the m turns at the beginning of sa, from 1 on: the same number for
// those that are equal up to the next turn. It leaves the number of turn p in
// sa[m+p/2], because no two turns are adjacent, and returns the largest.
func nameTurns[T letter](s []T, sa []int32, t turns, m int) int {
	n := len(s)
	clear(sa[m:])
	name := sa[m:]
	// First the lengths. The last one ends beyond the end, so it equals no other.
	end := n
	for p := range t.backward {
		name[p/2] = int32(end - p + 1)
		end = p
	}
	names := 0
	last, lastLen := 0, 0
	for _, v := range sa[:m] {
		p := int(v)
		l := int(name[p/2])
		if l != lastLen || max(p, last)+l > n || !slices.Equal(s[p:p+l], s[last:last+l]) {
			names++
			last, lastLen = p, l
		}
		name[p/2] = int32(names)
	}
	return names
}

// reachLarge goes from the turns to the large suffixes, and leaves only those whose
// predecessor is small.
func reachLarge[T letter](s []T, sa, at []int32) {
	placeLast(s, sa, at)
	for i, v := range sa {
		switch {
		case v > 0:
			sa[i] = 0
			p := v - 1
			c := s[p]
			if s[max(p, 1)-1] < c {
				p = ^p
			}
			sa[at[c]] = p
			at[c]++
		case v < 0:
			sa[i] = ^v
		}
	}
}

// reachSmall goes on to the small suffixes, and leaves only the turns, complemented.
func reachSmall[T letter](s []T, sa, at []int32) {
	for i := len(sa) - 1; i >= 0; i-- {
		if v := sa[i]; v > 0 {
			sa[i] = 0
			p := v - 1
			c := s[p]
			if s[max(p, 1)-1] > c {
				p = ^p
			}
			at[c]--
			sa[at[c]] = p
		}
	}
}

// placeLarge places the large suffixes, after the turns are in their places. Those whose
// predecessor is small are left as they are, and all others are complemented.
func placeLarge[T letter](s []T, sa, at []int32) {
	placeLast(s, sa, at)
	for i, v := range sa {
		if v == 0 {
			continue
		}
		sa[i] = ^v
		if v > 0 {
			p := v - 1
			c := s[p]
			if s[max(p, 1)-1] < c {
				p = ^p
			}
			sa[at[c]] = p
			at[c]++
		}
	}
}

// placeLast places the last suffix.
func placeLast[T letter](s []T, sa, at []int32) {
	p := int32(len(s) - 1)
	c := s[p]
	if s[p-1] < c {
		p = ^p
	}
	sa[at[c]] = p
	at[c]++
}

// placeSmall places the small suffixes, after the large ones are in their places.
func placeSmall[T letter](s []T, sa, at []int32) {
	for i := len(sa) - 1; i >= 0; i-- {
		switch v := sa[i]; {
		case v > 0:
			p := v - 1
			c := s[p]
			if s[max(p, 1)-1] > c {
				p = ^p
			}
			at[c]--
			sa[at[c]] = p
		case v < 0:
			sa[i] = ^v
		}
	}
}
