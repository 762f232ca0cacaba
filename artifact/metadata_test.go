package artifact

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// reference is metadata as the shell reference writes it (app-gen of
// app-update-module, with and without its k8s options and --skip-images).
var reference = []string{
	`{"application_name":"myapp0","orchestrator":"docker-compose","platform":"linux/amd64","version":"1.0", "images":["` + hex("a") + `","` + hex("b") + `"]}`,
	`{"application_name":"-app_1"}`,
	`{"application_name":"my-app","orchestrator":"k8s","platform":"linux/arm/v7","version":"1.0", "images":["` + hex("a") + `"],"env":{"K8S_CTR_ADDRESS":"/run/k3s/containerd/containerd.sock","K8S_NAMESPACE":""}}`,
	`{"application_name":"a","orchestrator":"docker-compose","platform":"linux/arm64","version":"1.0"}`,
}

func hex(s string) string            { return digest.Of([]byte(s)).Hex() }
func digestOf(s string) image.Digest { return digest.Of([]byte(s)) }

func sample() *Metadata {
	return &Metadata{
		Version: VersionCurrent, ApplicationName: "web", Orchestrator: "docker-compose", Platform: "linux/arm/v7",
		Images:             []string{hex("a"), hex("b")},
		Env:                map[string]string{"K8S_NAMESPACE": "prod"},
		ApplicationVersion: "2.0",
		Components: []Component{{
			URL: "docker.io/library/web:2", Type: ComponentImage, Digest: digestOf("b"), Platform: "linux/arm/v7", ConfigSize: 1000,
			Layers: []Layer{{digestOf("l1"), 4096, EncodingOmitted, 0, 0}, {digestOf("l2"), 10240, EncodingDelta, 200, 0}, {digestOf("l3"), 2048, EncodingVerbatim, 900, 0}},
			Format: FormatDelta, Bases: []Base{{URL: "docker.io/library/web:1", Digest: digestOf("a")}}, PayloadBytes: 2100,
		}},
		Sizes:    &Sizes{ImagesPayload: 6000, ManifestsPayload: 4096, Manifests: 100, Temp: 1, Engine: 2},
		Requires: []string{FeatureDelta},
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	b, err := sample().Encode()
	require.NoError(t, err)
	require.NotContains(t, string(b), "\n")
	again, err := sample().Encode()
	require.NoError(t, err)
	require.Equal(t, b, again)
	m, warnings, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, sample(), m)

	// Unknown fields on every level are ignored.
	s := strings.ReplaceAll(string(b), `\"url\":`, `\"from_the_future\":{\"x\":[1]},\"url\":`)
	require.Contains(t, s, "from_the_future")
	s = strings.Replace(s, "{", `{"hooks":["x"],`, 1)
	m, _, err = ParseMetadata([]byte(s))
	require.NoError(t, err)
	require.Equal(t, sample(), m)
}

func TestMetadataReference(t *testing.T) {
	for i, s := range reference {
		m, warnings, err := ParseMetadata([]byte(s))
		if i == 1 {
			require.ErrorIs(t, err, ErrMetadata)
			continue
		}
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Nil(t, m.Sizes)
	}
}

func TestMetadataEnv(t *testing.T) {
	m, warnings, err := ParseMetadata([]byte(`{"application_name":"a","orchestrator":"k8s","platform":"linux/arm64","version":"1.0","env":{"LD_PRELOAD":"/x.so","PATH":"/","K8S_NAMESPACE":"n"}}`))
	require.NoError(t, err)
	require.Equal(t, []string{
		`metadata: env is dropped: the name "LD_PRELOAD" means something to other programs`,
		`metadata: env is dropped: the name "PATH" means something to other programs`,
	}, warnings)
	require.Equal(t, map[string]string{"K8S_NAMESPACE": "n"}, m.Env)
}

