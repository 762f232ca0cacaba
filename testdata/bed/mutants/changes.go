package mutants

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

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
		ways = append(ways, changeCompose, changeCompose)
	}
	if strings.HasSuffix(p.header.Name, ".yaml") {
		ways = append(ways, changeKubernetes, changeKubernetes)
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

// composeLines are lines of Compose files that reach outside of the application.
var composeLines = []string{
	"include: [/etc/passwd]", "include: [../../../../etc/mender/mender.conf]", "    env_file: /etc/shadow", "    image: ${HOME}",
	"    image: mender-app.local/shop:" + strings.Repeat("a", 64), "    build: /", "    extends: {file: /etc/passwd, service: web}",
	"    <<: *unknown", "a: &a [x, x]", "services:", "    image: [a, b]", "    scale: -1", "    healthcheck: {test: [CMD, /nothing], interval: 100ms, retries: 1}",
	"    labels: {mender-app.application: other}", "name: ../../etc", "name: other", "\tweb:", "    command: [\"/nothing\"]", "    configs: [{source: a, target: /b}]",
}

// kubernetesLines are lines of Kubernetes manifests that reach outside of the
// application, or pose as what is not the application's.
var kubernetesLines = []string{
	"metadata: {name: mender-app-other}", "metadata: {name: web, namespace: kube-system}", "metadata: {name: web, namespace: default}",
	"metadata: {name: web, labels: {mender-app.io/app: other}}", "metadata: {name: web, labels: {mender-app.io/inventory: other}}",
	"  labels: {mender-app.io/app: other}", "  annotations: {mender-app.io/allow-pull: \"true\"}", "  finalizers: [example.com/never]",
	"kind: ClusterRole", "kind: Namespace", "kind: List", "kind: Secret", "apiVersion: x.example/v1", "---", "a: &a [x, x]", "    <<: *unknown",
	"        image: nowhere:1", "        imagePullPolicy: Always", "      hostNetwork: true", "  replicas: -1", "\tspec:",
}

func changeCompose(r *rand.Rand, p *part) string    { return changeLines(r, p, composeLines) }
func changeKubernetes(r *rand.Rand, p *part) string { return changeLines(r, p, kubernetesLines) }

// changeLines drops or doubles a line of a manifest, or adds one of others.
func changeLines(r *rand.Rand, p *part, others []string) string {
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
		line := pick(r, others)
		what = line
		list = slices.Insert(list, at, line+"\n")
	}
	p.data = []byte(strings.Join(list, ""))
	return fmt.Sprintf("line %d: %.60s", at, what)
}
