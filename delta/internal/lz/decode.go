package lz

import (
	"encoding/binary"
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
	sums   bool
	window *[Window]byte
	have   uint32 // bytes that a match may lie in
	far    *far   // or nil

	src  io.Reader
	in   [inSize]byte
	r    reader // of in
	end  uint32 // of what was read
	last bool   // nothing follows but zeros
	past int    // how many of these zeros are in the input
}

// Extend lets matches lie up to FarWindow back. The file, which open makes once it is
// needed, gets at most most bytes. Extend is called before the first part is begun.
func (d *Decoder) Extend(open func() (File, error), most int64) {
	d.far = &far{open: open, most: most}
}

// Sums says that Sums predicts bytes, and not Literals. It is called before the first
// part is begun.
func (d *Decoder) Sums() { d.sums = true }

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
	d.init()
	d.src, d.r, d.end, d.last, d.past = src, reader{}, 0, false, 0
	r, err := d.fill(d.r)
	if err != nil {
		return err
	}
	d.r = reader{rng: 1<<32 - 1, code: binary.BigEndian.Uint32(d.in[:]), at: r.at + 4}
	return nil
}

// init allocates the memory.
func (d *Decoder) init() {
	if d.model == nil {
		d.model, d.window = new(Model), new([Window]byte)
		d.model.Init(d.sums)
	}
}

// Show puts bytes into the window that are not coded, at a place that is phase modulo 4.
// They are at most MaxPiece.
func (d *Decoder) Show(b []byte, phase uint32) error {
	d.init()
	d.zeros((phase - d.model.Pos) & 3)
	n := copy(d.window[d.model.Pos&(Window-1):], b)
	copy(d.window[:], b[n:])
	d.model.Pos += uint32(len(b))
	d.have = min(d.have+uint32(len(b)), d.reach())
	if d.far != nil {
		return d.far.save(d.window, d.model.Pos)
	}
	return nil
}

// zeros puts n zeros into the window.
func (d *Decoder) zeros(n uint32) {
	for range n {
		d.window[d.model.Pos&(Window-1)] = 0
		d.model.Pos++
	}
	d.have = min(d.have+n, d.reach())
}

// fill reads more input if a symbol could need it. Zeros follow its end.
func (d *Decoder) fill(r reader) (reader, error) {
	if d.end-r.at >= mostInput {
		return r, nil
	}
	d.end = uint32(copy(d.in[:], d.in[r.at:d.end]))
	r.at = 0
	if !d.last {
		n, err := io.ReadFull(d.src, d.in[d.end:inSize-mostInput])
		d.end += uint32(n)
		if err == nil {
			return r, nil
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return r, err
		}
		d.last = true
	}
	if d.past > mostInput {
		return r, ErrDamaged
	}
	clear(d.in[d.end : d.end+mostInput])
	d.end += mostInput
	d.past += mostInput
	return r, nil
}

// Align fills the window with zeros up to a multiple of Alignment. A file begins
// there.
func (d *Decoder) Align() {
	if d.model == nil {
		return
	}
	d.zeros(-d.model.Pos & (Alignment - 1))
}

