package inspect

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator/manifests"
)

// described reads an artifact that has the metadata and no payload. The tests add
// the rest to its description.
func described(t testing.TB, meta string) *Description {
	t.Helper()
	var b bytes.Buffer
	spec := mender.Spec{Name: "shop-1", DeviceTypes: []string{"box"}, PayloadType: mender.PayloadTypeApp, MetaData: []byte(meta)}
	require.NoError(t, mender.Write(&b, spec, mender.Options{Compression: mender.None}))
	path := filepath.Join(t.TempDir(), "a.mender")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	d, err := Artifact(t.Context(), path, nil, t.TempDir())
	require.NoError(t, err)
	return d
}

const plain = `{"version": "1.0", "application_name": "shop", "orchestrator": "docker-compose", "platform": "linux/arm/v7"}`

func written(t testing.TB, d *Description) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, ArtifactPage(&b, d))
	return b.String()
}

// What an artifact does not say is not made up.
func TestNothingIsMadeUp(t *testing.T) {
	d := described(t, plain)
	page := written(t, d)
	require.Contains(t, page, "does not say how much space, memory or time it takes")
	require.Contains(t, page, "It has no images.")
	require.NotContains(t, page, "NaN")

	d.Images = []ImageDescription{{URL: "web:1", Format: "reference delta", Current: "web:0", Bytes: 10}}
	page = written(t, d)
	require.Contains(t, page, "The artifact does not say how large its images are.")
	require.Contains(t, page, "reference delta over web:0")

	d.Images[0].Layers = []LayerDescription{{DiffID: digest.Of(nil), Size: 5000, Encoding: "delta", Bytes: -1}}
	page = written(t, d)
	require.Contains(t, page, `>?</td>`, "bytes that are not known")

	d.Signature = Verified
	require.Contains(t, written(t, d), "signed, and verified")
	d.Signature = Unverified
	require.Contains(t, written(t, d), "signed; not verified")
}

// hostile is what would become an element, an attribute or another text if it were
// not escaped.
const hostile = "<script src=http://x.example/></script>\"onload='f()' \u202egnp.exe\x00\x1b[31m\xff</style>-->{{.Policy}}"

// largeDescription has n of everything, and hostile names.
func largeDescription(t testing.TB, n int) *Description {
	d := described(t, plain)
	word := hostile + strings.Repeat(`"`, 500)
	words := slices.Repeat([]string{word}, n)
	id := digest.Of(nil)
	d.Name, d.Group, d.Path = word, word, word
	d.DeviceTypes, d.DependsNames, d.ClearsProvides, d.Scripts, d.Warnings = words, words, words, words, words
	d.Provides, d.Depends = map[string]string{}, map[string][]string{}
	layers := slices.Repeat([]LayerDescription{{DiffID: id, Size: 1 << 40, Encoding: word, Bytes: 1 << 39}}, n)
	bases := slices.Repeat([]artifact.Base{{URL: word, Digest: id}}, n)
	for i := range n {
		d.Provides[fmt.Sprint(i)], d.Depends[fmt.Sprint(i)] = word, []string{word}
		d.Files = append(d.Files, FileDescription{Name: word, SHA256: word})
		d.Manifests = append(d.Manifests, ManifestFile{Path: word, Link: word})
		d.Reach = append(d.Reach, manifests.Reach{By: word, Outside: words})
		d.Images = append(d.Images, ImageDescription{
			URL: word, Type: word, Also: words, Digest: id, Platform: word, Format: "variants", Current: word, Bases: bases,
			Layers: layers, Largest: []LargeFile{{Path: word, Layer: id, Bytes: 1}},
			Variants: slices.Repeat([]VariantDescription{{Format: word, Bases: bases, Layers: layers}}, min(n, 40)),
		})
	}
	return d
}

