package statement

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

func sum(s string) digest.Digest { return digest.Of([]byte(s)) }

// sample is the metadata of a whole artifact.
func sample() *artifact.Metadata {
	layer := artifact.Layer{DiffID: sum("layer"), Size: 100, Encoding: artifact.EncodingVerbatim, Bytes: 100}
	web := artifact.Component{
		URL: "web:2", Type: artifact.ComponentImage, Digest: sum("web"), Platform: "linux/arm/v7",
		ConfigSize: 10, Layers: []artifact.Layer{layer}, Format: artifact.FormatFull, PayloadBytes: 200,
	}
	db := web
	db.URL, db.Digest = "db:7", sum("db")
	return &artifact.Metadata{
		Version: artifact.VersionReference, ApplicationName: "shop", ApplicationVersion: "2.0", Orchestrator: "docker-compose",
		Platform: "linux/arm/v7", Env: map[string]string{"K8S_NAMESPACE": "prod"}, Components: []artifact.Component{web, db},
		Sizes: &artifact.Sizes{ImagesPayload: 1000}, Images: []string{sum("db").Hex(), sum("web").Hex()},
	}
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return key
}

func signed(t testing.TB, s *Statement, key crypto.Signer) []byte {
	t.Helper()
	b, err := Sign(s, mender.Options{Key: key})
	require.NoError(t, err)
	return b
}

// The text that is signed, for one statement.
func TestStatementText(t *testing.T) {
	b, err := Of(sample(), sum("manifests")).Encode()
	require.NoError(t, err)
	require.Equal(t, `{"application":"shop","version":"2.0","orchestrator":"docker-compose","platform":"linux/arm/v7","env":{"K8S_NAMESPACE":"prod"},"components":[`+
		`{"url":"db:7","type":"image","platform":"linux/arm/v7","digest":"`+string(sum("db"))+`"},`+
		`{"url":"web:2","type":"image","platform":"linux/arm/v7","digest":"`+string(sum("web"))+`"}],`+
		`"manifests":"`+string(sum("manifests"))+`"}`, string(b))
}

// What says how the release travels is not in the statement.
func TestStatementIsTheSame(t *testing.T) {
	whole := Of(sample(), sum("manifests"))
	m := sample()
	slices.Reverse(m.Components)
	m.Version, m.Requires, m.Sizes = artifact.VersionCurrent, []string{artifact.FeatureDelta}, nil
	m.Images = append(m.Images, sum("old").Hex())
	for i := range m.Components {
		c := &m.Components[i]
		c.Format, c.PayloadBytes, c.Bases = artifact.FormatDelta, 3, []artifact.Base{{URL: "web:1", Digest: sum("old")}}
		c.Layers = []artifact.Layer{{DiffID: sum("layer"), Size: 100, Encoding: artifact.EncodingOmitted}}
	}
	require.NoError(t, m.Validate())
	require.NoError(t, whole.Check(m))
	key := newKey(t)
	require.Equal(t, signed(t, whole, key), signed(t, Of(m, sum("manifests")), key))
}

