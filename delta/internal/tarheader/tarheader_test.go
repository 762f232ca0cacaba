package tarheader

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/model"
)

// tarOf writes members in a form of tar; each content is its name.
func tarOf(t testing.TB, format tar.Format, members ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		h.Format = format
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(h.Name))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func members(long int) []tar.Header {
	return []tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./etc/passwd", Mode: 0o644, Uid: 7, Gid: 8, Uname: "root"},
		{Typeflag: tar.TypeReg, Name: "usr/" + strings.Repeat("long/", long) + "name", Mode: 0o600},
		{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "etc/passwd"},
		{Typeflag: tar.TypeLink, Name: "hard", Linkname: "etc/passwd"},
		{Typeflag: tar.TypeReg, Name: "etc/.wh.gone"},
		{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3},
	}
}

// forms are tars of the forms that engines and tar programs write.
func forms(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"ustar": tarOf(t, tar.FormatUSTAR, members(20)...),
		"pax":   tarOf(t, tar.FormatPAX, members(80)...),
		"gnu":   tarOf(t, tar.FormatGNU, members(80)...),
	}
}

// walk returns the members of a tar, with blocks of their own.
func walk(t testing.TB, b []byte) (list []Member, end int64) {
	t.Helper()
	w := NewWalk(bytes.NewReader(b), int64(len(b)))
	for {
		m, err := w.Next()
		if err == io.EOF {
			return list, w.End()
		}
		require.NoError(t, err)
		m.Raw = bytes.Clone(m.Raw)
		list = append(list, m)
	}
}

// A Walk finds what archive/tar finds, and its blocks and contents are the tar.
func TestWalk(t *testing.T) {
	for name, b := range forms(t) {
		t.Run(name, func(t *testing.T) {
			got, end := walk(t, b)
			r := tar.NewReader(bytes.NewReader(b))
			var whole []byte
			for _, m := range got {
				want, err := r.Next()
				require.NoError(t, err)
				require.Equal(t, CleanPath(want.Name), m.Path)
				require.Equal(t, want.Typeflag, m.Type)
				require.Equal(t, want.Size, m.Size)
				file := want.Typeflag == tar.TypeReg && !strings.Contains(want.Name, ".wh.")
				require.Equal(t, file, m.File(), want.Name)
				if want.Typeflag == tar.TypeReg {
					require.Equal(t, want.Name, string(b[m.Off:m.Off+m.Size]))
				}
				require.EqualValues(t, len(whole)+len(m.Raw), m.Off)
				whole = append(whole, m.Raw...)
				whole = append(whole, b[m.Off:m.Off+(m.Size+Block-1)/Block*Block]...)
			}
			_, err := r.Next()
			require.ErrorIs(t, err, io.EOF)
			require.EqualValues(t, len(whole), end)
			require.Equal(t, b[:end], whole)
		})
	}
}

// Next asks for just the blocks that there are, one step after the other.
func TestNextAsksForWhatIsThere(t *testing.T) {
	for name, b := range forms(t) {
		list, _ := walk(t, b)
		for _, m := range list {
			var h Header
			var raw []byte
			for {
				n, err := h.Next(raw)
				require.NoError(t, err)
				if n == 0 {
					break
				}
				require.LessOrEqual(t, len(raw)+n, len(m.Raw), name)
				raw = m.Raw[:len(raw)+n]
			}
			require.Equal(t, m.Raw, raw, name)
			require.Equal(t, m.Header, h, name)
			_, err := h.Next(append(bytes.Clone(m.Raw), m.Raw...))
			require.ErrorIs(t, err, ErrHeader, "two members are not one")
		}
	}
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "./a/b/": "a/b", "/etc/passwd": "etc/passwd", "../../x": "x", "a/../../b": "b",
		"": "", "/": "", ".": "", "..": "", "a\x00b": "",
		strings.Repeat("x", MaxPath): strings.Repeat("x", MaxPath), strings.Repeat("x", MaxPath+1): "",
	} {
		require.Equal(t, want, CleanPath(in), "%.20q", in)
	}
}

func TestNumbers(t *testing.T) {
	field := func(s string) []byte { return append([]byte(s), make([]byte, 12-len(s))...) }
	for s, want := range map[string]int64{
		"": 0, "0000644\x00": 0o644, " 644 ": 0o644, "77777777777\x00": 1<<33 - 1,
		"\x80\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00": 1 << 33, "\x80": 0,
	} {
		got, ok := tarNumber(field(s))
		require.True(t, ok, "%q", s)
		require.Equal(t, want, got, "%q", s)
	}
	for _, s := range []string{"-1", "8", "x", "1 2", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x80\x00\x00\x01" + strings.Repeat("\x00", 8)} {
		_, ok := tarNumber(field(s))
		require.False(t, ok, "%q", s)
	}
}

func TestPaxRecords(t *testing.T) {
	read := func(s string) (kv []string, ok bool) {
		ok = paxRecords([]byte(s), func(k, v string) { kv = append(kv, k, v) })
		return kv, ok
	}
	kv, ok := read("9 path=a\n12 size=1=2\n\n")
	require.False(t, ok)
	require.Equal(t, []string{"path", "a"}, kv[:2])
	kv, ok = read("9 path=a\n11 size=12\n")
	require.True(t, ok)
	require.Equal(t, []string{"path", "a", "size", "12"}, kv)
	for _, bad := range []string{"x", " ", "1 a=b\n", "99 a=b\n", "6 a=b ", "5 ab\n", "-6 a=b\n", "99999999999999999999 a=b\n"} {
		_, ok := read(bad)
		require.False(t, ok, "%q", bad)
	}
}

