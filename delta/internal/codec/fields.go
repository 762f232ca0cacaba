package codec

import (
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/model"
)

// fieldModel codes whether predicted fields are right, and corrects them.
type fieldModel struct {
	wrong  *model.FlagModel
	hist   [elf.NumKinds]uint32 // which of the last ones were wrong, by kind
	all    uint32               // the same for all kinds together
	number [elf.NumKinds]model.Prob
	which  [elf.NumKinds][4]model.Prob
	last   [elf.NumKinds][3]int64
	step   [elf.NumKinds]*model.UintModel
}

func newFieldModel() *fieldModel {
	m := &fieldModel{wrong: model.NewFlagModel(3, 13, int(elf.NumKinds), 8)}
	for k := range m.step {
		m.number[k] = model.FreshProb
		copy(m.which[k][:], model.FreshProbs(4))
		m.step[k] = model.NewUintModel()
	}
	return m
}

// field codes one field.
func (c *changeCoder) field(f *elf.Field, old, new []byte) {
	p := c.elf.current
	m := c.elf.fields
	var buf [elf.MaxField]byte
	pred := buf[:f.Len]
	trust := p.Predict(f, old, pred)
	k := int(f.Kind)
	hist := &m.hist[k]
	o := uint32(0)
	for i, x := range old[:min(f.Len, 4)] {
		o |= uint32(x) << (8 * i)
	}
	bit := 0
	if c.Encoding && string(pred) != string(new) {
		bit = 1
	}
	ctx := model.Contexts{
		uint32(k)<<11 | uint32(trust)<<8 | *hist&0xff,
		o*32 + uint32(k),
		uint32(k)<<11 | uint32(trust)<<8 | m.all&0xff,
	}
	bit = m.wrong.Code(c.Coder, &ctx, k, int(trust), bit)
	*hist = *hist<<1 | uint32(bit)
	m.all = m.all<<1 | uint32(bit)
	if bit == 0 {
		copy(new, pred)
		p.Learn(f, old, new)
		return
	}
	if f.Random() {
		for x := range new {
			new[x] = byte(c.Raw(8, uint64(new[x])))
		}
		p.Learn(f, old, new)
		return
	}
	var step int64
	ok := false
	if c.Encoding {
		step, ok = p.Step(f, old, pred, new)
	}
	if c.Flag(&m.number[k], ok) {
		last := &m.last[k]
		which := 3
		for x := 2; x >= 0; x-- {
			if last[x] == step {
				which = x
			}
		}
		which = c.Tree(m.which[k][:], 2, which)
		if which < 3 {
			step = last[which]
		} else {
			step = c.Int(m.step[k], step)
			which = 2
		}
		copy(last[1:which+1], last[:which])
		last[0] = step
		p.Apply(f, old, pred, new, step)
	} else {
		for x := 0; x < len(new); x += 4 {
			y := min(x+4, len(new))
			c.word.Code(c.Coder, pred[x:y], new[x:y], model.Near{})
		}
	}
	p.Learn(f, old, new)
}