// Every kind of key that signs artifacts signs statements; no other key of its
// kind verifies them.
func TestSign(t *testing.T) {
	rsaKey := func() crypto.Signer {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		return k
	}
	ecKey := func() crypto.Signer {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	for name, make := range map[string]func() crypto.Signer{
		"RSA": rsaKey, "ECDSA": ecKey, "Ed25519": func() crypto.Signer { return newKey(t) },
	} {
		t.Run(name, func(t *testing.T) {
			key, other := make(), make()
			want := Of(sample(), sum("manifests"))
			s, err := Parse(signed(t, want, key))
			require.NoError(t, err)
			require.Equal(t, *want, s.Statement)
			require.NoError(t, s.Check(sample()))
			require.True(t, s.SignedBy(key.Public()))
			require.False(t, s.SignedBy(other.Public()))

			// A key that is elsewhere: with its public half known, and not.
			elsewhere := func(digest []byte) ([]byte, error) {
				hash := crypto.Hash(crypto.SHA256)
				if name == "Ed25519" {
					hash = 0
				}
				return key.Sign(rand.Reader, digest, hash)
			}
			b, err := Sign(want, mender.Options{Sign: elsewhere, Public: key.Public()})
			require.NoError(t, err)
			s, err = Parse(b)
			require.NoError(t, err)
			require.True(t, s.SignedBy(key.Public()))
			b, err = Sign(want, mender.Options{Sign: elsewhere})
			require.NoError(t, err)
			s, err = Parse(b)
			require.NoError(t, err)
			require.True(t, s.SignedBy(key.Public()))
			_, err = Sign(want, mender.Options{Sign: elsewhere, Public: other.Public()})
			require.ErrorIs(t, err, mender.ErrKey)
		})
	}
	b, err := Sign(Of(sample(), sum("manifests")), mender.Options{})
	require.NoError(t, err)
	require.Nil(t, b)
}

// A signature of an artifact's manifest is none of a statement, and the other way
// round: the signed texts begin differently.
func TestSignatureIsForStatements(t *testing.T) {
	key := newKey(t)
	payload, err := Of(sample(), sum("manifests")).Encode()
	require.NoError(t, err)
	sig, err := mender.Options{Key: key}.Signature(payload)
	require.NoError(t, err)
	b, err := json.Marshal(envelope{PayloadType: PayloadType, Payload: payload, Sigs: []signature{{Sig: sig}}})
	require.NoError(t, err)
	s, err := Parse(b)
	require.NoError(t, err)
	require.False(t, s.SignedBy(key.Public()))
}

// A statement about something else than the artifact.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*artifact.Metadata)
		says   string
	}{
		"other application":  {func(m *artifact.Metadata) { m.ApplicationName = "till" }, `it is about application "shop", and the artifact has "till"`},
		"replayed":           {func(m *artifact.Metadata) { m.ApplicationVersion = "3.0" }, `it is about version "2.0", and the artifact has "3.0"`},
		"no version":         {func(m *artifact.Metadata) { m.ApplicationVersion = "" }, `version "2.0", and the artifact has ""`},
		"other orchestrator": {func(m *artifact.Metadata) { m.Orchestrator = "k8s" }, "orchestrator"},
		"other platform":     {func(m *artifact.Metadata) { m.Platform = "linux/arm64" }, "platform"},
		"environment":        {func(m *artifact.Metadata) { m.Env["K8S_NAMESPACE"] = "kube-system" }, "environment"},
		"no environment":     {func(m *artifact.Metadata) { m.Env = nil }, "environment"},
		"reboot":             {func(m *artifact.Metadata) { m.Reboot = true }, "reboot"},
		"policy":             {func(m *artifact.Metadata) { m.Policy = json.RawMessage("{}") }, "the policy"},
		"component's digest": {func(m *artifact.Metadata) { m.Components[0].Digest = sum("evil") }, "it lacks the component web:2"},
		"component's name":   {func(m *artifact.Metadata) { m.Components[0].URL = "web:3" }, "it lacks the component web:3"},
		"component's kind":   {func(m *artifact.Metadata) { m.Components[0].Platform = "linux/arm/v6" }, "it lacks the component web:2"},
		"component more":     {func(m *artifact.Metadata) { m.Components = append(m.Components, artifact.Component{URL: "x"}) }, "it lacks the component x"},
		"component less":     {func(m *artifact.Metadata) { m.Components = m.Components[1:] }, `component "web:2" that the artifact lacks`},
		"no components":      {func(m *artifact.Metadata) { m.Components = nil }, `component "db:7" that the artifact lacks`},
	} {
		m := sample()
		c.change(m)
		err := Of(sample(), sum("manifests")).Check(m)
		require.ErrorIs(t, err, ErrStatement, name)
		require.ErrorContains(t, err, c.says, name)
		require.NoError(t, Of(m, sum("manifests")).Check(m), name)
	}
}

// forge replaces a text in the payload of an envelope and leaves the signatures.
func forge(t testing.TB, b []byte, old, changed string) []byte {
	t.Helper()
	var e envelope
	require.NoError(t, json.Unmarshal(b, &e))
	payload := bytes.Replace(e.Payload, []byte(old), []byte(changed), 1)
	require.NotEqual(t, string(e.Payload), string(payload))
	e.Payload = payload
	out, err := json.Marshal(e)
	require.NoError(t, err)
	return out
}

