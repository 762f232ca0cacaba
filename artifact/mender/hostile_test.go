package mender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/internal/rig"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// TestDamaged cuts an artifact everywhere and flips bits all over it: it
// always ends in an error, unless the bit carries nothing, and then all that
// is read is as before.
func TestDamaged(t *testing.T) {
	spec := sampleSpec()
	spec.Files[0] = memFile("images.tar.gz", strings.Repeat("image ", 400))
	step := 5
	if testing.Short() {
		step = 101
	}
	for _, c := range []Compression{None, Gzip, LZMA, Zstd} {
		b := write(t, spec, Options{Compression: c})
		wantH, wantF, err := read(b)
		require.NoError(t, err)
		for cut := 0; cut < len(b); cut += step {
			_, _, err := read(b[:cut])
			require.ErrorIs(t, err, ErrFormat, cut)
			require.Equal(t, 1, strings.Count(err.Error(), ErrFormat.Error()), "said once: %v", err)
		}
		// All that carries something: the contents, and in compressed tars
		// everything but some bits.
		var carries []byte
		mark := func(p part) {
			at := bytes.Index(b, p.body)
			copy(carries[at:], bytes.Repeat([]byte{1}, len(p.body)))
		}
		carries = make([]byte, len(b))
		for _, p := range split(t, b) {
			if p.name != "data/0000.tar" {
				mark(p)
				continue
			}
			for _, f := range split(t, p.body) {
				mark(f)
			}
		}
		unnoticed := 0
		for i := 0; i < len(b); i += step {
			damaged := slices.Clone(b)
			damaged[i] ^= 1 << (i % 8)
			h, f, err := read(damaged)
			if err != nil {
				continue
			}
			unnoticed += int(carries[i])
			require.Equal(t, wantH, h, i)
			require.Equal(t, wantF, f, i)
		}
		require.Less(t, unnoticed, 20, c)
	}
}

