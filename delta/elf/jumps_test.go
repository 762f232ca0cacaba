package elf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A jump table looks the same wherever it and its function are. Other words stay.
func TestMaskJumps(t *testing.T) {
	const textSize = 0x400
	file := func(machine uint16, code, table int) []byte {
		var body []byte
		for _, to := range []int{0x20, 0x50, 0x48, 0x90} {
			body = append(body, words(uint32(code+to-table))...)
		}
		body = append(body, words(7, uint32(code+0x20-table-20), 9, 0)...) // no other one beside it
		b := build(machine, codeBase, part{name: ".text", typ: progbits, flags: executable, at: code, body: make([]byte, textSize)},
			part{name: ".rodata", typ: progbits, flags: allocated, at: table, body: body})
		le.PutUint32(b[68:], 5) // nothing can be written
		return b
	}
	const a, b = 0x1000, 0x1080
	was, is := file(machineX86, 0x400, a), file(machineX86, 0x600, b)
	one, two := Mask(was, Plain)[a:][:32], Mask(is, Plain)[b:][:32]
	require.Equal(t, one[:16], two[:16])
	require.Equal(t, words(firstJump, 0x30, ^uint32(7), 0x48), one[:16])
	require.Equal(t, was[a+16:a+32], one[16:])

	// Words of other machines, and those that can be written, are no jump tables.
	arm := file(machineArm64, 0x400, a)
	require.Equal(t, arm[a:a+32], Mask(arm, Plain)[a:][:32])
	le.PutUint32(was[68:], 7)
	require.Equal(t, was[a:a+32], Mask(was, Plain)[a:][:32])
}
