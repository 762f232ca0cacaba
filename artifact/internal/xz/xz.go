// Package xz reads and writes the .xz files that mender-artifact makes with
// --compression lzma: one stream with one LZMA2 block.
//
// github.com/ulikunitz/xz decodes and encodes LZMA2. This package reads the container
// itself, because the library has no memory bound: it allocates the dictionary that a
// header asks for, up to 4 GiB, for each block. The package does not know tars or
// artifacts.
//
// Source: The .xz File Format, version 1.1.0 (sections 2 to 4, 5.3.1).
package xz

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// MaxDictionary is the largest dictionary that a Reader accepts, in bytes: that of
// xz -9, which mender-artifact uses. The memory is used as the content fills it.
const MaxDictionary = 64 << 20

// dictionary is what a Writer uses, in bytes: that of xz -6. A device needs as much
// to read the file.
const dictionary = 8 << 20

var (
	// ErrUnsupported: a valid file that a Reader does not read.
	ErrUnsupported = errors.New("unsupported xz file")
	errDamaged     = errors.New("damaged xz file")
)

const (
	headerMagic = "\xfd7zXZ\x00"
	footerMagic = "YZ"
	lzma2       = 0x21 // the ID of the filter
)

// NewWriter returns a Writer of an .xz file. Close writes the file's end and does not
// close w. The same content gives the same bytes.
func NewWriter(w io.Writer) (io.WriteCloser, error) {
	return xz.WriterConfig{DictCap: dictionary, CheckSum: xz.CRC64}.NewWriter(w)
}

// A Reader decompresses an .xz file with one stream and one block. It uses up to
// MaxDictionary bytes and about 100 KiB.
type Reader struct {
	in    counted
	flags [2]byte
	check hash.Hash
	block *lzma.Reader2
	begin int64 // where the block begins in the file
	size  int64 // decompressed bytes
	err   error
}

// NewReader reads the headers from r. A file with several blocks, filters other than
// LZMA2, or a dictionary larger than MaxDictionary is an ErrUnsupported. The Reader
// reads r to its end and refuses anything after the stream.
func NewReader(r io.Reader) (*Reader, error) {
	z := &Reader{in: counted{r: bufio.NewReader(r)}}
	if err := z.start(); err != nil {
		return nil, whole(err)
	}
	return z, nil
}

func (z *Reader) start() error {
	var head [12]byte
	if _, err := io.ReadFull(&z.in, head[:]); err != nil {
		return err
	}
	if string(head[:6]) != headerMagic || crc32.ChecksumIEEE(head[6:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return fmt.Errorf("%w: no xz header", errDamaged)
	}
	z.flags = [2]byte(head[6:8])
	switch z.flags {
	case [2]byte{0, 0}:
	case [2]byte{0, 1}:
		z.check = crc32.NewIEEE()
	case [2]byte{0, 4}:
		z.check = crc64.New(crc64.MakeTable(crc64.ECMA))
	case [2]byte{0, 10}:
		z.check = sha256.New()
	default:
		return fmt.Errorf("%w: integrity check %#x", ErrUnsupported, z.flags)
	}
	z.begin = z.in.n
	dict, err := z.blockHeader()
	if err != nil {
		return err
	}
	z.block, err = lzma.Reader2Config{DictCap: dict}.NewReader2(&z.in)
	return err
}

// blockHeader reads the header of the block and returns its dictionary's size.
func (z *Reader) blockHeader() (dict int, err error) {
	size, err := z.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return 0, fmt.Errorf("%w: no block", ErrUnsupported)
	}
	head := make([]byte, (int(size)+1)*4)
	head[0] = size
	if _, err := io.ReadFull(&z.in, head[1:]); err != nil {
		return 0, err
	}
	body, sum := head[:len(head)-4], binary.LittleEndian.Uint32(head[len(head)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return 0, fmt.Errorf("%w: block header has the wrong checksum", errDamaged)
	}
	flags := body[1]
	if flags&^0xc0 != 0 {
		return 0, fmt.Errorf("%w: several filters", ErrUnsupported)
	}
	rest := bytes.NewReader(body[2:])
	for _, present := range []byte{0x40, 0x80} { // the sizes, which are also in the index
		if flags&present != 0 {
			if _, err := binary.ReadUvarint(rest); err != nil {
				return 0, fmt.Errorf("%w: sizes of the block", errDamaged)
			}
		}
	}
	var filter [3]byte // its ID, the size of its properties, and the properties
	if _, err := io.ReadFull(rest, filter[:]); err != nil || filter[0] != lzma2 || filter[1] != 1 {
		return 0, fmt.Errorf("%w: a filter other than LZMA2", ErrUnsupported)
	}
	bits := filter[2]
	if bits > 40 {
		return 0, fmt.Errorf("%w: size of the dictionary", errDamaged)
	}
	n := int64(2|bits&1) << (bits/2 + 11)
	if n > MaxDictionary {
		return 0, fmt.Errorf("%w: its dictionary is larger than %d MiB; compress it with xz -9 or less", ErrUnsupported, MaxDictionary>>20)
	}
	return int(n), nil
}

// Read decompresses. It returns io.EOF only after it has verified the check, the
// index and the footer.
func (z *Reader) Read(p []byte) (int, error) {
	if z.err != nil {
		return 0, z.err
	}
	n, err := z.block.Read(p)
	z.size += int64(n)
	if z.check != nil {
		z.check.Write(p[:n])
	}
	if err == io.EOF {
		if err = z.end(); err == nil {
			z.err = io.EOF
			return n, io.EOF
		}
	}
	if err != nil {
		z.err = whole(err)
	}
	return n, z.err
}

// Close does nothing: there is nothing to release.
func (z *Reader) Close() error { return nil }

// end reads the rest of the file and compares it with the block.
func (z *Reader) end() error {
	unpadded := z.in.n - z.begin
	var padding [4]byte
	if err := z.want(padding[:-unpadded&3], "padding of the block"); err != nil {
		return err
	}
	if z.check != nil {
		sum := z.check.Sum(nil)
		if z.check.Size() < sha256.Size { // CRCs are little-endian
			for i, j := 0, len(sum)-1; i < j; i, j = i+1, j-1 {
				sum[i], sum[j] = sum[j], sum[i]
			}
		}
		if err := z.want(sum, "integrity check"); err != nil {
			return err
		}
		unpadded += int64(len(sum))
	}
	next, err := z.in.ReadByte()
	if err != nil {
		return err
	}
	if next != 0 {
		return fmt.Errorf("%w: several blocks", ErrUnsupported)
	}
	index := binary.AppendUvarint(binary.AppendUvarint([]byte{0, 1}, uint64(unpadded)), uint64(z.size))
	index = append(index, padding[:-len(index)&3]...)
	index = binary.LittleEndian.AppendUint32(index, crc32.ChecksumIEEE(index))
	if err := z.want(index[1:], "index"); err != nil {
		return err
	}
	tail := append(binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1)), z.flags[:]...)
	footer := append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(tail)), tail...)
	if err := z.want(append(footer, footerMagic...), "footer"); err != nil {
		return err
	}
	switch _, err := z.in.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%w: there is data after the end of the stream", errDamaged)
	default:
		return err
	}
}

// want reads bytes that must equal b.
func (z *Reader) want(b []byte, what string) error {
	got := make([]byte, len(b))
	if _, err := io.ReadFull(&z.in, got); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("%w: wrong %s", errDamaged, what)
	}
	return nil
}

// whole returns io.ErrUnexpectedEOF if the input ends too early.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// counted counts the bytes that are read.
type counted struct {
	r *bufio.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