func TestMetadataRequires(t *testing.T) {
	// The rest of it need not be in a form that is known.
	_, _, err := ParseMetadata([]byte(`{"requires":["delta/1","delta/9","quantum/1"],"components":"see elsewhere"}`))
	var rerr *RequiresError
	require.ErrorAs(t, err, &rerr)
	require.Equal(t, []string{"delta/9", "quantum/1"}, rerr.Features)
	require.ErrorContains(t, err, "delta/9, quantum/1")
}

// A policy goes through as it is, and demands a reader that knows policies.
func TestMetadataPolicy(t *testing.T) {
	m := sample()
	m.Policy, m.Requires = json.RawMessage(`{"managed":true}`), append(m.Requires, FeaturePolicy)
	b, err := m.Encode()
	require.NoError(t, err)
	got, _, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Equal(t, m, got)

	for name, change := range map[string]func(){
		"not required": func() { m.Requires = []string{FeatureDelta} },
		"null":         func() { m.Policy = json.RawMessage("null") },
		"a list":       func() { m.Policy = json.RawMessage("[]") },
		"too large":    func() { m.Policy = json.RawMessage(`{"x":"` + strings.Repeat("x", maxPolicy) + `"}`) },
	} {
		m.Policy, m.Requires = json.RawMessage("{}"), []string{FeatureDelta, FeaturePolicy}
		change()
		require.ErrorIs(t, m.Validate(), ErrMetadata, name)
	}
}

// A statement goes through as it is. It demands nothing of a reader.
func TestMetadataStatement(t *testing.T) {
	m := sample()
	m.Statement = json.RawMessage(`{"payload":"e30=","signatures":[{"sig":"AA=="}]}`)
	b, err := m.Encode()
	require.NoError(t, err)
	require.Contains(t, string(b), `"statement":"{\"payload\":\"e30=\"`)
	got, _, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Equal(t, m, got)

	for name, text := range map[string]string{
		"null": "null", "a list": "[]", "a text": `"x"`, "too large": `{"x":"` + strings.Repeat("x", MaxStatement) + `"}`,
	} {
		m.Statement = json.RawMessage(text)
		require.ErrorIs(t, m.Validate(), ErrMetadata, name)
	}
}

// A component of any other type than image is a file.
func TestMetadataFiles(t *testing.T) {
	file := func() *Metadata {
		m := sample()
		m.Requires = append(m.Requires, FeatureFiles)
		m.Components = []Component{{
			URL: "/usr/bin/tool", Type: "deb-package", Digest: digestOf("2"), Platform: "linux/arm64", Size: 10,
			Format: FormatDelta, Bases: []Base{{URL: "/usr/bin/tool", Digest: digestOf("1"), Size: 9}}, PayloadBytes: 5,
		}}
		return m
	}
	m := file()
	b, err := m.Encode()
	require.NoError(t, err)
	got, _, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Equal(t, m, got)
	for name, c := range map[string]struct {
		change func(m *Metadata, c *Component)
		says   string
	}{
		"not required":  {func(m *Metadata, _ *Component) { m.Requires = []string{FeatureDelta} }, FeatureFiles},
		"a config":      {func(_ *Metadata, c *Component) { c.ConfigSize = 1 }, "config"},
		"no base":       {func(_ *Metadata, c *Component) { c.Bases = nil }, "without a base"},
		"two bases":     {func(_ *Metadata, c *Component) { c.Bases = append(c.Bases, c.Bases[0]) }, "2 bases"},
		"negative size": {func(_ *Metadata, c *Component) { c.Size = -1 }, "negative"},
		"shared content": {func(m *Metadata, c *Component) {
			m.Requires = append(m.Requires, FeatureVariants)
			b := c.Bases
			b[0].DiffIDs = []image.Digest{b[0].Digest}
			c.Format, c.Bases, c.Variants = FormatVariants, nil, []Variant{{Format: FormatDelta, Bases: b, Shared: true}}
		}, "shared content"},
	} {
		m := file()
		c.change(m, &m.Components[0])
		require.ErrorContains(t, m.Validate(), c.says, name)
	}
	// A whole file is also for the shell reference, which knows no features.
	m = file()
	c := &m.Components[0]
	c.Format, c.Bases, m.Version, m.Requires = FormatFull, nil, VersionReference, nil
	require.NoError(t, m.Validate())
}

