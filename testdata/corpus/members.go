package corpus

import (
	"archive/tar"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"
)

// members has one of every kind of member that tar, pax, GNU tar and container
// engines write, and changes some of each.
func members(b *builder) (old, new []layer, err error) {
	make := func(n int) (layer, error) {
		return b.tar(func(out io.Writer) error { return writeMembers(out, n) })
	}
	o, err := make(1)
	if err != nil {
		return nil, nil, err
	}
	w, err := make(2)
	return []layer{o}, []layer{w}, err
}

func writeMembers(out io.Writer, n int) error {
	w := tar.NewWriter(out)
	when := time.Unix(1700000000, 0)
	later := when.Add(time.Duration(n-1) * time.Hour)
	var err error
	put := func(h tar.Header, data string) {
		if err != nil {
			return
		}
		h.Size = int64(len(data))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.ModTime.IsZero() && h.Typeflag != tar.TypeXGlobalHeader {
			h.ModTime = when
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		if err = w.WriteHeader(&h); err != nil {
			err = fmt.Errorf("%s: %w", h.Name, err)
			return
		}
		_, err = io.WriteString(w, data)
	}
	changes := func(seed uint64, size int) string {
		t := text(seed, size)
		if n == 2 {
			t = edit(seed, t, 2)
		}
		return string(t)
	}
	put(tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": fmt.Sprintf("build %d", n)}}, "")
	put(tar.Header{Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o755, Uid: 1000, Gid: 100, Uname: "user", Gname: "users"}, "")
	put(tar.Header{Name: "dir/plain", Format: tar.FormatUSTAR, ModTime: later}, changes(1, 3000))
	put(tar.Header{Name: "./dir/dotted"}, changes(2, 300))
	put(tar.Header{Name: "dir/empty"}, "")
	put(tar.Header{Typeflag: tar.TypeLink, Name: "dir/hard", Linkname: "dir/plain"}, "")
	put(tar.Header{Typeflag: tar.TypeLink, Name: "dir/hard2", Linkname: "dir/hard"}, "")
	put(tar.Header{Typeflag: tar.TypeSymlink, Name: "dir/sym", Linkname: "../dir/plain", Mode: 0o777}, "")
	put(tar.Header{Typeflag: tar.TypeSymlink, Name: "dir/abs", Linkname: "/etc/passwd", Mode: 0o777}, "")
	put(tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o666, Devmajor: 1, Devminor: 3}, "")
	put(tar.Header{Typeflag: tar.TypeBlock, Name: "dev/loop", Mode: 0o660, Devmajor: 7, Devminor: int64(n)}, "")
	put(tar.Header{Typeflag: tar.TypeFifo, Name: "run/fifo", Mode: 0o600}, "")
	put(tar.Header{Name: "dir/.wh.gone"}, "")
	put(tar.Header{Name: "dir2/.wh..wh..opq"}, "")
	put(tar.Header{Name: "bin/suid", Mode: 0o4755}, changes(3, 2000))
	put(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, "")

	// xattrs, capabilities (struct vfs_cap_data, version 2), ACLs.
	ping := make([]byte, 20)
	binary.LittleEndian.PutUint32(ping, 0x02000001)
	binary.LittleEndian.PutUint32(ping[4:], 1<<13)
	put(tar.Header{Name: "bin/ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": string(ping)}}, changes(4, 4000))
	put(tar.Header{Name: "dir/xattr", PAXRecords: map[string]string{
		"SCHILY.xattr.user.checksum": fmt.Sprintf("%x", noise(uint64(n), 16)), "SCHILY.xattr.user.empty": "", "SCHILY.acl.access": "user::rw-\ngroup::r--\n",
	}}, changes(5, 100))
	put(tar.Header{Name: "dir/xattr-only", PAXRecords: map[string]string{"SCHILY.xattr.user.n": fmt.Sprint(n)}}, "the content stays")

	// Long and odd names.
	long := strings.Repeat("directory/", 25)
	put(tar.Header{Name: long + "gnu", Format: tar.FormatGNU}, changes(6, 1000))
	put(tar.Header{Name: long + "pax", Format: tar.FormatPAX}, changes(7, 1000))
	put(tar.Header{Name: strings.Repeat("p/", 60) + "prefix", Format: tar.FormatUSTAR}, changes(8, 1000))
	put(tar.Header{Typeflag: tar.TypeSymlink, Name: long + "link", Linkname: long + "gnu", Format: tar.FormatGNU, Mode: 0o777}, "")
	put(tar.Header{Typeflag: tar.TypeLink, Name: "short", Linkname: long + "pax", Format: tar.FormatPAX}, "")
	put(tar.Header{Name: "dir/größe-長い-\u202e"}, changes(9, 50))
	put(tar.Header{Name: "dir/space and\ttab\nnewline"}, "x")

	// Numbers that do not fit, times with fractions, times before 1970.
	put(tar.Header{Name: "dir/big-id-gnu", Uid: 1 << 30, Gid: 1 << 31, Format: tar.FormatGNU}, "x")
	put(tar.Header{Name: "dir/big-id-pax", Uid: 1 << 30, Gid: 1 << 31, Format: tar.FormatPAX}, "x")
	put(tar.Header{Name: "dir/times", Format: tar.FormatPAX, ModTime: later.Add(123456789), AccessTime: later.Add(5), ChangeTime: later.Add(7)}, changes(10, 10))
	put(tar.Header{Name: "dir/times-gnu", Format: tar.FormatGNU, ModTime: later, AccessTime: later, ChangeTime: when}, "x")
	put(tar.Header{Name: "dir/before", ModTime: time.Unix(-86400*int64(n), 0)}, "x")
	put(tar.Header{Name: "dir/records", PAXRecords: map[string]string{"VENDOR.thing": strings.Repeat("v", 3000), "VENDOR.n": fmt.Sprint(n)}}, "x")

	// The same name twice, and a name that is a file here and a directory there.
	put(tar.Header{Name: "dir/twice"}, "first")
	put(tar.Header{Name: "dir/twice"}, fmt.Sprintf("second %d", n))
	if n == 1 {
		put(tar.Header{Name: "either"}, "a file")
	} else {
		put(tar.Header{Typeflag: tar.TypeDir, Name: "either/", Mode: 0o755}, "")
		put(tar.Header{Name: "either/or"}, "a file")
	}
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	// Tars of before POSIX have no magic.
	if _, err := out.Write(rawMember("v7", []byte(changes(11, 700)))); err != nil {
		return err
	}
	return w.Close()
}

