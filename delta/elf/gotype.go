package elf

import "slices"

func (p *Predictor) scanTypelink(fields []Field, old []byte, at int, s uint64) []Field {
	for i := at + int(-s&3); i+4 <= len(old); i += 4 {
		fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindGo + goLink, key: uint64(le.Uint32(old[i:]))})
	}
	return fields
}

// scanTypes finds pointers and offsets in Go's type data. It does not decode which
// words are offsets: every word that could be one is a field, and its base is
// learnt.
func (p *Predictor) scanTypes(fields []Field, old []byte, at int, s, q uint64) []Field {

	i := at + int(-q&3)
	if (s+uint64(i-at))&3 != 0 {
		return fields
	}
	most := max(p.g.etypes-p.g.types, p.o.text.size)
	for ; i+4 <= len(old); i += 4 {
		so := s + uint64(i-at)
		w := uint64(le.Uint32(old[i:]))
		if p.o.wide {
			if so&7 == 0 && (q+uint64(i-at))&7 == 0 && i+8 <= len(old) {
				if v := le.Uint64(old[i:]); p.typePointer(v) {
					fields = append(fields, Field{Off: int32(i), Len: 8, Kind: kindAbs64, key: v})
					i += 4
					continue
				}
			}
		} else if p.typePointer(w) {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindAbs32, key: w})
			continue
		}
		if w > 0x400 && w < most {
			fields = append(fields, Field{Off: int32(i), Len: 4, Kind: kindGo + goType, sub: uint8(so / 4 & 3), key: w})
		}
	}
	return fields
}

// typePointer reports whether a word of type data is an address. Types refer to
// code by offsets, so a word that points into code is an address only if a function
// begins there. Otherwise it is probably an offset as large as an address.
func (p *Predictor) typePointer(v uint64) bool {
	if !p.o.within(v) {
		return false
	}
	if v-p.o.text.addr >= p.o.text.size {
		return true
	}
	_, ok := slices.BinarySearch(p.o.gotab.entry, uint32(v-p.o.gotab.text))
	return ok
}

const (
	keyType  = 100 << 56
	keyClass = 101 << 56 // what a word was the last time: an index of goState.guess
)

// typeWord predicts a word that may be an address, an offset from types, an offset
// from text, or neither. It takes the class that a word of this value had last
// time, otherwise the class that was right recently at this phase.
func (p *Predictor) typeWord(f *Field) (uint64, uint8) {
	b, again := p.typeClass(f)
	p.g.class = b
	v, c, ok := p.m.learnt.get(keyType + uint64(b)<<40 | f.key)
	switch {
	case ok:
		p.g.guess[b] = v
		return v, uint8(min(c, 1)) ^ 1
	case again:
		return p.g.guess[b], learned
	}
	return p.g.guess[b], uint8(covered + b)
}

// typeClass fills goState.guess with a word's prediction in each class. It returns
// the likely class, and whether a word of the same value had that class.
func (p *Predictor) typeClass(f *Field) (int, bool) {
	w := f.key
	p.g.guess = [4]uint64{w, w, w, w}
	if w < p.g.etypes-p.g.types {
		v, _ := p.m.addr(p.g.types + w)
		p.g.guess[1] = uint64(uint32(v - p.g.newTypes))
	}
	v, _ := p.m.plain(p.o.gotab.text + w)
	p.g.guess[2] = uint64(uint32(v - p.g.newText))
	if p.o.within(w) {
		v, _ := p.m.plain(w)
		p.g.guess[3] = uint64(uint32(v))
	}
	if class, _, ok := p.m.learnt.get(keyClass | w); ok {
		return int(class & 3), true
	}
	sc := &p.g.score[f.sub]
	b := 0
	for j := range sc {
		if sc[j] > sc[b] {
			b = j
		}
	}
	return b, false
}

func (p *Predictor) learnType(f *Field, v uint64) {
	p.typeWord(f)
	right := -1
	sc := &p.g.score[f.sub]
	for j := range sc {
		sc[j] -= sc[j] >> 2
		if p.g.guess[j] != v {
			continue
		}
		if right < 0 || j == p.g.class {
			right = j
		}
		sc[j] += 64
		if v != f.key {
			sc[j] += 64
			p.m.learnt.set(keyType+uint64(j)<<40|f.key, v)
		}
	}
	if right >= 0 {
		p.m.learnt.set(keyClass|f.key, uint64(right))
	}
}
