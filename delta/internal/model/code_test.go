package model

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// codedInstruction codes an instruction as a codec does; one with another opcode in even bits.
func codedInstruction(m *InstructionModel, c *Coder, set *InstructionSet, old, new uint32, n Near) (uint32, Change) {
	kind := m.Change(c, set, old, new, n)
	switch kind {
	case Parts:
		return m.Parts(c, old, new, n), kind
	case Anew:
		w := uint32(c.Raw(32, uint64(new)))
		m.Anew(old, w)
		return w, kind
	}
	return old, kind
}

// Any instruction of either set comes back.
func TestInstructions(t *testing.T) {
	for name, set := range map[string]*InstructionSet{"A64": A64, "A32": A32} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewSource(1))
			var old, new []uint32
			for range 20_000 {
				w := rnd.Uint32()
				old = append(old, w, w, w)
				new = append(new, w, w^1<<rnd.Intn(32), w^rnd.Uint32()&rnd.Uint32()&rnd.Uint32())
			}
			near := func(i int) Near { i = max(i-1, 0); return Near{Old: old[i], New: new[i]} }
			e := &Coder{Encoding: true}
			e.Start(nil)
			m := NewInstructionModel()
			kinds := map[Change]int{}
			for i := range old {
				_, kind := codedInstruction(m, e, set, old[i], new[i], near(i))
				kinds[kind]++
			}
			require.Len(t, kinds, 3)
			d := &Coder{}
			d.Start(e.Finish())
			m = NewInstructionModel()
			for i := range old {
				got, _ := codedInstruction(m, d, set, old[i], 0, near(i))
				require.Equal(t, new[i], got)
			}
			require.False(t, d.Short)
		})
	}
}

// Where registers have other numbers, the same for each, an instruction costs a fraction of one
// in which any register may be.
func TestRenamedRegisters(t *testing.T) {
	size := func(became func(r uint32) uint32) int {
		rnd := rand.New(rand.NewSource(2))
		c := &Coder{Encoding: true}
		c.Start(nil)
		m := NewInstructionModel()
		for range 2000 {
			r := uint32(rnd.Intn(28))
			old := 0xf94003e0 | uint32(rnd.Intn(512))<<10 // LDR r, [sp, #n]
			codedInstruction(m, c, A64, old|r, old|became(r), Near{})
		}
		return len(c.Finish())
	}
	rnd := rand.New(rand.NewSource(3))
	renamed := size(func(r uint32) uint32 { return (r + 3) % 28 })
	random := size(func(uint32) uint32 { return uint32(rnd.Intn(28)) })
	require.Less(t, renamed*4, random)
}
