package artifact

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// section returns the rows of the first table under a heading of FORMAT.md,
// without its head.
func section(t *testing.T, doc, heading string) (rows [][]string) {
	t.Helper()
	_, body, ok := strings.Cut(doc, " "+heading+"\n")
	require.True(t, ok, heading)
	_, table, ok := strings.Cut(body, "|---")
	require.True(t, ok, heading)
	for line := range strings.Lines(table[strings.Index(table, "\n")+1:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), " | ")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " ")
		}
		rows = append(rows, cells)
	}
	require.NotEmpty(t, rows, heading)
	return rows
}

// firstColumn returns the first column without its quotes.
func firstColumn(t *testing.T, doc, heading string) (list []string) {
	for _, row := range section(t, doc, heading) {
		list = append(list, strings.Trim(row[0], "`"))
	}
	return list
}

func fields(v any) (list []string) {
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		list = append(list, name)
	}
	return list
}

// TestFormat compares FORMAT.md with the code.
func TestFormat(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	doc := string(b)
	require.ElementsMatch(t, fields(Metadata{}), firstColumn(t, doc, "Metadata fields"))
	require.ElementsMatch(t, fields(Made{}), firstColumn(t, doc, "Made fields"))
	require.ElementsMatch(t, fields(Component{}), firstColumn(t, doc, "Component fields"))
	require.ElementsMatch(t, fields(Variant{}), firstColumn(t, doc, "Variant fields"))
	require.ElementsMatch(t, fields(Content{}), firstColumn(t, doc, "Content fields"))
	require.ElementsMatch(t, fields(Layer{}), firstColumn(t, doc, "Layer fields"))
	require.ElementsMatch(t, fields(Base{}), firstColumn(t, doc, "Base fields"))
	require.ElementsMatch(t, fields(Sizes{}), firstColumn(t, doc, "Sizes fields"))
	require.Equal(t, Features, firstColumn(t, doc, "Features"))
	require.Equal(t, names.AlwaysEnv, firstColumn(t, doc, "Environment"))
	require.Equal(t, []string{memberURLNew, memberURLCurrent, memberSumNew, memberSumCurrent, memberImage, memberDelta, memberShared, "image.N.delta", memberDeepDelta},
		firstColumn(t, doc, "Members of an image"))
	require.Contains(t, doc, "Its payload has the files `"+ImagesPayload+"` and `"+ManifestsPayload+"`, in this order")

	// Values that the tables name in their text.
	value := func(heading, field string) string {
		for _, row := range section(t, doc, heading) {
			if row[0] == "`"+field+"`" {
				return row[len(row)-1]
			}
		}
		t.Fatalf("%s: no %s", heading, field)
		return ""
	}
	quoted := func(s string) (list []string) {
		for _, m := range regexp.MustCompile("`([a-z0-9.]+)`").FindAllStringSubmatch(s, -1) {
			list = append(list, m[1])
		}
		return list
	}
	require.Equal(t, []string{VersionReference, VersionCurrent}, quoted(value("Metadata fields", "version")))
	require.Equal(t, []string{string(FormatFull), string(FormatDelta), string(FormatVariants)}, quoted(value("Component fields", "format")))
	require.Contains(t, quoted(value("Component fields", "type")), ComponentImage)
	require.Subset(t, quoted(value("Layer fields", "encoding")), []string{string(EncodingVerbatim), string(EncodingDelta), string(EncodingOmitted), string(EncodingVariant)})

	limits := map[string]int64{
		"bytes of metadata":                                          MaxMetadata,
		"bytes of a text in metadata":                                maxText,
		"keys of an object in metadata":                              strictjson.MaxKeys,
		"bytes of a policy":                                          maxPolicy,
		"bytes of a statement in its envelope":                       MaxStatement,
		"bytes of revocations in their envelope":                     MaxRevocations,
		"components":                                                 maxComponents,
		"layers of a component":                                      image.MaxLayers,
		"bases of a component or variant":                            maxBases,
		"names in env":                                               maxEnv,
		"variants of a component":                                    maxVariants,
		"bytes of a config or manifest of an image":                  image.MaxConfig,
		"bytes of a text member of an image":                         maxTextMember,
		"members of images.tar.gz":                                   maxImagesMembers,
		"recipients":                                                 MaxRecipients,
		"bytes of a type of components":                              names.MaxType,
		"bytes of images.tar.gz, unpacked, where none are announced": DefaultMaxImages,
		"bytes of manifests.tar.gz, unpacked":                        MaxManifests,
		"files, directories and links in manifests.tar.gz":           MaxManifestEntries,
		"bytes of a member's name":                                   tarin.MaxName,
		"bytes of a part of a name in manifests.tar.gz":              names.MaxPathPart,
	}
	got := make(map[string]int64)
	for _, row := range section(t, doc, "Limits") {
		if row[0] == "signatures of a statement" { // package statement compares it
			continue
		}
		n, err := strconv.ParseInt(row[1], 10, 64)
		require.NoError(t, err)
		got[row[0]] = n
	}
	require.Equal(t, limits, got)
	require.Equal(t, tarin.MaxName, len(manifestsDir+"/")+names.MaxPath)
}
