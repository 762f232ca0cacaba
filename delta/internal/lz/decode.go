package lz

import (
	"errors"
	"io"
)

// ErrDamaged says that the input is not what an encoder writes.
var ErrDamaged = errors.New("damaged literals")

// mostInput is more than the bytes that one symbol can take.
const mostInput = 48

// A Decoder decodes the pieces of one delta, one after the other.
type Decoder struct {
	model  *Model
	window *[Window]byte
	have   uint32 // bytes that a match may lie in
	far    *far   // or nil

	src       io.Reader
	rng, code uint32
	in        [8<<10 + mostInput]byte
	at, end   int  // the unread part of in
	last      bool // nothing follows but zeros
	past      int  // how many of these zeros are in the input
}

// Extend lets matches lie up to FarWindow back. The file, which open makes once it is
// needed, gets at most most bytes. Extend is called before the first part is begun.
func (d *Decoder) Extend(open func() (File, error), most int64) {
	d.far = &far{open: open, most: most}
}

// reach returns how far back a match may lie.
func (d *Decoder) reach() uint32 {
	if d.far != nil {
		return FarWindow
	}
	return Window
}

// Begin starts a part: bytes that the encoder flushed at once. The memory is
// allocated when the first part is begun.
func (d *Decoder) Begin(src io.Reader) error {
	if d.model == nil {
		d.model, d.window = new(Model), new([Window]byte)
		d.model.Init()
	}
	d.src, d.at, d.end, d.last, d.past = src, 0, 0, false, 0
	if err := d.fill(); err != nil {
		return err
	}
	d.rng, d.code = 1<<32-1, 0
	for range 4 {
		d.code = d.code<<8 | uint32(d.in[d.at])
		d.at++
	}
	return nil
}

