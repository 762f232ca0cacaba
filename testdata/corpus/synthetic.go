package corpus

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

const synthPlatform = "linux/arm/v7"

func synthetic() []Pair {
	list := []Pair{
		{Name: "members", About: "every kind of tar member: xattrs, hard links, long names, pax, GNU, whiteouts, devices, setcap", build: members},
		{Name: "sparse", About: "files of 0 bytes, and of 4 GiB as sparse ones of GNU and pax", build: sparse},
		{Name: "empty", About: "empty layers, a layer of zeros, one that is no tar to its end", build: empties},
		{Name: "compressed", About: "files in gzip (Go), zlib and zip whose content changed a little", build: compressed},
		{Name: "first", About: "an old image that has nothing in common with the new one", build: func(b *builder) (old, new []layer, err error) {
			t := tree{}
			t.file("etc/other", 0o600, time.Unix(1, 0), noise(77, 5000))
			r := invented(1)
			return b.pair([]tree{t}, []tree{r.app, r.conf})
		}},
	}
	for _, s := range shapes {
		list = append(list, Pair{Name: s.name, About: s.about, build: func(b *builder) (old, new []layer, err error) {
			o, n := s.make(invented(1), invented(2))
			return b.pair(o, n)
		}})
	}
	for i := range list {
		list[i].Synthetic, list[i].platform = true, synthPlatform
	}
	return list
}

// text returns n bytes of words. The same seed gives the same bytes.
func text(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	var words []string
	for range 400 {
		w := make([]byte, 2+r.IntN(9))
		for i := range w {
			w[i] = "etaoinshrdlucmfwypvbgkqjxz"[min(r.IntN(26), r.IntN(26))]
		}
		words = append(words, string(w))
	}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[min(r.IntN(400), r.IntN(400))])
		b.WriteByte(" \n"[min(1, r.IntN(12)/11)])
	}
	return b.Bytes()[:n]
}

// noise returns n bytes that cannot be compressed.
func noise(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	b := make([]byte, n)
	_, _ = r.Read(b) // never fails
	return b
}

// code returns n bytes that resemble machine code: records with addresses. A
// different base shifts all addresses.
func code(seed uint64, n int, base uint32) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, 0, n+16)
	for len(b) < n {
		op := byte(r.IntN(40))
		b = append(b, op, byte(r.IntN(8)))
		if op < 8 {
			a := base + uint32(r.IntN(n))
			b = append(b, byte(a), byte(a>>8), byte(a>>16), byte(a>>24))
		}
	}
	return b[:n]
}

// edit changes a few places of the content: it replaces, inserts or removes bytes.
func edit(seed uint64, b []byte, places int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	out := append([]byte(nil), b...)
	for range places {
		if len(out) < 64 {
			return out
		}
		at := r.IntN(len(out) - 40)
		n := 1 + r.IntN(32)
		switch r.IntN(3) {
		case 0:
			copy(out[at:], text(r.Uint64(), n))
		case 1:
			out = append(out[:at:at], append(text(r.Uint64(), n), out[at:]...)...)
		case 2:
			out = append(out[:at:at], out[at+n:]...)
		}
	}
	return out
}

// invented returns release 1 or 2 of an invented system.
func invented(n int) release {
	when := time.Unix(1700000000+int64(n-1)*7776000, 0)
	r := release{tree{}, tree{}, tree{}}
	change := func(seed uint64, b []byte) []byte {
		if n == 1 || seed%3 != 0 {
			return b
		}
		return edit(seed, b, 3)
	}
	for i := range uint64(30) {
		r.base.file(fmt.Sprintf("usr/share/doc/part%d/copyright", i), 0o644, time.Unix(1600000000+int64(i), 0), text(i, 2000+int(i)*100))
		r.base.file(fmt.Sprintf("usr/lib/part%d.so", i), 0o755, when, change(i, code(i, 20000+int(i)*1000, 0x10000+uint32(n)*64)))
		r.app.file(fmt.Sprintf("app/lib/mod%d.py", i), 0o644, when, change(i+1, text(100+i, 4000)))
	}
	r.base.link("lib", "usr/lib", when)
	r.app.file("app/bin/server", 0o755, when, change(3, code(500, 400000, 0x20000+uint32(n)*4096)))
	r.app.file("app/static/logo.png", 0o644, when, noise(600, 30000))
	r.conf.file("etc/app.conf", 0o600, when, text(700+uint64(n), 500))
	if n == 2 {
		r.conf.file("app/lib/.wh.mod7.py", 0, when, nil)
		delete(r.base, "usr/share/doc/part9/copyright")
		r.app.file("app/lib/new.py", 0o644, when, text(800, 6000))
	}
	return r
}

// compressed makes a pair of compressed files.
func compressed(b *builder) (old, new []layer, err error) {
	make := func(n int) tree {
		when := time.Unix(1700000000+int64(n), 0)
		t := tree{}
		for i := range uint64(12) {
			plain := text(i, 30000)
			if n == 2 && i%2 == 0 {
				plain = edit(i, plain, 4)
			}
			var gz, zl bytes.Buffer
			g, _ := gzip.NewWriterLevel(&gz, 1+int(i)%9)
			pipe(g, plain)
			z, _ := zlib.NewWriterLevel(&zl, 6)
			pipe(z, plain)
			t.file(fmt.Sprintf("usr/share/man/man1/tool%d.1.gz", i), 0o644, when, gz.Bytes())
			t.file(fmt.Sprintf("var/cache/object%d.z", i), 0o644, when, zl.Bytes())
		}
		var zb bytes.Buffer
		zw := zip.NewWriter(&zb)
		for i := range uint64(20) {
			w, _ := zw.Create(fmt.Sprintf("org/example/Class%d.class", i))
			c := code(i, 8000, uint32(n)*16)
			if i%5 != 0 {
				c = code(i, 8000, 0)
			}
			_, _ = w.Write(c) // into a buffer
		}
		_ = zw.Close()
		t.file("srv/app.jar", 0o644, when, zb.Bytes())
		return t
	}
	return b.pair([]tree{make(1)}, []tree{make(2)})
}

func pipe(w io.WriteCloser, b []byte) {
	_, _ = w.Write(b) // into memory
	_ = w.Close()
}

// empties makes a pair of layers with little or no content.
func empties(b *builder) (old, new []layer, err error) {
	raw := func(content []byte) layer {
		l, e := b.tar(func(w io.Writer) error { _, err := w.Write(content); return err })
		if err == nil {
			err = e
		}
		return l
	}
	r := invented(1)
	app, e := b.layer(r.app)
	if e != nil {
		return nil, nil, e
	}
	end := make([]byte, 1024)
	old = []layer{raw(end), app, raw(make([]byte, 10240))}
	cut := append(rawMember("a", []byte("no blocks of zeros follow")), rawMember("b", nil)...)
	rest := append(append(rawMember("c", text(1, 100)), end...), []byte("what tar does not read: "+strings.Repeat("x", 3000))...)
	new = []layer{raw(end), raw(make([]byte, 20480)), app, raw(cut), raw(rest), raw([]byte("not a tar at all")), raw(make([]byte, 10240)), raw(nil)}
	return old, new, err
}
