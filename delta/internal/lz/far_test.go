package lz_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
)

// memFile is a lz.File in memory. Its writes or its reads fail if an error is set.
type memFile struct {
	b           []byte
	write, read error
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if f.write != nil {
		return 0, f.write
	}
	if n := int(off) + len(b); n > len(f.b) {
		f.b = append(f.b, make([]byte, n-len(f.b))...)
	}
	return copy(f.b[off:], b), nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if f.read != nil {
		return 0, f.read
	}
	return bytes.NewReader(f.b).ReadAt(b, off)
}

func sizeOf(files []file) (n int64) {
	for _, f := range files {
		n += int64(len(f.b)) + lz.Alignment
	}
	return n
}

// apart is the same noise twice, n bytes apart, the second time with other bytes in it.
func apart(n int) []file {
	b := noise(5, 3000)
	again := bytes.Clone(b)
	again[1000]++
	again[2000]++
	return []file{{b: append(append(bytes.Clone(b), make([]byte, n-len(b))...), again...)}}
}

// Matches lie up to FarWindow back, and no farther. The file has at most FileSize bytes.
func TestFar(t *testing.T) {
	for name, c := range map[string]struct {
		distance int
		found    bool
		quick    bool
	}{
		"in memory":       {lz.Window, true, false},
		"past the memory": {lz.Window + 1, true, true},
		"in the file":     {lz.Window + 1<<20 + 5, true, false},
		"in all of it":    {lz.FarWindow - 1, true, false},
		"past the file":   {lz.FarWindow + 300, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.quick && testing.Short() {
				t.Skip("it takes seconds")
			}
			files := apart(c.distance)
			size := sizeOf(files)
			parts := encodeWith(parse.New(parse.Quick, lz.FarWindow, size), files, atEnd)
			f := &memFile{}
			var d lz.Decoder
			d.Extend(func() (lz.File, error) { return f, nil }, lz.FileSize(size))
			require.NoError(t, decodeWith(&d, files, atEnd, parts))
			require.LessOrEqual(t, int64(len(f.b)), lz.FileSize(size))
			if c.found {
				require.Less(t, len(parts[0]), 3900+c.distance/2500)
			} else {
				require.Greater(t, len(parts[0]), 6000)
			}
		})
	}
}

// Without more room than the window, no file is made.
func TestFarUnused(t *testing.T) {
	files := []file{{b: prose(1, 200_000)}}
	require.Zero(t, lz.FileSize(sizeOf(files)))
	parts := encodeWith(parse.New(parse.Quick, lz.FarWindow, 0), files, atEnd)
	var d lz.Decoder
	d.Extend(func() (lz.File, error) { panic("it is not needed") }, 0)
	require.NoError(t, decodeWith(&d, files, atEnd, parts))
}

// An error of the file is told as such. A file that would become larger than announced,
// and a match farther back than the decoder keeps, are damage.
func TestFarFails(t *testing.T) {
	files := apart(lz.Window + 1<<18)
	size := sizeOf(files)
	parts := encodeWith(parse.New(parse.Quick, lz.FarWindow, size), files, atEnd)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		open func() (lz.File, error)
		most int64
		want []error
	}{
		"no file":   {func() (lz.File, error) { return nil, broken }, lz.FileSize(size), []error{broken, lz.ErrFile}},
		"no writes": {func() (lz.File, error) { return &memFile{write: broken}, nil }, lz.FileSize(size), []error{broken, lz.ErrFile}},
		"no reads":  {func() (lz.File, error) { return &memFile{read: broken}, nil }, lz.FileSize(size), []error{broken, lz.ErrFile}},
		"cut short": {func() (lz.File, error) { return &memFile{read: io.EOF}, nil }, lz.FileSize(size), []error{io.ErrUnexpectedEOF, lz.ErrFile}},
		"too large": {func() (lz.File, error) { return &memFile{}, nil }, lz.FileSize(size) - 128<<10, []error{lz.ErrDamaged}},
		"without":   {nil, 0, []error{lz.ErrDamaged}},
	} {
		t.Run(name, func(t *testing.T) {
			var d lz.Decoder
			if c.open != nil {
				d.Extend(c.open, c.most)
			}
			err := decodeWith(&d, files, atEnd, parts)
			for _, want := range c.want {
				require.ErrorIs(t, err, want)
			}
		})
	}
}

// FuzzFar gives a decoder with a file anything, after so many bytes that the file is in
// use. It ends, and the file is no larger than it may be.
func FuzzFar(f *testing.F) {
	zeros := []file{{b: make([]byte, lz.Window+1<<18)}}
	mixed := encodeWith(parse.New(parse.Quick, lz.FarWindow, 0), zeros, atEnd)
	summed := encodeWith(sums(parse.Quick, lz.FarWindow), zeros, atEnd)
	f.Add(encodeWith(sums(parse.Quick, lz.Window), []file{{b: prose(2, 3000)}}, atEnd)[0], uint16(3000), uint8(128))
	f.Fuzz(func(t *testing.T, in []byte, n uint16, class uint8) {
		const most = 1 << 20
		file, part := &memFile{}, mixed
		var d lz.Decoder
		if class >= 128 {
			d.Sums()
			part = summed
		}
		d.Extend(func() (lz.File, error) { return file, nil }, most)
		require.NoError(t, decodeWith(&d, zeros, atEnd, part))
		require.NoError(t, d.Begin(bytes.NewReader(in)))
		b := make([]byte, n)
		for range 3 {
			if err := d.Read(b, uint32(class%lz.NumClasses)); err != nil {
				require.ErrorIs(t, err, lz.ErrDamaged)
				break
			}
			d.Align()
		}
		require.LessOrEqual(t, len(file.b), most)
	})
}
