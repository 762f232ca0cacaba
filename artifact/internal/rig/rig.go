// Package rig helps the tests of package artifact and of those below it. It makes
// tars by hand, and runs the real programs that these packages are tested against.
// Only tests import it.
package rig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Entry is a member of a tar. The zero Type is a regular file, the zero Mode
// 0644.
type Entry struct {
	Name string
	Body string
	Type byte
	Link string
	Mode int64
}

// Tar makes a tar of the entries.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Typeflag: e.Type, Linkname: e.Link, Size: int64(len(e.Body)), Mode: e.Mode}
		if e.Type == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.Mode == 0 {
			h.Mode = 0o644
		}
		err := tw.WriteHeader(h)
		if err == nil {
			_, err = tw.Write([]byte(e.Body))
		}
		if err != nil {
			t.Fatalf("make a tar: %s: %v", e.Name, err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatalf("make a tar: %v", err)
	}
	return buf.Bytes()
}

// Gzip compresses b.
func Gzip(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(b)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatalf("gzip: %v", err)
	}
	return buf.Bytes()
}

// FixChecksums corrects the checksum of every block that looks like a tar header.
// Without this, every change a fuzzer makes to a header is refused for its checksum.
func FixChecksums(b []byte) {
	for at := 0; at+512 <= len(b); at += 512 {
		h := b[at : at+512]
		if string(h[257:262]) != "ustar" {
			continue
		}
		copy(h[148:156], "        ")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	}
}

// Need skips the test if the program is not installed. In CI it fails the test.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Skip(t, program+" is not installed")
	}
}

// Skip skips the test because something is missing. In CI it fails the test.
func Skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Run runs a program and returns what it prints. The program must succeed.
func Run(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return string(out)
}