// block is a header block with a valid checksum.
func block(kind byte, size string) []byte {
	h := make([]byte, Block)
	copy(h, "name")
	copy(h[124:], size)
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	copy(h[148:], Checksum(h))
	return h
}

// A hostile tar is refused, whatever it announces, and costs no memory.
func TestHostileTars(t *testing.T) {
	pax := func(records string) []byte {
		b := append(block('x', fmt.Sprintf("%011o", len(records))), records...)
		return append(b, make([]byte, -len(b)&(Block-1))...)
	}
	sum := block('0', "00000000000")
	sum[148]++
	for name, b := range map[string][]byte{
		"a wrong checksum":           sum,
		"a content past the end":     append(block('0', "00000001000"), make([]byte, 511)...),
		"a content of 8 PiB":         block('0', "\x80\x00\x00\x00\x00\x20\x00\x00\x00\x00\x00\x00"),
		"a negative content":         block('0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"),
		"a pax header of 8 GiB":      block('x', "77777777777"),
		"a pax header without end":   block('x', "00000001000"),
		"pax records that are none":  append(pax("nonsense"), block('0', "")...),
		"a negative size in pax":     append(pax("11 size=-1\n"), block('0', "")...),
		"a long name past the end":   block('L', "00000001000"),
		"pax headers without a file": bytes.Repeat(pax("9 path=a\n"), MaxBlocks/Block/2+1),
		"sparse blocks without end":  func() []byte { h := block('S', ""); h[482] = 1; copy(h[148:], Checksum(h)); return h }(),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewWalk(bytes.NewReader(b), int64(len(b))).Next()
			require.ErrorIs(t, err, ErrHeader)
		})
	}
	_, err := NewWalk(bytes.NewReader(nil), 0).Next()
	require.ErrorIs(t, err, io.EOF)
	_, err = NewWalk(strings.NewReader("short"), 512).Next()
	require.Error(t, err, "the reader ends before the tar")
}

// The checksum is the one that archive/tar writes.
func TestChecksum(t *testing.T) {
	for _, b := range forms(t) {
		list, _ := walk(t, b)
		for _, m := range list {
			h := m.Raw[len(m.Raw)-Block:]
			require.Equal(t, h[148:156], Checksum(h))
		}
	}
}

// codeAll codes members, each against one of refs or the one before, and returns
// the coded bytes and what came back.
func codeAll(t testing.TB, encoded []byte, list []Member, refs []Member) (coded []byte, got [][]byte) {
	c := &model.Coder{Encoding: encoded == nil}
	c.Start(encoded)
	m := NewModel()
	for range 2 { // two objects with one model
		m.Begin()
		for i := range list {
			var raw, ref []byte
			if c.Encoding {
				raw = list[i].Raw
			}
			if i < len(refs) && i%3 != 2 {
				ref = refs[i].Raw
			}
			out, err := m.Code(c, raw, ref)
			require.NoError(t, err)
			got = append(got, bytes.Clone(out))
		}
	}
	if c.Encoding {
		return slices.Clone(c.Finish()), got
	}
	require.False(t, c.Short)
	return encoded, got
}

// Coded against headers of any form, headers come back byte for byte, those with
// odd fields too.
func TestModelRoundTrip(t *testing.T) {
	all := forms(t)
	odd := slices.Clone(all["gnu"])
	list, _ := walk(t, odd)
	last := list[len(list)-1].Raw
	copy(last[100:], "7\x0077")           // a mode that no program writes
	copy(last[500:], "behind the prefix") // where zeros should be
	for oldName := range all {
		refs, _ := walk(t, all[oldName])
		for newName := range all {
			list, _ := walk(t, all[newName])
			coded, want := codeAll(t, nil, list, refs)
			_, got := codeAll(t, coded, list, refs)
			require.Equal(t, want, got)
			for i, raw := range want {
				require.Equal(t, list[i%len(list)].Raw, raw, "%s over %s", newName, oldName)
			}
		}
	}
	coded, want := codeAll(t, nil, list, nil)
	require.Equal(t, last, want[len(want)-1])
	_, got := codeAll(t, coded, list, nil)
	require.Equal(t, want, got)

	same, _ := codeAll(t, nil, list, list)
	require.Less(t, len(same), 200, "headers as the reference's cost next to nothing")
}

// Bytes that no encoder wrote give an error or blocks, within the bounds.
func FuzzModel(f *testing.F) {
	list, _ := walk(f, tarOf(f, tar.FormatPAX, members(80)...))
	coded, _ := codeAll(f, nil, list, list)
	f.Add(coded)
	f.Add([]byte(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := new(model.Coder)
		c.Start(in)
		m := NewModel()
		m.Begin()
		for i := 0; i < 20 && !c.Short; i++ {
			out, err := m.Code(c, nil, list[i%len(list)].Raw)
			if err != nil {
				require.ErrorIs(t, err, ErrHeader)
				return
			}
			require.LessOrEqual(t, len(out), MaxBlocks+len(list[i%len(list)].Raw))
			require.Zero(t, len(out)%Block)
		}
	})
}