// A text that was changed after it was signed is not signed.
func TestForged(t *testing.T) {
	key := newKey(t)
	b := signed(t, Of(sample(), sum("manifests")), key)
	for _, c := range [][2]string{
		{`"shop"`, `"till"`},
		{`"2.0"`, `"3.0"`},
		{sum("web").Hex(), sum("evil").Hex()},
		{sum("manifests").Hex(), sum("evil").Hex()},
		{`{"application"`, `{ "application"`},
	} {
		s, err := Parse(forge(t, b, c[0], c[1]))
		require.NoError(t, err, c)
		require.False(t, s.SignedBy(key.Public()), c)
	}
	// A signature of another statement, and no signature at all.
	var e, of3 envelope
	m := sample()
	m.ApplicationVersion = "3.0"
	require.NoError(t, json.Unmarshal(b, &e))
	require.NoError(t, json.Unmarshal(signed(t, Of(m, sum("manifests")), key), &of3))
	for _, sig := range [][]byte{of3.Sigs[0].Sig, nil, e.Sigs[0].Sig[1:], make([]byte, 64), make([]byte, 1<<16)} {
		e := e
		e.Sigs = []signature{{Sig: sig}}
		out, err := json.Marshal(e)
		require.NoError(t, err)
		s, err := Parse(out)
		require.NoError(t, err)
		require.False(t, s.SignedBy(key.Public()))
	}
	// One good signature among others is enough.
	e.Sigs = append(slices.Clone(of3.Sigs), e.Sigs...)
	out, err := json.Marshal(e)
	require.NoError(t, err)
	s, err := Parse(out)
	require.NoError(t, err)
	require.True(t, s.SignedBy(key.Public()))
}

func TestParseHostile(t *testing.T) {
	key := newKey(t)
	good := string(signed(t, Of(sample(), sum("manifests")), key))
	inside := func(old, changed string) string { return string(forge(t, []byte(good), old, changed)) }
	many := strings.Repeat(`{"sig":""},`, MaxSignatures)
	for name, c := range map[string]struct{ text, says string }{
		"nothing":              {"", "envelope"},
		"no JSON":              {"x", "envelope"},
		"a list":               {"[]", "envelope"},
		"null":                 {"null", "it is of the type"},
		"something after":      {good + "{}", "envelope"},
		"other type":           {strings.Replace(good, "v1+json", "v2+json", 1), "which this version of mender-app does not know"},
		"payload twice":        {strings.Replace(good, `"payload":`, `"payload":"e30=","payload":`, 1), `the key "payload" occurs twice`},
		"payload, other case":  {strings.Replace(good, `"payload":`, `"Payload":`, 1), `"payload" in another case`},
		"no base64":            {strings.Replace(good, `"payload":"`, `"payload":"*`, 1), "envelope"},
		"no signatures":        {good[:strings.Index(good, `,"signatures"`)] + "}", "it is not signed"},
		"too many signatures":  {strings.Replace(good, `"signatures":[`, `"signatures":[`+many, 1), "9 signatures"},
		"too large":            {strings.Replace(good, `"sig":"`, `"sig":"`+strings.Repeat("A", artifact.MaxStatement), 1), "larger than"},
		"empty statement":      {inside(`{"application":"shop"`, `{"orchestrator":""}{"x":""`), ""},
		"version twice":        {inside(`"version":"2.0"`, `"version":"2.0","version":"3.0"`), `the key "version" occurs twice`},
		"version, other case":  {inside(`"version":`, `"Version":`), `"version" in another case`},
		"digest twice":         {inside(`"digest":`, `"digest":"","digest":`), `the key "digest" occurs twice`},
		"unknown field":        {inside(`"version":`, `"deadline":1,"version":`), "deadline"},
		"unknown of reach":     {inside(`"version":`, `"reach":{"runs":1},"version":`), "runs"},
		"no time":              {inside(`"version":`, `"expires":1,"version":`), "Time"},
		"expires alone":        {inside(`"version":`, `"expires":"2027-01-01T00:00:00Z","version":`), "only one of issued and expires"},
		"issued alone":         {inside(`"version":`, `"issued":"2027-01-01T00:00:00Z","version":`), "only one of issued and expires"},
		"expired when issued":  {inside(`"version":`, `"issued":"2027-01-02T00:00:00Z","expires":"2027-01-01T00:00:00Z","version":`), "expires before it was issued"},
		"unknown of component": {inside(`"url":`, `"size":1,"url":`), "size"},
		"no application":       {inside(`"shop"`, `""`), "application"},
		"bad application":      {inside(`"shop"`, `"../shop"`), "application"},
		"bad manifests":        {inside(`"manifests":"sha256:`, `"manifests":"sha256:0`), "malformed digest"},
	} {
		_, err := Parse([]byte(c.text))
		require.ErrorIs(t, err, ErrStatement, name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "\n", name)
		require.Less(t, len(err.Error()), 400, name)
	}
	_, err := Parse([]byte(good))
	require.NoError(t, err)
}

