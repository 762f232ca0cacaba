package delta

import (
	"encoding/binary"
	"math/bits"

	"github.com/mender-app/mender-app/delta/elf"

	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// spans codes new against old: the bytes of c from at on.
func (w *walk) spans(old, new []byte, c script.Match, at int64) {
	q := c.New + at
	d := w.d
	p := w.predictor()
	w.fields = w.fields[:0]
	if p != nil {
		w.fields = p.Scan(w.fields, old, c.Old+at, q, c.Old, c.Old+c.Length)
	}
	fs := w.fields
	for i := 0; i < len(old); {
		j := min(i+span-int(q+int64(i))&(span-1), len(old))
		n := 0
		for n < len(fs) && int(fs[n].Off) < j {
			j = max(j, int(fs[n].Off)+int(fs[n].Len))
			n++
		}
		pred := w.pred[:j-i]
		copy(pred, old[i:j])
		worst := uint8(0)
		kinds := uint32(n) // of the fields, and how far each is to be trusted
		for k := range fs[:n] {
			f := &fs[k]
			at := int(f.Off)
			t := p.Predict(f, old[at:], pred[at-i:])
			worst = max(worst, t+1)
			kinds = kinds*7 + uint32(t)*5 + uint32(f.Kind)*3
		}
		clean := 0
		if w.Encoding && string(pred) == string(new[i:j]) {
			clean = 1
		}
		begun := uint32(min(bits.Len64(uint64(at+int64(i))>>4), 15))
		left := uint32(min(bits.Len64(uint64(c.Length-at-int64(j))>>4), 15))
		r := w.recent
		ctx := [...]uint32{
			uint32(min(n, 15)) | uint32(worst)<<4 | r&7<<8,
			begun | left<<4 | r&3<<8,
			uint32(old[i]) | uint32(old[(i+j)/2])<<8 | uint32(old[j-1])<<16,
			kinds<<3 | r&3 | uint32(worst)<<28,
		}
		if d.clean.Code(w.Coder, ctx[:], int(worst), int(r&0xff), clean) != 0 {
			w.recent <<= 1
			copy(new[i:j], pred)
			for k := range fs[:n] {
				f := &fs[k]
				p.Learn(f, old[f.Off:], new[f.Off:])
			}
		} else {
			w.recent = w.recent<<1 | 1
			w.changes(old, new, i, j, q, fs[:n], w.unit(c.Old+at+int64(i)))
		}
		fs = fs[n:]
		i = j
	}
}

// changes codes a span that is not as predicted.
func (w *walk) changes(old, new []byte, i, j int, q int64, fs []elf.Field, unit int) {
	m := w.d.word
	for i < j {
		if len(fs) > 0 && int(fs[0].Off) == i {
			w.field(&fs[0], old[i:], new[i:i+int(fs[0].Len)])
			i += int(fs[0].Len)
			fs = fs[1:]
			continue
		}
		k := min(i+unit-int(q+int64(i))&(unit-1), j)
		if len(fs) > 0 {
			k = min(k, int(fs[0].Off))
		}
		var n model.Near
		if i >= 4 {
			n.Old, n.New = binary.LittleEndian.Uint32(old[i-4:]), binary.LittleEndian.Uint32(new[i-4:])
		}
		if k+2 <= len(old) {
			n.Next = uint32(binary.LittleEndian.Uint16(old[k:]))
		}
		m.Code(w.Coder, old[i:k], new[i:k], n)
		i = k
	}
}

// unit is the size of the words at an old offset.
func (w *walk) unit(off int64) int {
	if w.elf != nil {
		return w.elf.Unit(off)
	}
	return 4
}

// field codes one field.
func (w *walk) field(f *elf.Field, old, new []byte) {
	p := w.elf
	m := w.d.field
	var buf [elf.MaxField]byte
	pred := buf[:f.Len]
	trust := p.Predict(f, old, pred)
	k := int(f.Kind)
	hist := &m.hist[k]
	o := uint32(binary.LittleEndian.Uint16(old))
	if f.Len > 2 {
		o |= uint32(binary.LittleEndian.Uint16(old[2:])) << 16
	}
	bit := 0
	if w.Encoding && string(pred) != string(new) {
		bit = 1
	}
	ctx := [...]uint32{
		uint32(k)<<11 | uint32(trust)<<8 | *hist&0xff,
		o*32 + uint32(k),
		uint32(k)<<11 | uint32(trust)<<8 | m.all&0xff,
	}
	bit = m.wrong.Code(w.Coder, ctx[:], k, int(trust), bit)
	*hist = *hist<<1 | uint32(bit)
	m.all = m.all<<1 | uint32(bit)
	if bit == 0 {
		copy(new, pred)
		p.Learn(f, old, new)
		return
	}
	if f.Random() {
		for x := range new {
			new[x] = byte(w.Raw(8, uint64(new[x])))
		}
		p.Learn(f, old, new)
		return
	}
	var step int64
	ok := false
	if w.Encoding {
		step, ok = p.Step(f, old, pred, new)
	}
	if w.Flag(&m.number[k], ok) {
		last := &m.last[k]
		which := 3
		for x := 2; x >= 0; x-- {
			if last[x] == step {
				which = x
			}
		}
		which = w.Tree(m.which[k][:], 2, which)
		if which < 3 {
			step = last[which]
		} else {
			step = w.Int(m.step[k], step)
			which = 2
		}
		copy(last[1:which+1], last[:which])
		last[0] = step
		p.Apply(f, old, pred, new, step)
	} else {
		for x := 0; x < len(new); x += 4 {
			y := min(x+4, len(new))
			w.d.word.Code(w.Coder, pred[x:y], new[x:y], model.Near{})
		}
	}
	p.Learn(f, old, new)
}

// elfBegin sets the prediction up for a window with the given covers, if both
// files are of a kind it knows; new is nil when decoding.
func (w *walk) elfBegin(covers []script.Match) error {
	if w.old0 == nil && !w.tried {
		w.tried = true
		if f, err := elf.Parse(w.f, w.osize); err == nil {
			w.old0 = f
		}
	}
	w.elf, w.ranges = nil, nil
	if w.old0 == nil {
		return nil
	}
	w.mode = elf.Mode(w.Tree(w.d.mode[:], 2, int(w.e.mode)))
	if w.mode == elf.Off {
		return nil
	}
	w.ranges = w.space.Ranges[:0]
	for _, c := range covers {
		w.ranges = append(w.ranges, elf.Range{Old: c.Old, New: c.New, Len: c.Length})
	}
	w.space.Ranges = w.ranges
	if w.old0.Go() {
		var s elf.Shift
		if w.Encoding {
			var err error
			if s, err = w.shift(); err != nil {
				return err
			}
		}
		s.Func = w.Int(w.d.shift, s.Func)
		s.Types = w.Int(w.d.shift, s.Types)
		s.Text = w.Int(w.d.shift, s.Text)
		w.shifts = s
	}
	return nil
}

// shift finds the Go numbers of the new file, when encoding.
func (w *walk) shift() (s elf.Shift, err error) {
	n, err := elf.Parse(w.e.new, w.e.size)
	if err != nil {
		return s, nil
	}
	head := make([]byte, min(w.e.size, 4096))
	if err := readFull(w.e.new, head, 0); err != nil {
		return s, err
	}
	p, err := elf.New(w.old0, head, w.ranges, w.mode, s, nil)
	if err != nil {
		return s, nil
	}
	return p.ShiftTo(n), nil
}

// predictor returns the window's predictor, once enough of the new file is there
// to make it.
func (w *walk) predictor() *elf.Predictor {
	if w.elf == nil && len(w.ranges) > 0 && len(w.head) >= elf.Need(w.head) {
		p, err := elf.New(w.old0, w.head, w.ranges, w.mode, w.shifts, &w.space)
		if err != nil {
			w.ranges = nil
			return nil
		}
		w.elf = p
	}
	return w.elf
}