// Read fills b with the next piece. Its bytes are of the class, and at most MaxPiece.
func (d *Decoder) Read(b []byte, class uint32) error {
	if d.src == nil || len(b) > MaxPiece {
		return ErrDamaged
	}
	start := d.model.Pos
	r, stored := d.r.bit(&d.in, &d.model.Stored)
	decode := d.piece
	if stored != 0 {
		decode = d.stored
	}
	var err error
	if d.r, err = decode(r, uint32(len(b)), class); err != nil {
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

// stored decodes n bytes of even probability.
func (d *Decoder) stored(r reader, n, _ uint32) (reader, error) {
	for range n {
		var err error
		if r, err = d.fill(r); err != nil {
			return r, err
		}
		var v uint32
		r, v = r.direct(&d.in, 8)
		d.window[d.model.Pos&(Window-1)] = byte(v)
		d.model.Pos++
	}
	return r, nil
}

// piece decodes n bytes.
func (d *Decoder) piece(r reader, n, class uint32) (reader, error) {
	m, w, in := d.model, d.window, &d.in
	const mask = Window - 1
	pos, st, rep0 := m.Pos, m.State&15, m.Rep[0]
	start, end := pos, pos+n
	var bit uint32
	for pos != end {
		if d.end-r.at < mostInput {
			var err error
			if r, err = d.fill(r); err != nil {
				return r, err
			}
		}
		at := pos & 3
		if r, bit = r.bit(in, &m.Match[st][at]); bit == 0 {
			expected := w[(pos-rep0)&mask]
			if rep0 > Window {
				b, err := d.far.read(1, pos-rep0)
				if err != nil {
					return r, err
				}
				expected = b[0]
			}
			c := Context{Last: w[(pos-1)&mask], Expected: expected, Class: class, State: st, Pos: pos}
			if m.Sums != nil {
				r, w[pos&mask] = r.sum(in, m.Sums, &c)
			} else {
				r, w[pos&mask] = r.literal(in, m.Literal, &c)
			}
			pos++
			st = AfterLiteral[st]
			continue
		}
		var length uint32
		r, length = r.match(in, m, st, at)
		st, rep0 = m.State&15, m.Rep[0]
		if length > end-pos || rep0 > min(d.have+pos-start, d.reach()) {
			return r, ErrDamaged
		}
		if rep0 > Window {
			b, err := d.far.read(length, pos-rep0)
			if err != nil {
				return r, err
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
	m.Pos, m.State = pos, st
	return r, nil
}

// match decodes a match after its first bit, and returns its length. Its distance is
// the model's Rep[0].
func (r reader) match(in *[inSize]byte, m *Model, st, at uint32) (reader, uint32) {
	var bit uint32
	if r, bit = r.bit(in, &m.AnyRep[st]); bit == 0 {
		var n uint32
		r, n = r.length(in, &m.New, at)
		m.Rep[3], m.Rep[2], m.Rep[1] = m.Rep[2], m.Rep[1], m.Rep[0]
		r, m.Rep[0] = r.distance(in, m, n)
		m.State = AfterMatch[st]
		return r, n
	}
	if r, bit = r.bit(in, &m.Rep0[st]); bit == 0 {
		if r, bit = r.bit(in, &m.ShortRep[st][at]); bit == 0 {
			m.State = AfterShortRep[st]
			return r, 1
		}
	} else {
		dist := m.Rep[1]
		if r, bit = r.bit(in, &m.Rep1[st]); bit != 0 {
			dist = m.Rep[2]
			if r, bit = r.bit(in, &m.Rep2[st]); bit != 0 {
				dist = m.Rep[3]
				m.Rep[3] = m.Rep[2]
			}
			m.Rep[2] = m.Rep[1]
		}
		m.Rep[1] = m.Rep[0]
		m.Rep[0] = dist
	}
	m.State = AfterRep[st]
	return r.length(in, &m.Old, at)
}

func (r reader) length(in *[inSize]byte, l *Lengths, at uint32) (reader, uint32) {
	var bit, n uint32
	if r, bit = r.bit(in, &l.Choice[0]); bit == 0 {
		r, n = r.tree(in, l.Low[at][:])
		return r, MinMatch + n
	}
	if r, bit = r.bit(in, &l.Choice[1]); bit == 0 {
		r, n = r.tree(in, l.Mid[at][:])
		return r, MinMatch + 8 + n
	}
	r, n = r.tree(in, l.High[:])
	return r, MinMatch + 16 + n
}

func (r reader) distance(in *[inSize]byte, m *Model, length uint32) (reader, uint32) {
	r, slot := r.tree(in, m.Slot[min(length-MinMatch, 3)][:])
	if slot < 4 {
		return r, slot + 1
	}
	n := slot>>1 - 1
	v := (2 | slot&1) << n
	if slot < FirstFar {
		r, low := r.reverse(in, m.Middle[slot][:], n)
		return r, v + low + 1
	}
	r, high := r.direct(in, n-4)
	r, low := r.reverse(in, m.Align[:], 4)
	return r, v + high<<4 + low + 1
}
