package codec

import (
	"encoding/binary"
	"math/bits"

	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/model"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// spans codes the bytes of a match, from at on: new against old.
func (c *changeCoder) spans(old, new []byte, m script.Match, at int64) {
	q := m.New + at
	p := c.elf.predictor()
	fs := c.elf.scan(old, m, at)
	for i := 0; i < len(old); {
		j := min(i+maxSpan-int(q+int64(i))&(maxSpan-1), len(old))
		n := 0
		for n < len(fs) && int(fs[n].Off) < j {
			j = max(j, int(fs[n].Off)+int(fs[n].Len))
			n++
		}
		pred := c.pred[:j-i]
		copy(pred, old[i:j])
		worst := uint8(0)
		kinds := uint32(n) // a hash of the fields' kinds and of how much each can be trusted
		for k := range fs[:n] {
			f := &fs[k]
			at := int(f.Off)
			t := p.Predict(f, old[at:], pred[at-i:])
			worst = max(worst, t+1)
			kinds = kinds*7 + uint32(t)*5 + uint32(f.Kind)*3
		}
		same := 0
		if c.Encoding && string(pred) == string(new[i:j]) {
			same = 1
		}
		begun := uint32(min(bits.Len64(uint64(at+int64(i))>>4), 15))
		left := uint32(min(bits.Len64(uint64(m.Length-at-int64(j))>>4), 15))
		r := c.recent
		ctx := model.Contexts{
			uint32(min(n, 15)) | uint32(worst)<<4 | r&7<<8,
			begun | left<<4 | r&3<<8,
			uint32(old[i]) | uint32(old[(i+j)/2])<<8 | uint32(old[j-1])<<16,
			kinds<<3 | r&3 | uint32(worst)<<28,
		}
		unchanged := c.same.Code(c.Coder, &ctx, int(worst), int(r&0xff), same) != 0
		if c.Price {
			c.share("spans: " + c.elf.area(m.Old+at+int64(i)))
		}
		if unchanged {
			c.recent <<= 1
			copy(new[i:j], pred)
			for k := range fs[:n] {
				f := &fs[k]
				p.Learn(f, old[f.Off:], new[f.Off:])
			}
		} else {
			c.recent = c.recent<<1 | 1
			oldAt := m.Old + at + int64(i)
			c.set = c.instructionSet(oldAt)
			c.changedSpan(old, new, i, j, m.Old+at, q, fs[:n], c.elf.unit(oldAt))
		}
		fs = fs[n:]
		i = j
	}
}

// changedSpan codes a span that is not as predicted.
func (c *changeCoder) changedSpan(old, new []byte, i, j int, oldAt, q int64, fs []elf.Field, unit int) {
	for i < j {
		if len(fs) > 0 && int(fs[0].Off) == i {
			c.field(&fs[0], old[i:], new[i:i+int(fs[0].Len)])
			if c.Price {
				c.share("fields: " + fs[0].Kind.String())
			}
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
		if c.set != nil && k-i == 4 {
			c.instruction(old[i:k], new[:k], q+int64(i), n)
		} else {
			c.word.Code(c.Coder, old[i:k], new[i:k], n)
		}
		if c.Price {
			c.share("words: " + c.elf.area(oldAt+int64(i)))
		}
		i = k
	}
}

// seenBefore is how many bytes the model of literals sees before an instruction that is new.
const seenBefore = 12

// instruction codes an instruction of a changed span, which is at q of the new file: the last
// of new. One with another opcode is coded like those outside of matches.
func (c *changeCoder) instruction(old, new []byte, q int64, n model.Near) {
	at := len(new) - len(old)
	b := new[at:]
	o := binary.LittleEndian.Uint32(old)
	switch c.instr.Change(c.Coder, c.set, o, binary.LittleEndian.Uint32(b), n) {
	case model.Unchanged:
		copy(b, old)
	case model.Parts:
		binary.LittleEndian.PutUint32(b, c.instr.Parts(c.Coder, o, binary.LittleEndian.Uint32(b), n))
	case model.Anew:
		k := min(at, seenBefore)
		c.literals.begin(len(b))
		c.literals.see(new[at-k:at], q-int64(k))
		c.literals.model(c.Coder, b, q)
		c.instr.Anew(o, binary.LittleEndian.Uint32(b))
	}
}