// One image under several names is a component under each.
func TestMetadataSeveralNames(t *testing.T) {
	m := sample()
	for _, url := range []string{"worker:2", "cron:2"} {
		c := m.Components[0]
		c.URL = url
		m.Components = append(m.Components, c)
	}
	b, err := m.Encode()
	require.NoError(t, err)
	got, warnings, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, m, got)
	m.Components[2].URL = "worker:2"
	require.ErrorIs(t, m.Validate(), ErrMetadata, "with any of them")
}

func TestMetadataHostile(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "blank": " \n", "null": "null\n", "a list": "[]", "a string": `"x"`, "not JSON": "{", "two documents": "{}{}",
		"wrong type": `{"application_name":5}`, "empty": "{}", "too large": `{"x":"` + strings.Repeat("x", MaxMetadata) + `"}`,
		"requires is no list": `{"requires":5}`, "control character in requires": `{"requires":["a\nb"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseMetadata([]byte(in))
			require.ErrorIs(t, err, ErrMetadata)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 300)
		})
	}
	for _, c := range []struct {
		name string
		edit func(*Metadata)
		says string
	}{
		{"version", func(m *Metadata) { m.Version = "2.0" }, "version"},
		{"version", func(m *Metadata) { m.Version = "1.x" }, "version"},
		{"no version", func(m *Metadata) { m.Version = "" }, "version"},
		{"no name", func(m *Metadata) { m.ApplicationName = "" }, "application_name"},
		{"dot-dot", func(m *Metadata) { m.ApplicationName = ".." }, "application_name"},
		{"dot-dot inside", func(m *Metadata) { m.ApplicationName = "a..b" }, "application_name"},
		{"slash", func(m *Metadata) { m.ApplicationName = "a/b" }, "application_name"},
		{"NUL", func(m *Metadata) { m.ApplicationName = "a\x00b" }, "application_name"},
		{"newline", func(m *Metadata) { m.ApplicationName = "a\n" }, "application_name"},
		{"option", func(m *Metadata) { m.ApplicationName = "-rf" }, "application_name"},
		{"hidden", func(m *Metadata) { m.ApplicationName = ".a" }, "application_name"},
		{"long", func(m *Metadata) { m.ApplicationName = strings.Repeat("a", 64) }, "application_name"},
		{"not ASCII", func(m *Metadata) { m.ApplicationName = "ä" }, "application_name"},
		{"orchestrator", func(m *Metadata) { m.Orchestrator = "../../bin/sh" }, "orchestrator"},
		{"no orchestrator", func(m *Metadata) { m.Orchestrator = "" }, "orchestrator"},
		{"platform", func(m *Metadata) { m.Platform = "linux" }, "platform"},
		{"platform", func(m *Metadata) { m.Platform = "linux/../x" }, "platform"},
		{"no platform", func(m *Metadata) { m.Platform = "" }, "platform"},
		{"application version", func(m *Metadata) { m.ApplicationVersion = "1\x1b[2J" }, "application_version"},
		{"images", func(m *Metadata) { m.Images = []string{"../x"} }, "images"},
		{"env", func(m *Metadata) { m.Env["PATH"] = "/" }, `"PATH" means something to other programs`},
		{"env value", func(m *Metadata) { m.Env["K8S_NAMESPACE"] = "a\nb" }, "K8S_NAMESPACE"},
		{"URL", func(m *Metadata) { m.Components[0].URL = "a b" }, "URL"},
		{"no URL", func(m *Metadata) { m.Components[0].URL = "" }, "URL"},
		{"URL is an option", func(m *Metadata) { m.Components[0].URL = "--privileged" }, "URL"},
		{"long URL", func(m *Metadata) { m.Components[0].URL = strings.Repeat("a", 513) }, "513 bytes"},
		{"type", func(m *Metadata) { m.Components[0].Type = "VM image" }, `other than lower-case letters`},
		{"no type", func(m *Metadata) { m.Components[0].Type = "" }, "type is empty"},
		{"a file with layers", func(m *Metadata) {
			m.Requires, m.Components[0].Type = append(m.Requires, FeatureFiles), "vm"
		}, "the layers of an image"},
		{"an image with a size", func(m *Metadata) { m.Components[0].Size = 1 }, "size of a file"},
		{"a base of an image with a size", func(m *Metadata) { m.Components[0].Bases[0].Size = 1 }, "as only files have"},
		{"digest", func(m *Metadata) { m.Components[0].Digest = "sha256:x" }, "digest"},
		{"component platform", func(m *Metadata) { m.Components[0].Platform = "" }, "platform"},
		{"format", func(m *Metadata) { m.Components[0].Format = "zip" }, "format"},
		{"full with omitted layer", func(m *Metadata) { m.Components[0].Format = FormatFull }, "in a full image"},
		{"diffID", func(m *Metadata) { m.Components[0].Layers[0].DiffID = "x" }, "layer 0"},
		{"encoding", func(m *Metadata) { m.Components[0].Layers[0].Encoding = "x" }, "encoding"},
		{"negative size", func(m *Metadata) { m.Components[0].Layers[0].Size = -1 }, "sizes"},
		{"overflow", func(m *Metadata) { m.Components[0].Layers[0].Size = math.MaxInt64 }, "sizes"},
		{"overflowing sum", func(m *Metadata) {
			m.Sizes.Temp, m.Sizes.Engine, m.Sizes.Manifests = math.MaxInt64/17, math.MaxInt64/17, math.MaxInt64/17
		}, "sizes"},
		{"huge config", func(m *Metadata) { m.Components[0].ConfigSize = image.MaxConfig + 1 }, "config"},
		{"base", func(m *Metadata) { m.Components[0].Bases[0].URL = "" }, "base"},
		{"base digest", func(m *Metadata) { m.Components[0].Bases[0].Digest = "" }, "base"},
		{"recipients not required", func(m *Metadata) { m.Recipients = []string{"age1x"} }, FeatureSecrets},
		{"a recipient of another kind", func(m *Metadata) {
			m.Recipients, m.Requires = []string{"ssh-ed25519 AAAA"}, []string{FeatureDelta, FeatureSecrets}
		}, "not an age recipient"},
		{"a recipient with a control character", func(m *Metadata) {
			m.Recipients, m.Requires = []string{"age1\n"}, []string{FeatureDelta, FeatureSecrets}
		}, "not an age recipient"},
		{"too many recipients", func(m *Metadata) {
			m.Recipients, m.Requires = make([]string, MaxRecipients+1), []string{FeatureDelta, FeatureSecrets}
		}, "257 of them"},
		{"delta not required", func(m *Metadata) { m.Requires = nil }, "requires"},
		{"the same component twice", func(m *Metadata) { m.Components = append(m.Components, m.Components[0]) }, "twice under this name"},
		{"another image of the same digest", func(m *Metadata) {
			c := m.Components[0]
			c.URL, c.Layers = "worker:2", c.Layers[1:]
			m.Components = append(m.Components, c)
		}, `a different image under the name "docker.io/library/web:2"`},
		{"too many layers", func(m *Metadata) { m.Components[0].Layers = make([]Layer, image.MaxLayers+1) }, "layers"},
		{"too many components", func(m *Metadata) { m.Components = make([]Component, maxComponents+1) }, "components"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sample()
			c.edit(m)
			err := m.Validate()
			require.ErrorIs(t, err, ErrMetadata)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
			_, err = m.Encode()
			require.ErrorIs(t, err, ErrMetadata)
			if c.name == "env" {
				return // dropped when read
			}
			b, err := json.Marshal(m)
			require.NoError(t, err)
			_, _, err = ParseMetadata(b)
			require.ErrorIs(t, err, ErrMetadata)
		})
	}
}

// TestAmbiguousMetadata: a key that occurs twice, or in another case than the
// format has it, is refused by name on every level, in a string or not.
func TestAmbiguousMetadata(t *testing.T) {
	m := sample()
	m.Version, m.Env = VersionCurrent, map[string]string{"K8S_NAMESPACE": "shop"}
	m.Policy, m.Requires = json.RawMessage(`{"managed":true}`), append(m.Requires, FeaturePolicy)
	inStrings, err := m.Encode()
	require.NoError(t, err)
	plain, err := json.Marshal(metadataFields(*m))
	require.NoError(t, err)
	for _, c := range []struct{ old, new, says string }{
		{`"application_name":`, `"application_name":"other","application_name":`, `the key "application_name" occurs twice`},
		{`"application_name":`, `"Application_Name":`, `the key "Application_Name" is "application_name" in another case`},
		{`"requires":`, `"requires":[],"requires":`, `the key "requires" occurs twice`},
		{`"requires":`, `"REQUIRES":`, `the key "REQUIRES" is "requires" in another case`},
		{`"components":`, `"Components":`, `the key "Components" is "components" in another case`},
		{`"components":`, `"Components":[],"components":`, `the keys "Components" and "components" differ only in case`},
		{`"version":"1.1"`, `"version":"1.1","unknown":{"a":1,"a":2}`, `the key "a" occurs twice`},
		{`"digest":`, `"digest":"","digest":`, `the key "digest" occurs twice`},
		{`"digest":`, `"Digest":`, `the key "Digest" is "digest" in another case`},
		{`"diff_id":`, `"diff_ID":`, `the key "diff_ID" is "diff_id" in another case`},
		{`"engine":`, `"engine":0,"engine":`, `the key "engine" occurs twice`},
		{`"engine":`, `"Engine":`, `the key "Engine" is "engine" in another case`},
		{`"K8S_NAMESPACE":`, `"k8s_namespace":"x","K8S_NAMESPACE":`, `the keys "k8s_namespace" and "K8S_NAMESPACE" differ only in case`},
		{`"managed":`, `"managed":false,"managed":`, `the key "managed" occurs twice`},
		{`"managed":`, `"Managed":false,"managed":`, `the keys "Managed" and "managed" differ only in case`},
	} {
		quote := func(s string) string { return strings.ReplaceAll(s, `"`, `\"`) }
		for _, document := range []string{string(inStrings), string(plain)} {
			old, changed := c.old, c.new
			if !strings.Contains(document, old) {
				old, changed = quote(old), quote(changed)
			}
			ambiguous := strings.Replace(document, old, changed, 1)
			require.NotEqual(t, document, ambiguous, c.old)
			_, _, err := ParseMetadata([]byte(ambiguous))
			require.ErrorIs(t, err, ErrMetadata, ambiguous)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

func FuzzMetadata(f *testing.F) {
	for _, s := range reference {
		f.Add([]byte(s))
	}
	b, err := sample().Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("null"))
	f.Add([]byte(strings.Replace(string(b), `{"version":`, `{"Version":"1.0","version":`, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, err := ParseMetadata(b)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.NoError(t, strictjson.Check(b))
		// A reader that takes keys as they are written finds the same.
		var exact map[string]any
		require.NoError(t, json.Unmarshal(b, &exact))
		require.Equal(t, m.ApplicationName, exact["application_name"])
		require.Equal(t, m.Orchestrator, exact["orchestrator"])
		out, err := m.Encode()
		require.NoError(t, err)
		again, warnings, err := ParseMetadata(out)
		require.NoError(t, err)
		require.Empty(t, warnings)
		out2, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(out), string(out2))
	})
}