func TestReaderHostile(t *testing.T) {
	good := split(t, write(t, sampleSpec(), Options{}))
	require.Equal(t, []string{"version", "manifest", "header.tar", "data/0000.tar"}, []string{good[0].name, good[1].name, good[2].name, good[3].name})
	header := split(t, good[2].body)
	data := split(t, good[3].body)
	// seal makes an artifact of changed parts whose checksums are right.
	seal := func(version string, header, data []part) []byte {
		h, d := join(t, header), join(t, data)
		lines := ""
		for _, p := range data {
			lines += sumOf(p.body) + "  data/0000/" + p.name + "\n"
		}
		lines += sumOf(h) + "  header.tar\n" + sumOf([]byte(version)) + "  version\n"
		return join(t, []part{{"version", []byte(version), 0}, {"manifest", []byte(lines), 0}, {"header.tar", h, 0}, {"data/0000.tar", d, 0}})
	}
	with := func(parts []part, at int, p part) []part {
		parts = slices.Clone(parts)
		parts[at] = p
		return parts
	}
	insert := func(parts []part, at int, p part) []part { return slices.Insert(slices.Clone(parts), at, p) }
	_, _, err := read(seal(versionFile, header, data))
	require.NoError(t, err)
	info := func(s string) []part { return with(header, 0, part{"header-info", []byte(s), 0}) }
	require.Equal(t, []string{"header-info", "headers/0000/type-info", "headers/0000/meta-data"}, []string{header[0].name, header[1].name, header[2].name})
	typed := func(s string) []part { return with(header, 1, part{header[1].name, []byte(s), 0}) }
	const name = `"artifact_name":`
	changedInfo := func(old, new string) []part { return info(strings.Replace(string(header[0].body), old, new, 1)) }
	twice := func(key string) string { return fmt.Sprintf("ambiguous JSON: the key %q occurs twice", key) }
	inAnotherCase := func(key, known string) string {
		return fmt.Sprintf("ambiguous JSON: the key %q is %q in another case", key, known)
	}
	meta := func(s string) []part { return with(header, 2, part{header[2].name, []byte(s), 0}) }
	lines := string(good[1].body)
	manifest := func(s string) []byte { return join(t, with(good, 1, part{"manifest", []byte(s), 0})) }
	for _, c := range []struct {
		name     string
		artifact []byte
		is       error
		says     string
	}{
		{"empty", nil, ErrFormat, "empty"},
		{"text", []byte(strings.Repeat("hello ", 200)), ErrFormat, ""},
		{"an empty tar", join(t, nil), ErrFormat, "ends too early"},
		{"version only", join(t, good[:1]), ErrFormat, "ends too early"},
		{"no data", join(t, good[:3]), ErrFormat, "ends too early"},
		{"version 2", seal(`{"format":"mender","version":2}`, header, data), ErrUnsupported, "version 2"},
		{"another format", seal(`{"format":"x","version":3}`, header, data), ErrFormat, "version"},
		{"other order", join(t, []part{good[1], good[0], good[2], good[3]}), ErrFormat, `"manifest" where "version" should be`},
		{"huge version", join(t, with(good, 0, part{"version", make([]byte, maxVersion+1), 0})), ErrTooLarge, "version"},
		{"huge manifest", manifest(strings.Repeat("x", maxManifest+1)), ErrTooLarge, "manifest"},
		{"huge header", join(t, with(good, 2, part{"header.tar", make([]byte, maxHeader+1), 0})), ErrTooLarge, "header.tar"},
		{"link", join(t, with(good, 0, part{"version", nil, '2'})), ErrFormat, "not a file"},
		{"malformed manifest", manifest("x  version\n"), ErrFormat, "malformed line"},
		{"manifest without end", manifest(lines[:len(lines)-1]), ErrFormat, "no end"},
		{"a name twice", manifest(lines + lines), ErrFormat, "malformed line"},
		{"dot-dot in the manifest", manifest(lines + sumOf(nil) + "  data/0000/../x\n"), ErrFormat, "malformed name"},
		{"several payloads", manifest(lines + sumOf(nil) + "  data/0001/x\n"), ErrUnsupported, "several payloads"},
		{"unknown part", manifest(lines + sumOf(nil) + "  etc/passwd\n"), ErrFormat, "unknown part"},
		{"missing file", manifest(lines + sumOf(nil) + "  data/0000/x\n"), ErrFormat, `"x" is missing`},
		{"second header", manifest(lines + sumOf(nil) + "  header.tar.gz\n"), ErrFormat, "a part that is missing"},
		{"too many files", manifest(strings.Repeat(sumOf(nil)+"  data/0000/x\n", maxFiles+5)), ErrFormat, ""},
		{"wrong checksum of a file", manifest(strings.Replace(lines, lines[:64], sumOf(nil), 1)), ErrChecksum, "images.tar.gz"},
		{"wrong checksum of the header", manifest(strings.Replace(lines, sumOf(good[2].body), sumOf(nil), 1)), ErrChecksum, "header.tar"},
		{"wrong checksum of the version", manifest(strings.Replace(lines, sumOf(good[0].body), sumOf(nil), 1)), ErrChecksum, "version"},
		{"file not in the manifest", join(t, with(good, 3, part{"data/0000.tar", join(t, append(slices.Clone(data), part{"x", nil, 0})), 0})), ErrFormat, `"x" occurs twice, is not in the manifest`},
		{"file twice", join(t, with(good, 3, part{"data/0000.tar", join(t, append(slices.Clone(data), data[0])), 0})), ErrFormat, "occurs twice"},
		{"file is a link", join(t, with(good, 3, part{"data/0000.tar", join(t, with(data, 0, part{"images.tar.gz", nil, '2'})), 0})), ErrFormat, "no file"},
		{"something behind", join(t, append(slices.Clone(good), part{"x", nil, 0})), ErrFormat, `"x" after the payload`},
		{"second data", join(t, append(slices.Clone(good), part{"data/0001.tar", nil, 0})), ErrUnsupported, "several payloads"},
		{"unknown compression", join(t, with(good, 2, part{"header.tar.lz4", good[2].body, 0})), ErrUnsupported, ".lz4"},
		{"augmented", join(t, insert(good, 2, part{"manifest-augment", nil, 0})), ErrUnsupported, "augmented"},
		{"no header-info", seal(versionFile, header[1:], data), ErrFormat, "no header-info"},
		{"header-info not JSON", seal(versionFile, info("{"), data), ErrFormat, "malformed header-info"},
		{"header-info null", seal(versionFile, info("null"), data), ErrUnsupported, "0 payloads"},
		{"other type", seal(versionFile, info(`{"payloads":[{"type":"x"}],"artifact_provides":{"artifact_name":"a"},"artifact_depends":{"device_type":["d"]}}`), data), ErrFormat, "another payload type"},
		{"no name", seal(versionFile, info(`{"payloads":[{"type":"app"}],"artifact_depends":{"device_type":["d"]}}`), data), ErrFormat, "no artifact name"},
		{"no device type", seal(versionFile, info(`{"payloads":[{"type":"app"}],"artifact_provides":{"artifact_name":"a"}}`), data), ErrFormat, "no device type"},
		{"newline in the name", seal(versionFile, info(`{"payloads":[{"type":"app"}],"artifact_provides":{"artifact_name":"a\nb"},"artifact_depends":{"device_type":["d"]}}`), data), ErrFormat, "cannot be printed"},
		{"header-info twice", seal(versionFile, append(slices.Clone(header), header[0]), data), ErrFormat, "twice"},
		{"huge header-info", seal(versionFile, info(strings.Repeat(" ", maxInfo+1)), data), ErrTooLarge, "header-info"},
		{"bad script name", seal(versionFile, append(slices.Clone(header), part{"scripts/a/b", nil, 0}), data), ErrFormat, "malformed name"},
		{"a key of the version twice", seal(`{"format":"x","format":"mender","version":3}`, header, data), ErrFormat, `version: ` + twice("format")},
		{"a key of the version in another case", seal(`{"Format":"mender","version":3}`, header, data), ErrFormat, `version: ` + inAnotherCase("Format", "format")},
		{"a key of header-info twice", seal(versionFile, changedInfo("{", `{"payloads":[],`), data), ErrFormat, `header-info: ` + twice("payloads")},
		{"a key in header-info twice", seal(versionFile, changedInfo(name, `"artifact_name":"other",`+name), data), ErrFormat, `header-info: ` + twice("artifact_name")},
		{"a key of header-info in two cases", seal(versionFile, changedInfo(name, `"Artifact_Name":"other",`+name), data), ErrFormat, `header-info: ambiguous JSON: the key`},
		{"a key of header-info in another case", seal(versionFile, changedInfo(`"device_type":`, `"Device_type":`), data), ErrFormat, `header-info: ` + inAnotherCase("Device_type", "device_type")},
		{"a key of type-info twice", seal(versionFile, typed(strings.Replace(string(header[1].body), "{", `{"type":"x",`, 1)), data), ErrFormat, `type-info: ` + twice("type")},
		{"a provide twice", seal(versionFile, typed(`{"type":"app","artifact_provides":{"a":"1","a":"2"}}`), data), ErrFormat, `type-info: ` + twice("a")},
		{"a provide in two cases", seal(versionFile, typed(`{"type":"app","artifact_provides":{"a":"1","A":"2"}}`), data), ErrFormat, `type-info: ambiguous JSON: the keys "a" and "A" differ only in case`},
		{"a key of type-info in another case", seal(versionFile, typed(`{"type":"app","Artifact_Provides":{"a":"1"}}`), data), ErrFormat, `type-info: ` + inAnotherCase("Artifact_Provides", "artifact_provides")},
		{"a key of meta-data twice", seal(versionFile, meta(`{"application_name":"a","application_name":"b"}`), data), ErrFormat, `meta-data: ` + twice("application_name")},
		{"a key of meta-data in two cases", seal(versionFile, meta(`{"x":[{"name":"a","Name":"b"}]}`), data), ErrFormat, `meta-data: ambiguous JSON: the keys "name" and "Name" differ only in case`},
		{"meta-data not JSON", seal(versionFile, meta(`{"x":1`), data), ErrFormat, "malformed meta-data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(c.artifact)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// TestHeaderBomb unpacks a header that grows out of all proportion.
func TestHeaderBomb(t *testing.T) {
	for _, c := range []Compression{Gzip, LZMA, Zstd} {
		if c == LZMA && testing.Short() {
			continue // compressing takes seconds
		}
		var bomb bytes.Buffer
		zw, err := compress(&bomb, c, 9)
		require.NoError(t, err)
		_, err = zw.Write(join(t, []part{{"x", make([]byte, 4*maxHeader), 0}}))
		require.NoError(t, err)
		require.NoError(t, zw.Close())
		name := "header.tar" + c.suffix()
		manifest := sumOf(bomb.Bytes()) + "  " + name + "\n" + sumOf([]byte(versionFile)) + "  version\n"
		_, _, err = read(join(t, []part{{"version", []byte(versionFile), 0}, {"manifest", []byte(manifest), 0}, {name, bomb.Bytes(), 0}}))
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// TestMemory writes and reads a payload far larger than the memory that may
// be taken.
func TestMemory(t *testing.T) {
	size := int64(64 << 20)
	if testing.Short() {
		size = 32 << 20
	}
	spec := sampleSpec()
	spec.Files[0] = File{Name: "images.tar.gz", Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, size)), nil
	}}
	for _, c := range []Compression{None, Gzip, LZMA, Zstd} {
		if c == LZMA && testing.Short() {
			continue // compressing takes seconds
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(Write(pw, spec, Options{Compression: c, TempDir: t.TempDir()})) }()
		r, err := NewReader(pr, ReadOptions{})
		require.NoError(t, err)
		f, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, size, f.Size)
		_, err = r.Next()
		require.NoError(t, err)
		_, err = r.Next()
		require.Equal(t, io.EOF, err)
		runtime.ReadMemStats(&after)
		most := uint64(20 << 20) // mostly the compressors' own
		if c == LZMA {
			most = 160 << 20 // the header's and the data's, each with a dictionary of 8 MiB and tables to search it
		}
		require.Less(t, after.TotalAlloc-before.TotalAlloc, most, c)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzHeader reads headers of three documents whose checksums are right: what is
// accepted says the same to every reader of JSON, however it takes keys.
func FuzzHeader(f *testing.F) {
	good := split(f, write(f, sampleSpec(), Options{}))
	header := split(f, good[2].body)
	f.Add(header[0].body, header[1].body, header[2].body)
	f.Add(header[0].body, []byte(`{"type":"app","Type":"x"}`), []byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, info, typ, meta []byte) {
		documents := [][]byte{info, typ, meta}
		parts := make([]part, len(documents))
		for i, b := range documents {
			parts[i] = part{header[i].name, b, 0}
		}
		h := join(t, parts)
		manifest := strings.Replace(string(good[1].body), sumOf(good[2].body), sumOf(h), 1)
		got, _, err := read(join(t, []part{good[0], {"manifest", []byte(manifest), 0}, {"header.tar", h, 0}, good[3]}))
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, b := range documents {
			if len(b) > 0 {
				require.NoError(t, strictjson.Check(b))
			}
		}
		// A reader that takes keys as they are written finds the same name and type.
		var exact map[string]any
		require.NoError(t, json.Unmarshal(info, &exact))
		require.Equal(t, got.Name, exact["artifact_provides"].(map[string]any)["artifact_name"])
		exact = nil
		require.NoError(t, json.Unmarshal(typ, &exact))
		require.Equal(t, got.PayloadType, exact["type"])
	})
}

func FuzzReader(f *testing.F) {
	for _, c := range []Compression{None, Gzip, LZMA, Zstd} {
		f.Add(write(f, sampleSpec(), Options{Compression: c}))
	}
	f.Add(write(f, sampleSpec(), Options{Key: newKey(f, "ECDSA").signer}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rig.FixChecksums(b)
		h, files, err := read(b)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.NotEmpty(t, h.Name)
		require.NotContains(t, h.Name, "\n")
		for name := range files {
			require.Equal(t, name, filepath.Base(name))
		}
	})
}