// The message that is signed, as DSSE's specification has it for its example.
func TestMessage(t *testing.T) {
	e := envelope{PayloadType: "http://example.com/HelloWorld", Payload: []byte("hello world")}
	require.Equal(t, "DSSEv1 29 http://example.com/HelloWorld 11 hello world", string(e.message()))
}

func FuzzParse(f *testing.F) {
	key := newKey(f)
	good := signed(f, Of(sample(), sum("manifests")), key)
	f.Add(good)
	f.Add(forge(f, good, `"version":"2.0"`, `"version":"2.0","version":"3.0"`))
	f.Add([]byte(`{"payloadType":"` + PayloadType + `","payload":"e30=","signatures":[{"sig":""}]}`))
	f.Add([]byte("{}"))
	full := Of(sample(), sum("manifests"))
	full.Reach, full.Issued, full.Expires = ReachToWrite(sampleSpec()), time.Unix(1<<30, 0).UTC(), time.Unix(1<<31, 0).UTC()
	f.Add(signed(f, full, newKey(f)))
	var e envelope
	require.NoError(f, json.Unmarshal(good, &e))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrStatement)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		if s.SignedBy(key.Public()) { // nobody makes another text that is signed
			require.Equal(t, e.Payload, s.Payload)
		}
		// A reader that takes keys as they are written finds the same.
		var exact map[string]any
		require.NoError(t, json.Unmarshal(s.Payload, &exact))
		require.Equal(t, s.Application, exact["application"])
		// What was read can be written and read again.
		again, err := Parse(signed(t, &s.Statement, key))
		require.NoError(t, err)
		want, err := s.Encode()
		require.NoError(t, err)
		got, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.True(t, again.SignedBy(key.Public()))
	})
}

func ExampleParse() {
	m := &artifact.Metadata{ApplicationName: "shop", ApplicationVersion: "1.0", Orchestrator: "docker-compose", Platform: "linux/amd64"}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	b, err := Sign(Of(m, digest.Of(nil)), mender.Options{Key: key})
	if err != nil {
		panic(err)
	}
	s, err := Parse(b)
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Application, s.Version, s.SignedBy(key.Public()), s.Check(m))
	// Output: shop 1.0 true <nil>
}

// TestFormat compares artifact/FORMAT.md with the code.
func TestFormat(t *testing.T) {
	doc, err := os.ReadFile("../FORMAT.md")
	require.NoError(t, err)
	for heading, v := range map[string]any{"Statement fields": Statement{}, "Statement component fields": Component{}, "Statement reach fields": Reach{}, "Revocations fields": Revocations{}} {
		_, text, ok := strings.Cut(string(doc), "### "+heading+"\n")
		require.True(t, ok, heading)
		text, _, _ = strings.Cut(text, "\n#")
		var want, got []string
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			want = append(want, name)
		}
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		require.Equal(t, want, got, "%s, in this order", heading)
	}
	require.Contains(t, string(doc), "`"+PayloadType+"`")
	require.Contains(t, string(doc), "`"+RevocationsType+"`")
	require.Contains(t, string(doc), fmt.Sprintf("| signatures of a statement | %d |", MaxSignatures))
}