// rawMember returns a tar member with its content and padding, in the V7 format.
func rawMember(name string, data []byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	field := func(at, size int, v int64) { copy(h[at:at+size], fmt.Sprintf("%0*o\x00", size-1, v)) }
	field(100, 8, 0o644)
	field(108, 8, 0)
	field(116, 8, 0)
	field(124, 12, int64(len(data)))
	field(136, 12, 1700000000)
	seal(h)
	b := append(h, data...)
	return append(b, make([]byte, -len(b)&511)...)
}

// seal writes the checksum into a header.
func seal(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// sparse makes a pair of files with extreme sizes: empty files, and sparse files of
// 4 GiB that take a few blocks, in GNU's and in pax's format.
func sparse(b *builder) (old, new []layer, err error) {
	const size = 4 << 30
	make := func(n int) (layer, error) {
		return b.tar(func(out io.Writer) error {
			w := tar.NewWriter(out)
			for i := range 5 {
				if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("empty/%d", i*n), Mode: 0o644, ModTime: time.Unix(1700000000, 0)}); err != nil {
					return err
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, f := range []struct {
				name string
				at   []int64 // a page of data at each
			}{
				{"disk.img", []int64{0, 1 << 20, 3 << 30, size - 4096}},
				{"large.db", []int64{0, 4096 * 3, 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30, 1 << 31, size - 8192}},
				{"hole", nil},
			} {
				var data []byte
				for i := range f.at {
					p := text(uint64(i), 4096)
					if n == 2 && i%2 == 1 {
						p = append(edit(9, p, 3), text(3, 200)...)[:4096]
					}
					data = append(data, p...)
				}
				if _, err := out.Write(gnuSparse("gnu/"+f.name, size, f.at, data)); err != nil {
					return err
				}
				if _, err := out.Write(paxSparse("pax/"+f.name, size, f.at, data)); err != nil {
					return err
				}
			}
			return w.Close()
		})
	}
	o, err := make(1)
	if err != nil {
		return nil, nil, err
	}
	w, err := make(2)
	return []layer{o}, []layer{w}, err
}

// gnuSparse returns a member of type S. Its map is in the header and in the blocks
// after it (GNU tar, "Standard Archive Format", sparse files of oldgnu).
func gnuSparse(name string, size int64, at []int64, data []byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	field := func(b []byte, at, n int, v int64) { copy(b[at:at+n], fmt.Sprintf("%0*o\x00", n-1, v)) }
	field(h, 100, 8, 0o644)
	field(h, 108, 8, 0)
	field(h, 116, 8, 0)
	field(h, 124, 12, int64(len(data)))
	field(h, 136, 12, 1700000000)
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	field(h, 483, 12, size)
	entries := at
	entry := func(b []byte, pos int) {
		field(b, pos, 12, entries[0])
		field(b, pos+12, 12, 4096)
		entries = entries[1:]
	}
	for i := 0; i < 4 && len(entries) > 0; i++ {
		entry(h, 386+24*i)
	}
	var more []byte
	if len(entries) > 0 {
		h[482] = 1
		for len(entries) > 0 {
			x := make([]byte, 512)
			for i := 0; i < 21 && len(entries) > 0; i++ {
				entry(x, 24*i)
			}
			if len(entries) > 0 {
				x[504] = 1
			}
			more = append(more, x...)
		}
	}
	seal(h)
	return append(append(h, more...), data...)
}

// paxSparse returns a member in GNU's pax format 1.0. The map is at the start of the
// content.
func paxSparse(name string, size int64, at []int64, data []byte) []byte {
	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name, "GNU.sparse.realsize": fmt.Sprint(size),
	}
	var recs string
	for _, k := range []string{"GNU.sparse.major", "GNU.sparse.minor", "GNU.sparse.name", "GNU.sparse.realsize"} {
		recs += paxRecord(k, records[k])
	}
	m := fmt.Sprintf("%d\n", len(at))
	for _, a := range at {
		m += fmt.Sprintf("%d\n4096\n", a)
	}
	content := append([]byte(m), make([]byte, -len(m)&511)...)
	content = append(content, data...)
	x := ustar("PaxHeaders.0/"+name, 'x', int64(len(recs)))
	x = append(x, recs...)
	x = append(x, make([]byte, -len(recs)&511)...)
	f := ustar("GNUSparseFile.0/"+name, '0', int64(len(content)))
	return append(x, append(f, content...)...)
}

func paxRecord(k, v string) string {
	n := len(k) + len(v) + 3 // space, =, newline
	for d := 1; ; d++ {
		if len(fmt.Sprint(n+d)) == d {
			return fmt.Sprintf("%d %s=%s\n", n+d, k, v)
		}
	}
}

func ustar(name string, kind byte, size int64) []byte {
	h := rawMember(name, nil)
	copy(h[124:], fmt.Sprintf("%011o\x00", size))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	seal(h)
	return h
}