// fill reads more input. Zeros follow its end.
func (d *Decoder) fill() error {
	d.end = copy(d.in[:], d.in[d.at:d.end])
	d.at = 0
	if !d.last {
		n, err := io.ReadFull(d.src, d.in[d.end:len(d.in)-mostInput])
		d.end += n
		if err == nil {
			return nil
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		d.last = true
	}
	if d.past > mostInput {
		return ErrDamaged
	}
	clear(d.in[d.end : d.end+mostInput])
	d.end += mostInput
	d.past += mostInput
	return nil
}

// Align fills the window with zeros up to a multiple of Alignment. A file begins
// there.
func (d *Decoder) Align() {
	if d.model == nil {
		return
	}
	n := -d.model.Pos & (Alignment - 1)
	for range n {
		d.window[d.model.Pos&(Window-1)] = 0
		d.model.Pos++
	}
	d.have = min(d.have+n, d.reach())
}

// Read fills b with the next piece. Its bytes are of the class, and at most MaxPiece.
func (d *Decoder) Read(b []byte, class uint32) error {
	if d.src == nil || len(b) > MaxPiece {
		return ErrDamaged
	}
	start := d.model.Pos
	if d.bit(&d.model.Stored) != 0 {
		if err := d.stored(len(b)); err != nil {
			return err
		}
	} else if err := d.piece(uint32(len(b)), class); err != nil {
		return err
	}
	d.have = min(d.have+uint32(len(b)), d.reach())
	n := copy(b, d.window[start&(Window-1):])
	copy(b[n:], d.window[:])
	if d.far != nil {
		return d.far.save(d.window, d.model.Pos)
	}
	return nil
}

func (d *Decoder) stored(n int) error {
	for range n {
		if d.end-d.at < mostInput {
			if err := d.fill(); err != nil {
				return err
			}
		}
		d.window[d.model.Pos&(Window-1)] = byte(d.direct(8))
		d.model.Pos++
	}
	return nil
}

// piece decodes n bytes.
func (d *Decoder) piece(n, class uint32) error {
	m, w := d.model, d.window
	const mask = Window - 1
	pos := m.Pos
	start, end := pos, pos+n
	rep0 := m.Rep[0]
	var x Mixing
	var c Context
	for pos != end {
		if d.end-d.at < mostInput {
			if err := d.fill(); err != nil {
				return err
			}
		}
		st, at := m.State&15, pos&3
		if d.bit(&m.Match[st][at]) == 0 {
			c.Last, c.Expected = w[(pos-1)&mask], w[(pos-rep0)&mask]
			if rep0 > Window {
				b, err := d.far.read(1, pos-rep0)
				if err != nil {
					return err
				}
				c.Expected = b[0]
			}
			c.Class, c.State, c.Pos = class, st, pos
			x.Begin(&m.Literal, &c)
			w[pos&mask] = d.literal(&x)
			pos++
			m.State = AfterLiteral[st]
			continue
		}
		length := d.match(st, at)
		rep0 = m.Rep[0]
		if length > end-pos || rep0 > min(d.have+pos-start, d.reach()) {
			return ErrDamaged
		}
		if rep0 > Window {
			b, err := d.far.read(length, pos-rep0)
			if err != nil {
				return err
			}
			for i, v := range b {
				w[(pos+uint32(i))&mask] = v
			}
			pos += length
			continue
		}
		from := (pos - rep0) & mask
		to := pos & mask
		if from+length <= Window && to+length <= Window && rep0 >= length {
			copy(w[to:to+length], w[from:from+length])
		} else {
			for i := range length {
				w[(to+i)&mask] = w[(from+i)&mask]
			}
		}
		pos += length
	}
	m.Pos = pos
	return nil
}

// match decodes a match after its first bit, and returns its length. Its distance is
// the model's Rep[0].
func (d *Decoder) match(st, at uint32) uint32 {
	m := d.model
	if d.bit(&m.AnyRep[st]) == 0 {
		n := d.length(&m.New, at)
		m.Rep[3], m.Rep[2], m.Rep[1] = m.Rep[2], m.Rep[1], m.Rep[0]
		m.Rep[0] = d.distance(n)
		m.State = AfterMatch[st]
		return n
	}
	if d.bit(&m.Rep0[st]) == 0 {
		if d.bit(&m.ShortRep[st][at]) == 0 {
			m.State = AfterShortRep[st]
			return 1
		}
	} else {
		r := m.Rep[1]
		if d.bit(&m.Rep1[st]) != 0 {
			r = m.Rep[2]
			if d.bit(&m.Rep2[st]) != 0 {
				r = m.Rep[3]
				m.Rep[3] = m.Rep[2]
			}
			m.Rep[2] = m.Rep[1]
		}
		m.Rep[1] = m.Rep[0]
		m.Rep[0] = r
	}
	m.State = AfterRep[st]
	return d.length(&m.Old, at)
}

func (d *Decoder) length(l *Lengths, at uint32) uint32 {
	if d.bit(&l.Choice[0]) == 0 {
		return MinMatch + d.tree(l.Low[at][:], 3)
	}
	if d.bit(&l.Choice[1]) == 0 {
		return MinMatch + 8 + d.tree(l.Mid[at][:], 3)
	}
	return MinMatch + 16 + d.tree(l.High[:], 8)
}

func (d *Decoder) distance(length uint32) uint32 {
	m := d.model
	slot := d.tree(m.Slot[min(length-MinMatch, 3)][:], 6)
	if slot < 4 {
		return slot + 1
	}
	n := slot>>1 - 1
	v := (2 | slot&1) << n
	if slot < FirstFar {
		return v + d.reverse(m.Middle[slot][:], n) + 1
	}
	v += d.direct(n-4) << 4
	return v + d.reverse(m.Align[:], 4) + 1
}

// bit decodes a bit.
func (d *Decoder) bit(p *Prob) uint32 {
	bound := d.rng >> ProbBits * p.Zero()
	if d.code < bound {
		d.rng = bound
		p.Learn(0)
		d.shift()
		return 0
	}
	d.code -= bound
	d.rng -= bound
	p.Learn(1)
	d.shift()
	return 1
}

func (d *Decoder) shift() {
	for d.rng < 1<<24 {
		d.rng <<= 8
		d.code = d.code<<8 | uint32(d.in[d.at])
		d.at++
	}
}

// tree decodes n bits, the highest first. Which bits they are is hard to foresee, for
// a processor as well, so that masks are quicker than branches.
func (d *Decoder) tree(p []Prob, n uint32) uint32 {
	v := uint32(1)
	rng, code := d.rng, d.code
	for range n {
		q := &p[v]
		bound := rng >> ProbBits * q.Zero()
		zero := uint32((uint64(code) - uint64(bound)) >> 32) // all ones for a 0
		rng = bound&zero | (rng-bound)&^zero
		code -= bound &^ zero
		v = v<<1 + 1 + zero
		q.move(zero)
		for rng < 1<<24 {
			rng <<= 8
			code = code<<8 | uint32(d.in[d.at])
			d.at++
		}
	}
	d.rng, d.code = rng, code
	return v - 1<<n
}

// reverse decodes n bits, the lowest first.
func (d *Decoder) reverse(p []Prob, n uint32) uint32 {
	v, node := uint32(0), uint32(1)
	for i := range n {
		b := d.bit(&p[node])
		node = node<<1 | b
		v |= b << i
	}
	return v
}

// direct decodes n bits of even probability.
func (d *Decoder) direct(n uint32) uint32 {
	v := uint32(0)
	for range n {
		d.rng >>= 1
		b := uint32(0)
		if d.code >= d.rng {
			d.code -= d.rng
			b = 1
		}
		v = v<<1 | b
		d.shift()
	}
	return v
}

// literal decodes a byte between matches.
func (d *Decoder) literal(x *Mixing) byte {
	node := uint32(1)
	rng, code := d.rng, d.code
	for done := range uint32(8) {
		bound := rng >> ProbBits * (65536 - x.One(node, done))
		zero := uint32((uint64(code) - uint64(bound)) >> 32) // all ones for a 0
		rng = bound&zero | (rng-bound)&^zero
		code -= bound &^ zero
		x.Learn(1 + zero)
		node = node<<1 + 1 + zero
		for rng < 1<<24 {
			rng <<= 8
			code = code<<8 | uint32(d.in[d.at])
			d.at++
		}
	}
	d.rng, d.code = rng, code
	return byte(node)
}
