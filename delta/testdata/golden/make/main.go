// Make writes the old and the new content of the golden deltas to the current
// directory, which is the one above this:
//
//	go run ./make [NAME…]
//
// It needs gcc, arm-linux-gnueabihf-gcc and aarch64-linux-gnu-gcc. What they
// make is checked in, so that a golden delta does not depend on a compiler.
// old.zst is compressed by itself, new.zst with old as its dictionary.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"debug/elf"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

func main() {
	log.SetFlags(0)
	library := func(gcc string, flags ...string) func(version int) []byte {
		return func(version int) []byte { return compiled(gcc, version, flags...) }
	}
	arm := library("arm-linux-gnueabihf-gcc", "-marm", "-march=armv7-a", "-mfpu=vfpv3-d16")
	thumb := library("arm-linux-gnueabihf-gcc", "-mthumb", "-march=armv7-a", "-mfpu=vfpv3-d16")
	write("elf-arm", func(v int) []byte {
		return tarOf(file{"usr/lib/liba32.so", arm(v)}, file{"usr/lib/libthumb.so", thumb(v)})
	})
	write("elf-arm64", func(v int) []byte {
		return tarOf(file{"usr/lib/libgold.so", library("aarch64-linux-gnu-gcc")(v)})
	})
	write("elf-amd64", func(v int) []byte {
		return tarOf(file{"usr/lib/libgold.so", library("gcc")(v)})
	})
	write("go", func(v int) []byte { return tarOf(file{"usr/bin/gold", program(v)}) })
	write("gzip", func(v int) []byte {
		return tarOf(file{"usr/share/doc/a/changelog.gz", gzipped(text(1, v))}, file{"usr/share/doc/b/changelog.gz", packed(text(2, v), "gzip", "-9n")},
			file{"usr/share/doc/c/changelog.gz", packed(text(3, v), "gzip", "-6n")})
	})
	write("zip", func(v int) []byte { return tarOf(file{"opt/app.jar", zipped(v)}) })
	write("md5sums", func(v int) []byte {
		var files []file
		var list strings.Builder
		for i := range 24 {
			b := text(int64(100+i), v*(i%3))
			name := fmt.Sprintf("usr/share/p/%02d", i)
			files = append(files, file{name, b})
			fmt.Fprintf(&list, "%x  %s\n", md5.Sum(b), name)
		}
		return tarOf(append(files, file{"var/lib/dpkg/info/p.md5sums", []byte(list.String())})...)
	})
	write("files", layer)
}

// layer has files that stay, move, change, disappear and appear.
func layer(v int) []byte {
	var files []file
	for i := range 40 {
		name, b := fmt.Sprintf("etc/%02d", i), text(int64(200+i), 0)
		if v > 0 {
			switch i % 5 {
			case 1:
				b = text(int64(200+i), v)
			case 2:
				name = "moved/" + name
			case 3:
				continue
			case 4:
				b = append(b, noise(int64(300+i), 50)...)
			}
		}
		files = append(files, file{name, b})
	}
	return tarOf(append(files, file{"usr/lib/libgold.so", compiled("gcc", v)})...)
}

// write writes one pair; version 0 is the old one.
func write(name string, make func(version int) []byte) {
	if len(os.Args) > 1 && !slices.Contains(os.Args[1:], name) {
		return
	}
	old, new := make(0), make(1)
	check(os.MkdirAll(name, 0o755))
	put(filepath.Join(name, "old.zst"), old)
	put(filepath.Join(name, "new.zst"), new, zstd.WithEncoderDictRaw(1, old))
}

func put(name string, b []byte, o ...zstd.EOption) {
	w, err := zstd.NewWriter(nil, append(o, zstd.WithEncoderLevel(zstd.SpeedBestCompression))...)
	check(err)
	check(os.WriteFile(name, w.EncodeAll(b, nil), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type file struct {
	name string
	data []byte
}

func tarOf(files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, f := range files {
		check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o644, ModTime: time.Unix(1700000000+int64(len(f.data)*i), 0)}))
		_, err := w.Write(f.data)
		check(err)
	}
	check(w.Close())
	return b.Bytes()
}

func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// text is like a changelog that has grown by some entries.
func text(seed int64, version int) []byte {
	r := rand.New(rand.NewSource(seed))
	var b bytes.Buffer
	for i := range version {
		fmt.Fprintf(&b, "gold (1.%d) stable; urgency=medium\n\n  * Entry %d of the new version.\n\n", i, seed)
	}
	for b.Len() < 1500 {
		fmt.Fprintf(&b, "  * Fix number %d of module-%c (Closes: #%06d)\n", r.Intn(50), 'a'+r.Intn(26), r.Intn(1000000))
	}
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	check(err)
	check(z.Close())
	return out.Bytes()
}

func packed(b []byte, args ...string) []byte {
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stderr = bytes.NewReader(b), os.Stderr
	out, err := c.Output()
	check(err)
	return out
}

func zipped(version int) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := range 12 {
		w, err := z.Create(fmt.Sprintf("org/gold/Class%d.class", i))
		check(err)
		_, err = w.Write(text(int64(400+i), version*(i%3)))
		check(err)
	}
	check(z.Close())
	return out.Bytes()
}

