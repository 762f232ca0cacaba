package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

// part is a piece of an artifact: the artifact itself, a member of a tar in it,
// a member of a tar in that one, and so on down to the files in the layers.
type part struct {
	header  tar.Header
	data    []byte // the bytes as they stand in the tar above
	packed  bool   // data is a gzip stream
	members []*part
	above   *part
	changed bool // data must be made again from members
}

// takeApart reads data as a tar, compressed or not, with everything inside it. Data
// that is not a tar stays a piece without members.
func takeApart(data []byte) *part {
	p := &part{data: data}
	plain := data
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			if b, err := io.ReadAll(io.LimitReader(z, 64<<20)); err == nil {
				plain, p.packed = b, true
			}
		}
	}
	if len(plain) < 512 || string(plain[257:262]) != "ustar" {
		return p
	}
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if err != nil {
			return p // the end, or what follows is no tar
		}
		b, err := io.ReadAll(io.LimitReader(r, 64<<20))
		if err != nil {
			return p
		}
		m := takeApart(b)
		m.header, m.above = *h, p
		p.members = append(p.members, m)
	}
}

// bytes puts the piece together again.
func (p *part) bytes() []byte {
	if !p.changed {
		return p.data
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range p.members {
		h, b := m.header, m.bytes()
		h.Size, h.Format = int64(len(b)), tar.FormatUnknown
		if h.Typeflag != tar.TypeReg {
			h.Size, b = 0, nil
		}
		if w.WriteHeader(&h) == nil { // a name that no tar can hold drops its member
			_, _ = w.Write(b) // into memory
		}
	}
	_ = w.Close()
	p.data, p.changed = out.Bytes(), false
	if p.packed {
		p.data = compressed(p.data)
	}
	return p.data
}

func compressed(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = z.Write(b) // into memory
	_ = z.Close()
	return out.Bytes()
}

// touch marks everything above the piece as changed, so that it is made again.
func (p *part) touch() {
	for a := p.above; a != nil; a = a.above {
		a.changed = true
	}
}

// path names the piece by all the members that lead to it.
func (p *part) path() string {
	if p.above == nil {
		return ""
	}
	return p.above.path() + "/" + strings.TrimSuffix(p.header.Name, "/")
}

func (p *part) depth() int {
	if p.above == nil {
		return 0
	}
	return p.above.depth() + 1
}

// all lists the piece and everything in it.
func (p *part) all() []*part {
	list := []*part{p}
	for _, m := range p.members {
		list = append(list, m.all()...)
	}
	return list
}

// find returns the member whose name begins with a text, or nil.
func (p *part) find(prefix string) *part {
	for _, m := range p.members {
		if strings.HasPrefix(m.header.Name, prefix) {
			return m
		}
	}
	return nil
}

// sums are the checksums that the manifest of an artifact must list.
func sums(artifact *part) (lines []string) {
	line := func(name string, data []byte) {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
	}
	for _, m := range artifact.members {
		switch name := m.header.Name; {
		case strings.HasPrefix(name, "data/"):
			for _, file := range m.members {
				line("data/0000/"+file.header.Name, file.bytes())
			}
		case !strings.HasPrefix(name, "manifest"):
			line(name, m.bytes())
		}
	}
	slices.Sort(lines)
	return lines
}

// consistent reports whether an artifact's manifest lists what is in it.
func consistent(file []byte) bool {
	artifact := takeApart(file)
	manifest := artifact.find("manifest")
	if manifest == nil {
		return false
	}
	listed := slices.Sorted(strings.Lines(string(manifest.data)))
	return slices.Equal(listed, sums(artifact))
}

// mutant changes one thing in an artifact, at a level that is drawn first. In three
// of four cases it also corrects the manifest's checksums. It returns what it did.
func mutant(r *rand.Rand, file []byte) ([]byte, string) {
	artifact := takeApart(file)
	all := artifact.all()
	deepest := 0
	for _, p := range all {
		deepest = max(deepest, p.depth())
	}
	level := r.IntN(deepest + 1)
	p := pick(r, slices.DeleteFunc(all, func(p *part) bool { return p.depth() != level }))
	path := p.path()
	what := change(r, p)
	sums := "checksums as they were"
	// What was changed in the container or in the manifest itself would be undone.
	if r.IntN(4) != 0 && p != artifact && p != artifact.find("manifest") && artifact.mend() {
		sums = "checksums made right"
	}
	return artifact.bytes(), fmt.Sprintf("level %d, %s: %s, %s", level, path, what, sums)
}

// mend corrects the manifest, and reports whether there is one.
func (p *part) mend() bool {
	manifest := p.find("manifest")
	if manifest == nil {
		return false
	}
	manifest.data = []byte(strings.Join(sums(p), ""))
	manifest.touch()
	return true
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// change changes a piece in one way that fits it.
func change(r *rand.Rand, p *part) string {
	ways := []func(*rand.Rand, *part) string{changeBytes}
	if p.above != nil {
		ways = append(ways, changeMember)
	}
	if len(p.members) > 0 {
		ways = append(ways, changeHeaderBlock)
	}
	if json.Valid(p.data) && len(p.data) > 1 {
		ways = append(ways, changeJSON, changeJSON)
	}
	if strings.HasSuffix(p.header.Name, ".yml") {
		ways = append(ways, changeLines, changeLines)
	}
	what := pick(r, ways)(r, p)
	p.touch()
	return what
}

// changeBytes changes bytes of a piece without regard to what they are.
func changeBytes(r *rand.Rand, p *part) string {
	b := slices.Clone(p.data)
	if len(b) == 0 {
		p.data = []byte("something")
		return "filled"
	}
	at := r.IntN(len(b))
	end := min(len(b), at+1+r.IntN(600))
	what := ""
	switch r.IntN(7) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
		what = fmt.Sprintf("a bit of byte %d", at)
	case 1:
		b, what = b[:at], fmt.Sprintf("cut off at %d", at)
	case 2:
		clear(b[at:end])
		what = fmt.Sprintf("zeros from %d to %d", at, end)
	case 3:
		for i := at; i < end; i++ {
			b[i] = byte(r.Uint32())
		}
		what = fmt.Sprintf("noise from %d to %d", at, end)
	case 4:
		b, what = slices.Insert(b, at, b[at:end]...), fmt.Sprintf("%d to %d twice", at, end)
	case 5:
		b, what = append(b, bytes.Repeat([]byte("more"), 1+r.IntN(5000))...), "more at the end"
	default:
		b, what = nil, "emptied"
	}
	p.data, p.changed = b, false
	return what
}

// names are names of members that lead out of a tree or mean something else.
var names = []string{
	"../../../../etc/mender/evil", "/etc/mender/evil", "manifests/../../evil", "images/../evil", "", ".", "..", "data/0000.tar",
	"manifest", "manifest.sig", "manifest-augment", "header-augment.tar", "version", "headers/0001/type-info", "meta-data",
	"manifest.json", "index.json", "a\nb", "-rf", "$(touch /etc/mender/evil)", strings.Repeat("d/", 500) + "f", strings.Repeat("n", 5000),
}

// changeMember changes what the tar above says about a piece.
func changeMember(r *rand.Rand, p *part) string {
	list := p.above.members
	i := slices.Index(list, p)
	switch r.IntN(7) {
	case 0:
		p.above.members = slices.Delete(list, i, i+1)
		return "dropped"
	case 1:
		p.above.members = slices.Insert(list, r.IntN(len(list)+1), p)
		return "twice"
	case 2:
		list = slices.Delete(list, i, i+1)
		p.above.members = slices.Insert(list, r.IntN(len(list)+1), p)
		return "moved"
	case 3:
		p.header.Name = pick(r, names)
		return fmt.Sprintf("renamed %.40q", p.header.Name)
	case 4:
		p.header.Name = list[(i+1)%len(list)].header.Name
		return "renamed as " + p.header.Name
	case 5:
		p.header.Typeflag = pick(r, []byte{tar.TypeSymlink, tar.TypeLink, tar.TypeBlock, tar.TypeChar, tar.TypeFifo, tar.TypeDir})
		p.header.Linkname = pick(r, []string{"/etc/passwd", "../../../../etc/mender", "manifests", "."})
		return fmt.Sprintf("of type %c to %s", p.header.Typeflag, p.header.Linkname)
	default:
		p.header.Mode, p.header.Uid = 0o6777, 1<<30
		return "setuid"
	}
}

// changeHeaderBlock changes a header block of a tar, and its checksum with it.
func changeHeaderBlock(r *rand.Rand, p *part) string {
	b := slices.Clone(p.data)
	if p.packed {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return "nothing"
		}
		if b, err = io.ReadAll(z); err != nil {
			return "nothing"
		}
	}
	var blocks []int
	for at := 0; at+512 <= len(b); at += 512 {
		if string(b[at+257:at+262]) == "ustar" {
			blocks = append(blocks, at)
		}
	}
	at := pick(r, blocks)
	block := b[at : at+512]
	what := "size"
	switch r.IntN(5) {
	case 0:
		copy(block[124:136], "77777777777\x00")
	case 1: // a negative number, in base 256
		for i := 124; i < 136; i++ {
			block[i] = 0xff
		}
	case 2:
		block[124] = 0x80
		binary.BigEndian.PutUint64(block[128:136], 1<<62)
	case 3:
		block[156], what = pick(r, []byte("xgLKSVM7")), "type"
	default:
		block[r.IntN(512)], what = byte(r.Uint32()), "a byte"
	}
	copy(block[148:156], "        ")
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	if p.packed {
		b = compressed(b)
	}
	p.data, p.changed = b, false
	return fmt.Sprintf("%s in the header block at %d", what, at)
}

