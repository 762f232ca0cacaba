package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func disk(t *testing.T) *cache {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, bytes.Repeat([]byte{'0'}, 8*sector), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := newCache(image)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fill(t *testing.T, c *cache, at int64, b byte) {
	t.Helper()
	if err := c.write(bytes.Repeat([]byte{b}, sector), at*sector); err != nil {
		t.Fatal(err)
	}
}

// shows returns the first byte of each sector.
func shows(t *testing.T, c *cache) string {
	t.Helper()
	b := make([]byte, c.size)
	if n, err := c.read(b, 0); err != nil || n != len(b) {
		t.Fatal(n, err)
	}
	var text []byte
	for at := 0; at < len(b); at += sector {
		text = append(text, b[at])
	}
	return string(text)
}

func TestWhatWasFlushedSurvivesAndTheRestDependsOnTheMode(t *testing.T) {
	for mode, want := range map[string]string{"none": "1a000000", "all": "1b200000"} {
		c := disk(t)
		fill(t, c, 0, '1')
		fill(t, c, 1, 'a')
		if err := c.flush(); err != nil {
			t.Fatal(err)
		}
		fill(t, c, 1, 'b')
		fill(t, c, 2, '2')
		if got := shows(t, c); got != "1b200000" {
			t.Fatalf("before the cut it shows %s", got)
		}
		if err := c.cutNow(mode, 1); err != nil {
			t.Fatal(err)
		}
		if got := shows(t, c); got != want {
			t.Errorf("%s: %s, not %s", mode, got, want)
		}
		if c.write(make([]byte, sector), 0) == nil || c.flush() == nil {
			t.Error("a disk without power takes writes")
		}
		c.on()
		fill(t, c, 7, '7')
		if got := shows(t, c); got != want[:7]+"7" {
			t.Errorf("after it: %s", got)
		}
	}
}

// A prefix keeps the order of the writes. A random part need not keep it.
func TestPrefixAndRandom(t *testing.T) {
	outOfOrder := false
	for seed := range int64(50) {
		for _, mode := range []string{"prefix", "random"} {
			c := disk(t)
			for at := range int64(8) {
				fill(t, c, at, '1')
			}
			if err := c.cutNow(mode, seed); err != nil {
				t.Fatal(err)
			}
			got := shows(t, c)
			ordered := !bytes.Contains([]byte(got), []byte("01"))
			if mode == "prefix" && !ordered {
				t.Errorf("prefix with seed %d: %s", seed, got)
			}
			outOfOrder = outOfOrder || !ordered
		}
	}
	if !outOfOrder {
		t.Error("no random cut kept a later write and lost an earlier one")
	}
}

// The N-th write is the last that may survive. The N-th flush does not happen.
func TestArmed(t *testing.T) {
	c := disk(t)
	if err := c.arm("write", 2, "all", 1); err != nil {
		t.Fatal(err)
	}
	fill(t, c, 0, '1')
	fill(t, c, 1, '1')
	if got := shows(t, c); !c.off || got != "11000000" {
		t.Errorf("off %t, %s", c.off, got)
	}
	c.on()
	if err := c.arm("flush", 1, "none", 1); err != nil {
		t.Fatal(err)
	}
	fill(t, c, 2, '1')
	if err := c.flush(); err == nil || shows(t, c) != "11000000" {
		t.Errorf("%v, %s", err, shows(t, c))
	}
}
