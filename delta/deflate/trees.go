package deflate

// codes sets the codes of a tree's symbols by their lengths.
func codes(tree []node, count *[maxBits + 1]uint16) {
	var next [maxBits + 1]uint16
	c := uint16(0)
	for b := 1; b <= maxBits; b++ {
		c = (c + count[b-1]) << 1
		next[b] = c
	}
	for i := range tree {
		if l := int(tree[i].len); l != 0 {
			tree[i].code = reverse(next[l], l)
			next[l]++
		}
	}
}

// trees is one block: its symbols, and the trees that code them.
type trees struct {
	lit   [heapSize]node
	dist  [2*numDist + 1]node
	lens  [2*numLen + 1]node
	limit int // symbols of a block
	n     int // symbols in it
	dists int // matches among them
	sym   [maxSymbol]uint8
	at    [maxSymbol]uint16 // distance, or 0

	heap   [heapSize]uint16
	length int // of the heap
	sorted int // where the sorted nodes begin
	depth  [heapSize]uint8

	best, static int // bits of the block with its own trees and with the fixed ones
}

func (t *trees) begin() {
	for i := range numLit {
		t.lit[i].freq = 0
	}
	for i := range numDist {
		t.dist[i].freq = 0
	}
	for i := range numLen {
		t.lens[i].freq = 0
	}
	t.lit[endBlock].freq = 1
	t.n, t.dists, t.best, t.static = 0, 0, 0, 0
}

func (t *trees) add(dist, n int) {
	t.sym[t.n], t.at[t.n] = uint8(n), uint16(dist)
	t.n++
	if dist == 0 {
		t.lit[n].freq++
		return
	}
	t.dists++
	t.lit[literals+1+int(lenCode[n])].freq++
	t.dist[distCode(dist-1)].freq++
}

// cheap is gzip's guess whether it is cheaper to end a block of so many bytes here.
func (t *trees) cheap(bytes int) bool {
	n := t.n * 8
	for i := range numDist {
		n += int(t.dist[i].freq) * (5 + int(extraDist[i]))
	}
	return t.dists < t.n/2 && n>>3 < bytes/2
}

func (t *trees) smaller(tree []node, a, b uint16) bool {
	return tree[a].freq < tree[b].freq || tree[a].freq == tree[b].freq && t.depth[a] <= t.depth[b]
}

func (t *trees) down(tree []node, k int) {
	v := t.heap[k]
	for j := k << 1; j <= t.length; j <<= 1 {
		if j < t.length && t.smaller(tree, t.heap[j+1], t.heap[j]) {
			j++
		}
		if t.smaller(tree, v, t.heap[j]) {
			break
		}
		t.heap[k] = t.heap[j]
		k = j
	}
	t.heap[k] = v
}

// build makes the tree of n symbols and returns the last used symbol. The order of
// equal frequencies is part of the output.
func (t *trees) build(tree []node, n int, fixed []node, extra []uint8, extraFrom, most int) int {
	t.length, t.sorted = 0, heapSize
	last := -1
	for i := range n {
		tree[i].len = 0
		if tree[i].freq != 0 {
			t.length++
			t.heap[t.length] = uint16(i)
			t.depth[i] = 0
			last = i
		}
	}
	// A tree has at least two symbols.
	for t.length < 2 {
		i := 0
		if last < 2 {
			last++
			i = last
		}
		t.length++
		t.heap[t.length] = uint16(i)
		tree[i].freq, t.depth[i] = 1, 0
		t.best--
		if fixed != nil {
			t.static -= int(fixed[i].len)
		}
	}
	for i := t.length / 2; i >= 1; i-- {
		t.down(tree, i)
	}
	for inner := n; ; inner++ {
		a := t.heap[1]
		t.heap[1] = t.heap[t.length]
		t.length--
		t.down(tree, 1)
		b := t.heap[1]
		t.sorted -= 2
		t.heap[t.sorted+1], t.heap[t.sorted] = a, b
		tree[inner].freq = tree[a].freq + tree[b].freq
		t.depth[inner] = max(t.depth[a], t.depth[b]) + 1
		tree[a].dad, tree[b].dad = uint16(inner), uint16(inner)
		t.heap[1] = uint16(inner)
		t.down(tree, 1)
		if t.length < 2 {
			break
		}
	}
	t.sorted--
	t.heap[t.sorted] = t.heap[1]
	count := t.lengths(tree, last, fixed, extra, extraFrom, most)
	codes(tree[:last+1], &count)
	return last
}

