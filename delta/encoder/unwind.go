package encoder

import (
	"encoding/binary"
	"io"

	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/align"
)

// readUnwind reads the unwind tables of a content.
func (t *target) readUnwind(no bool) {
	if !no {
		t.unwind = elf.ReadUnwind(t.plan.New, t.Size)
	}
}

// oldUnwind reads the unwind tables of an old file, if the content has such tables.
func (e *encoder) oldUnwind(t *target, f *oldFile) *elf.Unwind {
	if t.unwind == nil {
		return nil
	}
	return elf.ReadUnwind(io.NewSectionReader(e.old[f.obj].r, f.off, f.size), f.size)
}

// unwindRecord is how many bytes stand for a row when the rows of two files are aligned.
const unwindRecord = 8

// alignUnwind returns for each row of u that of an old file that it resembles, plus one.
func (e *encoder) alignUnwind(u, old *elf.Unwind) ([]int32, error) {
	if u == nil || old == nil {
		return nil, nil
	}
	records := func(u *elf.Unwind) []byte {
		b := make([]byte, 0, unwindRecord*len(u.Rows))
		end := uint32(0)
		for i := range u.Rows {
			r := &u.Rows[i]
			b = binary.LittleEndian.AppendUint16(b, r.Len)
			b = binary.LittleEndian.AppendUint32(b, r.Size)
			b = binary.LittleEndian.AppendUint16(b, uint16(r.PC-end)) // the gap, or something that tells a jump
			end = r.PC + r.Size
		}
		return b
	}
	matches, err := align.Find(e.ctx, records(old), records(u))
	if err != nil {
		return nil, err
	}
	from := make([]int32, len(u.Rows))
	for _, m := range matches {
		if (m.New-m.Old)%unwindRecord != 0 {
			continue
		}
		for at := (m.New + unwindRecord - 1) / unwindRecord; (at+1)*unwindRecord <= m.New+m.Length; at++ {
			from[at] = int32(at-(m.New-m.Old)/unwindRecord) + 1
		}
	}
	return from, nil
}
