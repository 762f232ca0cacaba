package generator

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math/rand"
	"os"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/generator/gentest"
)

// What is made for a version needs no feature that its devices lack.
func TestForVersion(t *testing.T) {
	s := newShop(t)
	generate := func(forVersion string, change func(*Options), pairs ...string) (*artifact.Metadata, error) {
		o := s.options(t, pairs...)
		o.Artifact.ForVersion = forVersion
		o.Images.Coding = Coded
		if change != nil {
			change(&o)
		}
		if _, err := Generate(t.Context(), o, false); err != nil {
			return nil, err
		}
		return read(t, o.Build.Output).meta, nil
	}
	m, err := generate("1.0.0", nil, "web:1,web:2")
	require.NoError(t, err)
	require.Equal(t, artifact.FormatDelta, m.Components[0].Format)
	m, err = generate("policy/1 secrets/1", nil, "web:2")
	require.NoError(t, err)
	require.Equal(t, artifact.FormatFull, m.Components[0].Format, "such devices read no deltas")
	require.Empty(t, m.Requires)
	for _, test := range []struct {
		version, text string
		change        func(*Options)
		pairs         []string
	}{
		{"policy/1,delta/1,elf1", "lack lz1, and cannot read deltas", nil, []string{"web:1,web:2"}},
		{"policy/1", "lack delta/1, and cannot read deltas", nil, []string{"web:1,web:2"}},
		{"delta/1 elf1 lz1", "lack variants/1, and cannot read images in several variants", nil, []string{"web:1,web:2", "extra:1,web:2"}},
		{"0.9", "what mender-app 0.9 reads is not known: it is older than 1", nil, []string{"web:2"}},
		{"devel-0123", "--for-version", nil, []string{"web:2"}},
		{"1.0.0", "exclude each other", func(o *Options) { o.Artifact.Reader = ReaderShellModule }, []string{"web:2"}},
	} {
		_, err := generate(test.version, test.change, test.pairs...)
		var usage *UsageError
		require.ErrorAs(t, err, &usage, test.version)
		require.ErrorContains(t, err, test.text, test.version)
		require.NotEmpty(t, usage.Hint)
	}
}

// The deltas of an artifact have no feature that the devices lack.
func TestForVersionDeltas(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes several images; left out of -short")
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, gentest.Text("doc", 30_000))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	bash, err := os.ReadFile("/bin/bash") // it has unwind tables
	require.NoError(t, err)
	noise := make([]byte, 500_000) // which models make no smaller than zstd
	rand.New(rand.NewSource(1)).Read(noise)
	code := make([]byte, 500_000) // so much of it is new that it is coded in bulk
	rand.New(rand.NewSource(2)).Read(code)
	s := newShop(t)
	base := gentest.Image(t, "linux/amd64", gentest.Files{"program": armProgram(code[:260_000])})
	gentest.DockerArchive(t, s.archive("doc:0"), map[string]v1.Image{"shop/doc:0": base})
	img := gentest.Image(t, "linux/amd64", gentest.Files{"doc.gz": packed.String(), "large": strings.Repeat("0", 5<<20), "bash": string(bash),
		"program": armProgram(append([]byte("new code"), code...))}, gentest.Files{"noise": string(noise)})
	gentest.DockerArchive(t, s.archive("doc:1"), map[string]v1.Image{"shop/doc:1": img})
	for forVersion, want := range map[string][]string{
		"":                          delta.Features,
		"1":                         delta.Features,
		"delta/1 elf1 lz1 deflate1": {delta.FeatureELF, delta.FeatureLZ},
		"delta/1 elf1 lz1":          {delta.FeatureELF, delta.FeatureLZ},
	} {
		o := s.options(t, "doc:0,doc:1")
		o.Artifact.ForVersion, o.Images.Coding, o.Images.Link = forVersion, Coded, 10e6
		_, err := Generate(t.Context(), o, false)
		require.NoError(t, err, forVersion)
		a := read(t, o.Build.Output)
		require.Len(t, a.payloads, 1)
		for _, b := range a.payloads {
			h, err := delta.ReadHeader(bufio.NewReader(bytes.NewReader(b)), decoder.Knows)
			require.NoError(t, err, forVersion)
			require.Equal(t, want, h.Features, forVersion)
		}
	}
}

// armProgram is an ELF file for arm64 with code.
func armProgram(code []byte) string {
	const head, entry, arm64, loaded, executable = 64, 56, 183, 1, 5
	le := binary.LittleEndian
	b := make([]byte, head+entry)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[18:], arm64)
	le.PutUint64(b[32:], head)
	le.PutUint16(b[54:], entry)
	le.PutUint16(b[56:], 1)
	le.PutUint32(b[head:], loaded)
	le.PutUint32(b[head+4:], executable)
	size := uint64(len(b) + len(code))
	for i, v := range []uint64{0, 1 << 16, 1 << 16, size, size, 1 << 12} {
		le.PutUint64(b[head+8+8*i:], v)
	}
	return string(append(b, code...))
}