// lengths sets the lengths of the symbols' codes, and counts the bits.
func (t *trees) lengths(tree []node, last int, fixed []node, extra []uint8, extraFrom, most int) (count [maxBits + 1]uint16) {
	over := 0
	tree[t.heap[t.sorted]].len = 0
	for h := t.sorted + 1; h < heapSize; h++ {
		i := int(t.heap[h])
		b := int(tree[tree[i].dad].len) + 1
		if b > most {
			b = most
			over++
		}
		tree[i].len = uint8(b)
		if i > last {
			continue // an inner node
		}
		count[b]++
		x := 0
		if i >= extraFrom {
			x = int(extra[i-extraFrom])
		}
		t.best += int(tree[i].freq) * (b + x)
		if fixed != nil {
			t.static += int(tree[i].freq) * (int(fixed[i].len) + x)
		}
	}
	if over == 0 {
		return count
	}
	for ; over > 0; over -= 2 {
		b := most - 1
		for count[b] == 0 {
			b--
		}
		count[b]--
		count[b+1] += 2
		count[most]--
	}
	h := heapSize
	for b := most; b > 0; b-- {
		for n := count[b]; n > 0; {
			h--
			i := int(t.heap[h])
			if i > last {
				continue
			}
			if int(tree[i].len) != b {
				t.best += (b - int(tree[i].len)) * int(tree[i].freq)
				tree[i].len = uint8(b)
			}
			n--
		}
	}
	return count
}

// runs calls f for each code of the lengths of a tree's symbols, with what
// follows it.
func runs(tree []node, last int, f func(code int, bits uint32, n int)) {
	before := -1
	next := int(tree[0].len)
	count, most, least := 0, 7, 4
	if next == 0 {
		most, least = 138, 3
	}
	for i := 0; i <= last; i++ {
		cur := next
		next = -1
		if i < last {
			next = int(tree[i+1].len)
		}
		if count++; count < most && cur == next {
			continue
		}
		switch {
		case count < least:
			for range count {
				f(cur, 0, 0)
			}
		case cur != 0:
			if cur != before {
				f(cur, 0, 0)
				count--
			}
			f(repeat3, uint32(count-3), 2)
		case count <= 10:
			f(zeros3, uint32(count-3), 3)
		default:
			f(zeros11, uint32(count-11), 7)
		}
		count, before = 0, cur
		switch {
		case next == 0:
			most, least = 138, 3
		case cur == next:
			most, least = 6, 3
		default:
			most, least = 7, 4
		}
	}
}

// code writes the block with its own trees, with the fixed trees, or stored,
// whichever is smallest. raw is nil if the bytes are not in the window any more.
func (t *trees) code(out *bits, raw []byte, size int, last bool) {
	lastLit := t.build(t.lit[:], numLit, staticLit[:], extraLen[:], literals+1, maxBits)
	lastDist := t.build(t.dist[:], numDist, staticDist[:], extraDist[:], 0, maxBits)
	count := func(c int, _ uint32, _ int) { t.lens[c].freq++ }
	runs(t.lit[:], lastLit, count)
	runs(t.dist[:], lastDist, count)
	t.build(t.lens[:], numLen, nil, extraBits[:], 0, maxLenBits)
	lens := numLen
	for lens > 4 && t.lens[lenOrder[lens-1]].len == 0 {
		lens--
	}
	t.best += 3*lens + 5 + 5 + 4
	best, static := (t.best+3+7)>>3, (t.static+3+7)>>3
	best = min(best, static)
	end := uint32(0)
	if last {
		end = 1
	}
	switch {
	case size+4 <= best && raw != nil:
		out.put(end, 3)
		out.align()
		out.put(uint32(size), 16)
		out.put(^uint32(size)&0xffff, 16)
		out.bytes(raw)
	case static == best:
		out.put(1<<1|end, 3)
		t.symbols(out, staticLit[:], staticDist[:])
	default:
		out.put(2<<1|end, 3)
		out.put(uint32(lastLit-256), 5)
		out.put(uint32(lastDist), 5)
		out.put(uint32(lens-4), 4)
		for _, i := range lenOrder[:lens] {
			out.put(uint32(t.lens[i].len), 3)
		}
		send := func(c int, v uint32, n int) {
			out.code(&t.lens[c])
			out.put(v, n)
		}
		runs(t.lit[:], lastLit, send)
		runs(t.dist[:], lastDist, send)
		t.symbols(out, t.lit[:], t.dist[:])
	}
}

func (t *trees) symbols(out *bits, lit, dist []node) {
	for i, s := range t.sym[:t.n] {
		d := int(t.at[i])
		if d == 0 {
			out.code(&lit[s])
			continue
		}
		c := int(lenCode[s])
		out.code(&lit[literals+1+c])
		out.put(uint32(s)-uint32(lenBase[c]), int(extraLen[c]))
		d--
		c = distCode(d)
		out.code(&dist[c])
		out.put(uint32(d)-uint32(distBase[c]), int(extraDist[c]))
	}
	out.code(&lit[endBlock])
}