// hostile are values that no field expects.
var hostile = []any{
	nil, true, -1, 0, 1 << 62, 1e300, "", "..", "../../etc", "/etc/passwd", "a\x00b", "a\nb", "sha256:" + strings.Repeat("0", 64),
	strings.Repeat("f", 64), strings.Repeat("x", 100_000), []any{}, map[string]any{}, []any{[]any{[]any{}}}, "99.0", "linux/s390x",
	"mender-app.local/shop:" + strings.Repeat("a", 64), "*", "$(id)", "%s%n",
}

// changeJSON changes a value in a document, drops or adds a key, or writes a key
// twice.
func changeJSON(r *rand.Rand, p *part) string {
	var document any
	if json.Unmarshal(p.data, &document) != nil {
		return "nothing"
	}
	if text := string(p.data); r.IntN(6) == 0 && strings.HasPrefix(text, "{") {
		keys, _ := document.(map[string]any)
		if len(keys) > 0 {
			key := pick(r, sortedKeys(keys))
			value, _ := json.Marshal(pick(r, hostile)) // plain values
			p.data = fmt.Appendf(nil, "{%q:%s,%s", pick(r, []string{key, strings.ToUpper(key)}), value, text[1:])
			return "key " + key + " twice"
		}
	}
	what := ""
	document = changeValue(r, document, &what)
	p.data, _ = json.Marshal(document) // of plain values
	return what
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// changeValue picks a random value in a document and changes it. Text that is a
// document itself is changed inside.
func changeValue(r *rand.Rand, v any, what *string) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || r.IntN(8) == 0 {
			break
		}
		key := pick(r, sortedKeys(v))
		if r.IntN(5) == 0 {
			*what = "key " + key + " dropped"
			delete(v, key)
			return v
		}
		*what += key + "."
		v[key] = changeValue(r, v[key], what)
		return v
	case []any:
		if len(v) == 0 || r.IntN(8) == 0 {
			break
		}
		i := r.IntN(len(v))
		if r.IntN(5) == 0 {
			*what += "an element twice"
			return append(v, v[i])
		}
		v[i] = changeValue(r, v[i], what)
		return v
	case string:
		var inside any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inside) == nil {
			text, _ := json.Marshal(changeValue(r, inside, what)) // of plain values
			return string(text)
		}
	}
	value := pick(r, hostile)
	*what += fmt.Sprintf(" is %.40v", value)
	return value
}

