package main

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A format of compressed streams.
type format struct {
	name  string
	magic []byte
	// length returns how many bytes the stream at the beginning of b has, or 0 if it
	// is none, or is cut short.
	length func(b []byte) int
}

var formats = []format{
	{"xz", []byte{0xfd, '7', 'z', 'X', 'Z', 0}, xzLength},
	{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd}, func(b []byte) int {
		n := zstdLength(b)
		if _, err := zstdDecoder.DecodeAll(b[:n], nil); err != nil {
			return 0 // code that reads zstd has the magic as well
		}
		return n
	}},
	{"bzip2", []byte("BZh"), bzip2Length},
	{"lz4", []byte{4, 0x22, 0x4d, 0x18}, lz4Length},
}

var zstdDecoder, _ = zstd.NewReader(nil)

// consumed returns how many bytes of b it takes to read what open makes of them.
func consumed(b []byte, open func(r *bufio.Reader) (io.Reader, error)) int {
	under := bytes.NewReader(b)
	r := bufio.NewReader(under)
	z, err := open(r)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, z); err != nil {
		return 0
	}
	return len(b) - under.Len() - r.Buffered()
}

func bzip2Length(b []byte) int {
	const block = "1AY&SY" // a block begins: most other text is passed over
	if len(b) < 10 || string(b[4:10]) != block {
		return 0
	}
	var behind int
	n := consumed(b, func(r *bufio.Reader) (io.Reader, error) { return bzip2Reader{bzip2.NewReader(r), &behind}, nil })
	return max(n-behind, 0)
}

// bzip2Reader ends where a stream is not followed by another one, and then says how
// many bytes were read behind it.
type bzip2Reader struct {
	io.Reader
	behind *int
}

func (z bzip2Reader) Read(b []byte) (int, error) {
	n, err := z.Reader.Read(b)
	if err == bzip2.StructuralError("bad magic value in continuation file") {
		*z.behind, err = 2, io.EOF
	}
	return n, err
}

// xzLength looks for the footer of a stream, whose flags are those of the header
// (the .xz file format, 2.1.2).
func xzLength(b []byte) int {
	const head, foot = 12, 12
	for at := head; at+foot <= len(b); at += 4 {
		f := b[at : at+foot]
		if string(f[10:]) == "YZ" && bytes.Equal(f[8:10], b[6:8]) && crc32.ChecksumIEEE(f[4:10]) == binary.LittleEndian.Uint32(f) {
			return at + foot
		}
	}
	return 0
}

// zstdLength follows the blocks of a frame (RFC 8878, 3.1.1).
func zstdLength(b []byte) int {
	if len(b) < 6 || b[4]&8 != 0 {
		return 0
	}
	flags := b[4]
	at := 5
	if flags&0x20 == 0 {
		at++ // the window
	}
	at += [4]int{0, 1, 2, 4}[flags&3]
	switch {
	case flags>>6 > 0:
		at += 1 << (flags >> 6)
	case flags&0x20 != 0:
		at++
	}
	for at+3 <= len(b) {
		head := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		at += 3
		switch head >> 1 & 3 {
		case 0, 2:
			at += head >> 3
		case 1:
			at++
		default:
			return 0
		}
		if head&1 != 0 {
			if flags&4 != 0 {
				at += 4
			}
			if at > len(b) {
				return 0
			}
			return at
		}
	}
	return 0
}

// lz4Length follows the blocks of a frame (LZ4 Frame Format, version 1).
func lz4Length(b []byte) int {
	if len(b) < 7 || b[4]>>6 != 1 {
		return 0
	}
	flags := b[4]
	at := 7
	if flags&8 != 0 {
		at += 8
	}
	if flags&1 != 0 {
		at += 4
	}
	for at+4 <= len(b) {
		n := binary.LittleEndian.Uint32(b[at:])
		at += 4
		if n == 0 {
			if flags&4 != 0 {
				at += 4
			}
			if at > len(b) {
				return 0
			}
			return at
		}
		at += int(n &^ (1 << 31))
		if flags&16 != 0 {
			at += 4
		}
	}
	return 0
}