// compiled is a small shared library of many functions that call one another.
func compiled(gcc string, version int, flags ...string) []byte {
	var c strings.Builder
	r := rand.New(rand.NewSource(7))
	const n = 90
	for i := range n {
		fmt.Fprintf(&c, "int f%d(int, const char *);\n", i)
	}
	c.WriteString("int counter; const char *last;\n")
	for i := range n {
		if version > 0 && i%20 == 7 {
			fmt.Fprintf(&c, "int more%d(int a) { counter += a * %d; return f%d(a, \"more %d\"); }\n", i, i, (i+3)%n, i)
		}
		fmt.Fprintf(&c, "int f%d(int a, const char *s) {\n\tlast = s;\n\tif (a > %d) return a;\n", i, r.Intn(1000))
		for range 2 + r.Intn(4) {
			fmt.Fprintf(&c, "\ta += f%d(a + %d, \"text %d\");\n", r.Intn(n), r.Intn(100), r.Intn(200))
		}
		if version > 0 && i%13 == 5 {
			c.WriteString("\tcounter++;\n")
		}
		fmt.Fprintf(&c, "\treturn a ^ counter;\n}\n")
	}
	c.WriteString("int (*table[])(int, const char *) = {")
	for range 40 {
		fmt.Fprintf(&c, "f%d,", r.Intn(n))
	}
	c.WriteString("};\n")
	dir, err := os.MkdirTemp("", "golden")
	check(err)
	defer os.RemoveAll(dir)
	src, out := filepath.Join(dir, "gold.c"), filepath.Join(dir, "gold.so")
	check(os.WriteFile(src, []byte(c.String()), 0o644))
	run(exec.Command(gcc, append(flags, "-Os", "-shared", "-fPIC", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,max-page-size=4096", "-o", out, src)...))
	b, err := os.ReadFile(out)
	check(err)
	return b
}

func run(c *exec.Cmd) {
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	check(c.Run())
}

// program is a Go program with only a part of each section, because a complete one
// has a megabyte. It keeps the tables that the prediction reads, and the code of the
// program itself.
func program(version int) []byte {
	dir, err := os.MkdirTemp("", "golden")
	check(err)
	defer os.RemoveAll(dir)
	var src strings.Builder
	src.WriteString("package main\n\ntype shape interface{ area(n int) int }\n\nvar shapes []shape\n")
	for i := range 60 {
		if version > 0 && i%15 == 4 {
			fmt.Fprintf(&src, "type extra%d struct{ a int }\n\nfunc (e *extra%d) area(n int) int { println(\"extra\", n); return e.a * n }\n\nfunc init() { shapes = append(shapes, &extra%d{%d}) }\n", i, i, i, i)
		}
		fmt.Fprintf(&src, "type t%d struct{ a, b int }\n\n//go:noinline\nfunc (t *t%d) area(n int) int {\n\tfor _, s := range shapes[n%%len(shapes):] {\n\t\tt.b += s.area(n-%d)\n\t}\n\tprintln(\"t%d\", n)\n\treturn t.a*n + t.b\n}\n\nfunc init() { shapes = append(shapes, &t%d{%d, 0}) }\n", i, i, i+1, i, i, i*7)
	}
	src.WriteString("func main() { println(shapes[0].area(len(shapes))) }\n")
	check(os.WriteFile(filepath.Join(dir, "main.go"), []byte(src.String()), 0o644))
	check(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module gold\n\ngo 1.26\n"), 0o644))
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", "gold")
	c.Dir, c.Env = dir, append(os.Environ(), "GOOS=linux", "GOARCH=arm", "GOARM=7", "CGO_ENABLED=0")
	run(c)
	b, err := os.ReadFile(filepath.Join(dir, "gold"))
	check(err)
	f, err := elf.NewFile(bytes.NewReader(b))
	check(err)
	for _, s := range f.Sections {
		first, last := 6<<10, 6<<10 // bytes that are left
		switch s.Name {
		case ".text":
			first, last = 2<<10, 14<<10
		case ".gopclntab":
			// What is left: a part of the names, the tables of files, the last
			// functions' pc tables, the table of functions, the first and the last
			// records, and findfunctab.
			table := b[s.Offset : s.Offset+s.Size]
			word := func(i int) int { return int(le32(table[8+4*i:])) }
			n, units, pcs, funcs := word(0), word(4), word(6), word(7)
			find := int(uint64(le32(b[f.Section(".go.module").Offset+19*4:])) - s.Addr)
			last := funcs + int(le32(table[funcs+8*(n-80)+4:])) // the record of one of the last functions
			clear(table[1<<10 : units])
			clear(table[pcs:min(funcs, pcs+int(le32(table[last+16:])))])
			clear(table[min(last, funcs+8*n+4<<10):last])
			clear(table[min(find, last+8<<10):find])
			continue
		case ".data", ".noptrdata", ".go.module", ".itablink", ".typelink":
			continue
		}
		if s.Type == elf.SHT_PROGBITS && int(s.Size) > first+last {
			clear(b[int(s.Offset)+first : int(s.Offset+s.Size)-last])
		}
	}
	return b
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
