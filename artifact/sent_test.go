package artifact

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sent says what each image takes in the payload, whatever the compressor
// still held when the next image began.
func TestImagesWriterSent(t *testing.T) {
	noise := func(n int) string {
		b := make([]byte, n)
		rand.NewChaCha8([32]byte{1}).Read(b)
		return string(b)
	}
	type member struct {
		from, to, content string
		kind              Kind
	}
	tests := map[string][]member{
		"deltas": {
			{"a", "b", noise(23_100), KindDelta}, {"c", "d", noise(5), KindDelta}, {"e", "f", noise(200_000), KindDelta}, {"g", "h", "", KindDelta},
		},
		"whole images": {
			{"", "b", noise(400_000), KindFull}, {"", "d", noise(1000), KindFull}, {"", "f", strings.Repeat("x", 300_000), KindFull}, {"", "h", noise(90_000), KindFull},
		},
		"both": {
			{"", "b", noise(100_000), KindFull}, {"c", "d", noise(30_000), KindDelta}, {"", "f", noise(3000), KindFull}, {"g", "h", noise(1), KindDelta},
		},
	}
	for name, list := range tests {
		t.Run(name, func(t *testing.T) {
			write := func(list []member) (sent []int64, size int) {
				var b bytes.Buffer
				w := NewImagesWriter(&b)
				for _, m := range list {
					info := want(m.from, m.to, m.kind).info
					require.NoError(t, w.Add(info, int64(len(m.content)), strings.NewReader(m.content)))
				}
				require.NoError(t, w.Close())
				return w.Sent(), b.Len()
			}
			sent, size := write(list)
			require.Len(t, sent, len(list))
			var sum int64
			for _, n := range sent {
				sum += n
			}
			require.EqualValues(t, size, sum)
			_, before := write(nil)
			for i := range list {
				_, size := write(list[:i+1])
				within := 16 << 10 // a whole image shares its last block with what follows
				if list[i].kind == KindDelta && (i == 0 || list[i-1].kind == KindDelta) && i > 0 && i+1 < len(list) {
					within = 0
				}
				require.InDelta(t, size-before, sent[i], float64(within), "%d of %v", i, sent)
				before = size
			}
		})
	}
}
