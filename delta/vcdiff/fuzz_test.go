package vcdiff

import (
	"bytes"
	"context"
	"io"
	"testing"
)

// FuzzDecode: whatever the delta is, the decoder ends, with a typed error or
// with what Scan said, within its memory.
func FuzzDecode(f *testing.F) {
	old := vector(f, "old")
	for _, v := range vectors {
		f.Add(vector(f, v.name+".vcdiff"))
	}
	f.Add(join(header(0), win(winSource, 4, 2, 12, 0, nil, []byte{19, 12}, []byte{1})))
	f.Fuzz(func(t *testing.T, delta []byte) {
		const limit = 2 << 20
		info, serr := Scan(bytes.NewReader(delta))
		r, err := NewReader(context.Background(), bytes.NewReader(old), int64(len(old)),
			bytes.NewReader(delta), Options{MaxWindow: 1 << 20, MaxMemory: limit, MaxTarget: 8 << 20})
		n := int64(0)
		if err == nil {
			n, err = io.Copy(io.Discard, r)
			if r.mem.used > limit || int64(len(r.win)+len(r.inst)) > limit {
				t.Fatalf("%d bytes used", r.mem.used)
			}
			_ = r.Close()
		}
		if err != nil {
			if !typed(err) {
				t.Fatalf("error without a type: %v", err)
			}
			return
		}
		if serr != nil || info.Target != n {
			t.Fatalf("scan: %v, %d bytes; decoded %d", serr, info.Target, n)
		}
	})
}

// FuzzScan: headers alone, with lengths that reach far.
func FuzzScan(f *testing.F) {
	for _, v := range vectors {
		f.Add(vector(f, v.name+".vcdiff"))
	}
	f.Fuzz(func(t *testing.T, delta []byte) {
		info, err := Scan(bytes.NewReader(delta))
		if err != nil && !typed(err) {
			t.Fatalf("error without a type: %v", err)
		}
		if info.Target < 0 || info.SourceEnd < 0 || info.MaxWindow > info.Target {
			t.Fatalf("%+v", info)
		}
	})
}