// lines are lines of Compose files that reach outside of the application.
var lines = []string{
	"include: [/etc/passwd]", "include: [../../../../etc/mender/mender.conf]", "    env_file: /etc/shadow", "    image: ${HOME}",
	"    image: mender-app.local/shop:" + strings.Repeat("a", 64), "    build: /", "    extends: {file: /etc/passwd, service: web}",
	"    <<: *unknown", "a: &a [x, x]", "services:", "    image: [a, b]", "    scale: -1", "    healthcheck: {test: [CMD, /nothing], interval: 100ms, retries: 1}",
	"    labels: {mender-app.application: other}", "name: ../../etc", "name: other", "\tweb:", "    command: [\"/nothing\"]", "    configs: [{source: a, target: /b}]",
}

// changeLines adds, drops or doubles a line of a Compose file.
func changeLines(r *rand.Rand, p *part) string {
	list := slices.Collect(strings.Lines(string(p.data)))
	at := r.IntN(len(list))
	what := ""
	switch r.IntN(4) {
	case 0:
		what = "dropped"
		list = slices.Delete(list, at, at+1)
	case 1:
		what = "twice"
		list = slices.Insert(list, at, list[at])
	default:
		line := pick(r, lines)
		what = line
		list = slices.Insert(list, at, line+"\n")
	}
	p.data = []byte(strings.Join(list, ""))
	return fmt.Sprintf("line %d: %.60s", at, what)
}
