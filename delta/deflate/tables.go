package deflate

const (
	literals   = 256
	endBlock   = 256
	numLit     = literals + 1 + 29
	numDist    = 30
	numLen     = 19
	maxBits    = 15
	maxLenBits = 7
	heapSize   = 2*numLit + 1

	repeat3   = 16 // the length before, 3 to 6 times
	zeros3    = 17 // 3 to 10 times
	zeros11   = 18 // 11 to 138 times
	maxSymbol = 1 << 15
)

// node is a symbol, or an inner node, of a tree.
type node struct {
	freq uint32
	dad  uint16
	len  uint8
	code uint16
}

var (
	extraLen   = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	extraDist  = [30]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
	extraBits  = [numLen]uint8{repeat3: 2, zeros3: 3, zeros11: 7}
	lenOrder   = [numLen]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	lenBase    [29]uint16 // less minMatch
	lenCode    [256]uint8
	distBase   [30]uint16 // less 1
	distCodes  [512]uint8
	staticLit  [numLit + 2]node
	staticDist [numDist]node
)

func init() {
	n := 0
	for c := range lenBase {
		lenBase[c] = uint16(n)
		for i := 0; i < 1<<extraLen[c] && n < 256; i++ {
			lenCode[n] = uint8(c)
			n++
		}
	}
	// The longest match has a code of its own.
	lenCode[255], lenBase[28] = 28, 255
	n = 0
	for c := range distBase {
		distBase[c] = uint16(n)
		for range 1 << extraDist[c] {
			if n < 256 {
				distCodes[n] = uint8(c)
			} else {
				distCodes[256+n>>7] = uint8(c)
			}
			n++
		}
	}
	var count [maxBits + 1]uint16
	for i := range staticLit {
		l := 8
		switch {
		case i >= 144 && i <= 255:
			l = 9
		case i >= 256 && i <= 279:
			l = 7
		}
		staticLit[i].len = uint8(l)
		count[l]++
	}
	codes(staticLit[:], &count)
	for i := range staticDist {
		staticDist[i] = node{len: 5, code: reverse(uint16(i), 5)}
	}
}

func distCode(dist int) int { // of the distance less 1
	if dist < 256 {
		return int(distCodes[dist])
	}
	return int(distCodes[256+dist>>7])
}
