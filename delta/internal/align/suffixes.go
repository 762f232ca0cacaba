package align

import "context"

// suffixes returns the suffix array of b, by induced sorting (Nong, Zhang and
// Chan, "Linear Suffix Array Construction by Almost Pure Induced-Sorting",
// 2009). It needs about 13 bytes of memory for each byte of b, which is under 2 GiB.
// It checks ctx after each pass.
func suffixes(ctx context.Context, b []byte) ([]int32, error) {
	sa := make([]int32, len(b))
	if err := induceSort(ctx, b, sa, 256); err != nil {
		return nil, err
	}
	return sa, nil
}

type letter interface{ ~byte | ~int32 }

func induceSort[T letter](ctx context.Context, s []T, sa []int32, k int) error {
	n := len(s)
	switch n {
	case 0:
		return nil
	case 1:
		sa[0] = 0
		return nil
	}
	// small[i]: suffix i is less than suffix i+1 (type S).
	small := make([]bool, n)
	for i := n - 2; i >= 0; i-- {
		small[i] = s[i] < s[i+1] || s[i] == s[i+1] && small[i+1]
	}
	// Starts of the L and of the S part of each letter's bucket.
	first := make([]int32, k+1)
	mid := make([]int32, k+1)
	for i := range n {
		if small[i] {
			first[int(s[i])+1]++
		} else {
			mid[s[i]]++
		}
	}
	for c := range k {
		mid[c] += first[c]
		first[c+1] += mid[c]
	}
	buf := make([]int32, k+1)
	induce := func(lms []int32) error {
		for i := range sa {
			sa[i] = -1
		}
		copy(buf, mid)
		for _, d := range lms {
			if int(d) != n {
				sa[buf[s[d]]] = d
				buf[s[d]]++
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		copy(buf, first)
		sa[buf[s[n-1]]] = int32(n - 1)
		buf[s[n-1]]++
		for i := range n {
			if v := sa[i]; v >= 1 && !small[v-1] {
				c := s[v-1]
				sa[buf[c]] = v - 1
				buf[c]++
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		copy(buf, first)
		for i := n - 1; i >= 0; i-- {
			if v := sa[i]; v >= 1 && small[v-1] {
				c := int(s[v-1]) + 1
				buf[c]--
				sa[buf[c]] = v - 1
			}
		}
		return ctx.Err()
	}
	isLMS := func(i int32) bool { return i > 0 && small[i] && !small[i-1] }
	m := 0
	for i := range n {
		if isLMS(int32(i)) {
			m++
		}
	}
	lms := make([]int32, 0, m)
	for i := range n {
		if isLMS(int32(i)) {
			lms = append(lms, int32(i))
		}
	}
	if err := induce(lms); err != nil || m == 0 {
		return err
	}
	// Name the LMS substrings in their order.
	order := make([]int32, 0, m)
	for _, v := range sa {
		if v >= 0 && isLMS(v) {
			order = append(order, v)
		}
	}
	// No two LMS positions are adjacent, so a map of half the size is enough.
	name := make([]int32, n/2+1)
	idx := make([]int32, n/2+1)
	for i, v := range lms {
		idx[v/2] = int32(i)
	}
	end := func(v int32) int32 {
		if i := int(idx[v/2]) + 1; i < m {
			return lms[i]
		}
		return int32(n)
	}
	names := int32(0)
	name[order[0]/2] = 0
	for i := 1; i < m; i++ {
		l, r := order[i-1], order[i]
		el, er := end(l), end(r)
		same := el-l == er-r
		if same {
			for l < el {
				if s[l] != s[r] {
					break
				}
				l++
				r++
			}
			if int(l) == n || int(r) == n || s[l] != s[r] {
				same = false
			}
		}
		if !same {
			names++
		}
		name[order[i]/2] = names
	}
	rec := make([]int32, m)
	for i, v := range lms {
		rec[i] = name[v/2]
	}
	if int(names)+1 == m {
		for i, v := range rec {
			order[v] = lms[i]
		}
	} else {
		sub := make([]int32, m)
		if err := induceSort(ctx, rec, sub, int(names)+1); err != nil {
			return err
		}
		for i, v := range sub {
			order[i] = lms[v]
		}
	}
	return induce(order)
}