func largeDifference(n int) *Difference {
	word := hostile + strings.Repeat(`"`, 500)
	d := &Difference{Old: word, New: word, Warnings: slices.Repeat([]string{word}, n)}
	d.Manifests = slices.Repeat([]FileChange{{Change: Changed, Path: word, Old: 1, New: 2}}, n)
	packages := slices.Repeat([]PackageChange{{Change: Changed, Type: word, Name: word, Old: word, New: word}}, n)
	d.Images = slices.Repeat([]ImageDifference{{Change: Changed, Old: word, New: word + "2", Packages: packages, Files: d.Manifests}}, n)
	return d
}

// pagesOf are both kinds of pages with n of everything.
func pagesOf(t testing.TB, n int) map[string]string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, DifferencePage(&b, largeDifference(n)))
	return map[string]string{"artifact": written(t, largeDescription(t, n)), "difference": b.String()}
}

// Whatever an artifact names stays text: the page has the elements of page.html, and
// no character that is not seen.
func TestHostileNamesStayText(t *testing.T) {
	tag := regexp.MustCompile(`<([^<>]*)>`)
	ours := map[string]bool{}
	for _, m := range tag.FindAllStringSubmatch(regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(pageHTML, ""), -1) {
		name, _, _ := strings.Cut(m[1], " ")
		ours[name] = true
	}
	require.True(t, ours["svg"] && ours["/table"] && !ours["script"])
	value := regexp.MustCompile(`^[\w/!-]+(?: [\w:-]+(?:="[^"<>]*")?)*/?$`)
	for kind, page := range pagesOf(t, 3) {
		page = strings.ReplaceAll(page, pageCSS, "")
		found := tag.FindAllStringSubmatch(page, -1)
		require.Greater(t, len(found), 50, kind)
		for _, m := range found {
			name, _, _ := strings.Cut(m[1], " ")
			require.True(t, ours[name], "%s: an element of another kind: %s", kind, m[0])
			require.Regexp(t, value, m[1], kind)
			require.NotContains(t, m[1], "x.example", "%s: in an attribute", kind)
		}
		require.Equal(t, strings.Count(page, "<"), len(found), kind)
		require.Contains(t, page, "&lt;script src=http://x.example/&gt;", kind)
		require.Contains(t, page, `\u202egnp.exe\x00\x1b[31m\xff`, kind)
		for _, r := range page {
			require.True(t, unicode.IsPrint(r) || r == '\n', "%s: %q", kind, r)
		}
	}
}

// A page is bounded, whole, and says what it leaves out.
func TestPagesAreBounded(t *testing.T) {
	for kind, page := range pagesOf(t, 600) {
		require.Less(t, len(page), 8<<20, kind)
		require.True(t, strings.HasSuffix(strings.TrimSpace(page), "</html>"), kind)
		require.Regexp(t, `and \d+ more, which --json names`, page, kind)
		t.Logf("%s: %d bytes", kind, len(page))
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "Grüße 日本": "Grüße 日本", "a\nb\tc": `a\nb\tc`, "a\u202eb": `a\u202eb`, "\xc3(": `\xc3(`, "": "", "'\"": "'\"",
		"0123456789012345678901234": "01234567890123456789…", "0123456789012345678ü": "0123456789012345678…",
	} {
		require.Equal(t, want, visible(in, 20), "%q", in)
	}
}

// A bar never leaves its place, and what is there is seen.
func TestBars(t *testing.T) {
	require.Equal(t, &bar{Whole: 1000, Part: 500, Class: "delta"}, newBar("delta", 50, 100, 100))
	require.Equal(t, &bar{Whole: 1000, Part: 2, Class: "delta"}, newBar("delta", 1, 1<<60, 1<<60))
	require.Equal(t, &bar{Whole: 0, Part: 1000, Class: "delta"}, newBar("delta", 1<<62, 0, 5))
	require.Nil(t, newBar("delta", -1, 5, 5), "not known")
	require.Nil(t, newBar("delta", 0, 0, 0))
}
