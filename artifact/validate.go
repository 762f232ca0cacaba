package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// Limits of the metadata. They are far above the needs of real applications, and
// bound the memory that the metadata takes.
const (
	MaxMetadata  = 4 << 20 // bytes of the JSON
	MaxStatement = 1 << 20 // bytes
	// MaxRevocations bounds a list of revocations in its envelope, in bytes.
	MaxRevocations = 64 << 10
	maxText        = 512 // of a URL, a version, an env value
	maxComponents  = 1024
	maxBases       = 64
	maxImages      = 2 * maxComponents
	maxVariants    = 32
	maxRequires    = 64
	maxEnv         = 64
	maxSources     = 16
	maxPolicy      = 64 << 10 // bytes
	MaxRecipients  = 256
)

// Features are the features that this reader has. It refuses an artifact that
// requires others.
var Features = []string{FeatureDelta, FeatureVariants, FeaturePolicy, FeatureSecrets, FeatureFiles, FeatureContent, FeatureReach, FeatureExpiry}

// ParseMetadata reads and validates metadata. warnings are lines for the log: they
// name the variables that were dropped because no artifact may set them. The error
// is an ErrMetadata, or a *RequiresError if the artifact requires a feature that
// this reader does not have.
func ParseMetadata(b []byte) (m *Metadata, warnings []string, err error) {
	if len(b) > MaxMetadata {
		return nil, nil, fmt.Errorf("%w: larger than %d bytes", ErrMetadata, MaxMetadata)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 || string(b) == "null" {
		return nil, nil, fmt.Errorf("%w: there is none; an App Artifact is made by app-gen", ErrMetadata)
	}
	if b[0] != '{' {
		return nil, nil, fmt.Errorf("%w: not a JSON object", ErrMetadata)
	}
	// Check the required features first: a reader without them may not understand
	// the other fields.
	var first struct {
		Requires        []string        `json:"requires"`
		ApplicationName json.RawMessage `json:"application_name"`
	}
	if err := strictjson.Unmarshal(b, &first); err != nil {
		return nil, nil, notJSON(err)
	}
	if err := checkRequires(first.Requires); err != nil {
		var needs *RequiresError
		var application string
		if errors.As(err, &needs) && json.Unmarshal(first.ApplicationName, &application) == nil && names.CheckNew(application) == nil {
			needs.Application = application
		}
		return nil, nil, err
	}
	m = new(Metadata)
	if err := strictjson.Unmarshal(b, m); err != nil {
		return nil, nil, notJSON(err)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		if err := names.CheckEnv(name); err != nil {
			warnings = append(warnings, fmt.Sprintf("metadata: env is dropped: %v", err))
			delete(m.Env, name)
		}
	}
	if err := m.Validate(); err != nil {
		return nil, nil, err
	}
	return m, warnings, nil
}

// notJSON makes an error of encoding/json one line.
func notJSON(err error) error {
	if errors.Is(err, strictjson.ErrKey) { // which names a key, in one line
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return fmt.Errorf("%w: not JSON of the right form: %s", ErrMetadata, clip.Text(err.Error()))
}

func checkRequires(names []string) error {
	if len(names) > maxRequires {
		return fmt.Errorf("%w: requires: %d features", ErrMetadata, len(names))
	}
	var unknown []string
	for _, name := range names {
		if err := checkText("requires", name); err != nil {
			return err
		}
		if !slices.Contains(Features, name) {
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		return &RequiresError{Features: unknown}
	}
	return nil
}

// Encode validates m and returns it as JSON in one line. The same metadata gives
// the same bytes.
func (m *Metadata) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	b, err := marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxMetadata {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrMetadata, MaxMetadata)
	}
	return b, nil
}

// Validate checks every field as ParseMetadata does. A variable that no artifact
// may set is an error here.
func (m *Metadata) Validate() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrMetadata, field, fmt.Sprintf(format, args...))
	}
	if !versionKnown(m.Version) {
		return bad("version", "%q is not one of 1.x", clip.Text(m.Version))
	}
	if err := names.CheckNew(m.ApplicationName); err != nil {
		return bad("application_name", "%v", err)
	}
	if err := names.CheckNew(m.Orchestrator); err != nil {
		return bad("orchestrator", "%v; want the name of a sub-module, as in docker-compose", err)
	}
	if _, err := image.ParsePlatform(m.Platform); err != nil {
		return bad("platform", "%s", err)
	}
	if err := checkText("application_version", m.ApplicationVersion); err != nil {
		return err
	}
	if len(m.Images) > maxImages {
		return bad("images", "%d of them", len(m.Images))
	}
	for _, s := range m.Images {
		// The shell reference writes the image ID of its engine, or "none".
		if _, err := digest.FromHex(s); err != nil && s != "none" && s != "" {
			return bad("images", "%s", err)
		}
	}
	if len(m.Env) > maxEnv {
		return bad("env", "%d names", len(m.Env))
	}
	for name, value := range m.Env {
		if err := names.CheckEnv(name); err != nil {
			return bad("env", "%v", err)
		}
		if err := checkText("env "+name, value); err != nil {
			return err
		}
	}
	if err := checkRequires(m.Requires); err != nil {
		return err
	}
	if m.Policy != nil {
		if len(m.Policy) > maxPolicy || m.Policy[0] != '{' {
			return bad("policy", "not a JSON object of at most %d bytes", maxPolicy)
		}
		if !slices.Contains(m.Requires, FeaturePolicy) {
			return bad("requires", "there is a policy, so it must name %q", FeaturePolicy)
		}
	}
	if m.Statement != nil && (len(m.Statement) > MaxStatement || m.Statement[0] != '{') {
		return bad("statement", "not a JSON object of at most %d bytes", MaxStatement)
	}
	if m.Revocations != nil && (len(m.Revocations) > MaxRevocations || m.Revocations[0] != '{') {
		return bad("revocations", "not a JSON object of at most %d bytes", MaxRevocations)
	}
	if err := CheckSources(m.ContentSources); err != nil {
		return bad("content_sources", "%s", err)
	}
	if err := m.checkRecipients(); err != nil {
		return bad("recipients", "%s", err)
	}
	if len(m.Components) > maxComponents {
		return bad("components", "%d of them", len(m.Components))
	}
	var sum total
	byDigest := make(map[image.Digest][]*Component)
	for i := range m.Components {
		c := &m.Components[i]
		if err := c.validate(&sum); err != nil {
			return fmt.Errorf("%w: components: %q: %w", ErrMetadata, clip.Text(c.URL), err)
		}
		if c.Format != FormatFull && !slices.Contains(m.Requires, FeatureDelta) {
			return bad("requires", "there are deltas, so it must name %q", FeatureDelta)
		}
		if c.Format == FormatVariants && !slices.Contains(m.Requires, FeatureVariants) {
			return bad("requires", "there are variants, so it must name %q", FeatureVariants)
		}
		if c.apart() && !slices.Contains(m.Requires, FeatureContent) {
			return bad("requires", "there is content outside of the payload, so it must name %q", FeatureContent)
		}
		if c.IsFile() && !slices.Contains(m.Requires, FeatureFiles) && m.Version != VersionReference {
			return bad("requires", "there are files among the components, so it must name %q", FeatureFiles)
		}
		if err := c.furtherName(byDigest[c.Digest]); err != nil {
			return fmt.Errorf("%w: components: %q: %w", ErrMetadata, clip.Text(c.URL), err)
		}
		byDigest[c.Digest] = append(byDigest[c.Digest], c)
	}
	if m.Sizes != nil {
		s := m.Sizes
		sum.add(s.ImagesPayload, s.ManifestsPayload, s.Manifests, s.Temp, s.Memory, s.Engine, s.Decode)
	}
	if sum.bad {
		return bad("sizes", "negative or far too large")
	}
	return nil
}

func (m *Metadata) checkRecipients() error {
	if len(m.Recipients) > MaxRecipients {
		return fmt.Errorf("%d of them", len(m.Recipients))
	}
	for _, r := range m.Recipients {
		if rest, ok := strings.CutPrefix(r, "age1"); !ok || len(r) > maxRecipient || strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			return fmt.Errorf("%q is not an age recipient", clip.Text(r))
		}
	}
	if len(m.Recipients) > 0 && !slices.Contains(m.Requires, FeatureSecrets) {
		return fmt.Errorf("requires must name %q", FeatureSecrets)
	}
	return nil
}

// maxRecipient bounds a recipient, in bytes; those of X25519 have 62.
const maxRecipient = 128

// CheckSources checks the URLs that content is fetched from. What is fetched is compared
// with its digest, so plain http will do.
func CheckSources(list []string) error {
	if len(list) > maxSources {
		return fmt.Errorf("%d of them", len(list))
	}
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil || len(s) > maxText || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%q is not a URL https://HOST/DIRECTORY without user and query", clip.Text(input.Source(s).String()))
		}
	}
	return nil
}

// versionKnown accepts every version 1.x: Requires says what a reader must know
// beyond 1.0.
func versionKnown(v string) bool {
	minor, ok := strings.CutPrefix(v, "1.")
	if !ok || minor == "" || len(minor) > 4 {
		return false
	}
	return strings.Trim(minor, "0123456789") == ""
}

func (c *Component) validate(sum *total) error {
	if err := CheckURL(c.URL); err != nil {
		return err
	}
	if err := names.CheckType(c.Type); err != nil {
		return err
	}
	if err := c.Digest.Check(); err != nil {
		return err
	}
	if _, err := image.ParsePlatform(c.Platform); err != nil {
		return err
	}
	if c.ConfigSize > image.MaxConfig {
		return fmt.Errorf("a config of %d bytes", c.ConfigSize)
	}
	if len(c.Layers) > image.MaxLayers {
		return fmt.Errorf("%d layers", len(c.Layers))
	}
	sum.add(c.ConfigSize, c.PayloadBytes, c.Size)
	if err := c.validateFile(sum); err != nil {
		return err
	}
	for i, l := range c.Layers {
		if err := l.DiffID.Check(); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		if (l.Encoding == EncodingVariant) != (c.Format == FormatVariants) {
			return fmt.Errorf("layer %d: encoding %q in an image of the format %q", i, clip.Text(string(l.Encoding)), clip.Text(string(c.Format)))
		}
		sum.add(l.Size, l.Bytes, l.Unpacked)
	}
	if c.Format == FormatVariants {
		return c.validateVariants(sum)
	}
	if len(c.Variants) > 0 {
		return fmt.Errorf("variants in an image of the format %q", clip.Text(string(c.Format)))
	}
	return checkForm(c.Format, c.Bases, len(c.Layers), func(i int) Encoding { return c.Layers[i].Encoding })
}

// validateFile checks what only files have, and what only images have.
func (c *Component) validateFile(sum *total) error {
	lists := [][]Base{c.Bases}
	for _, v := range c.Variants {
		lists = append(lists, v.Bases)
		if v.Shared && c.IsFile() {
			return fmt.Errorf("shared content, which only images have")
		}
	}
	for _, list := range lists {
		for _, b := range list {
			sum.add(b.Size)
			if b.Size != 0 && !c.IsFile() {
				return fmt.Errorf("the base %q has a size, as only files have", clip.Text(b.URL))
			}
		}
		if c.IsFile() && len(list) > 1 {
			return fmt.Errorf("a delta of a file with %d bases", len(list))
		}
	}
	switch {
	case !c.IsFile() && c.Size != 0:
		return fmt.Errorf("an image with the size of a file")
	case !c.IsFile():
		return nil
	case c.ConfigSize != 0 || len(c.Layers) > 0:
		return fmt.Errorf("a component of the type %q with the config or the layers of an image", clip.Text(c.Type))
	case c.Format == FormatDelta && len(c.Bases) == 0:
		return fmt.Errorf("a delta of a file without a base")
	}
	return nil
}

// validateVariants checks each variant, and the order of their formats.
func (c *Component) validateVariants(sum *total) error {
	if len(c.Bases) > 0 {
		return fmt.Errorf("bases outside of the variants")
	}
	if len(c.Variants) == 0 || len(c.Variants) > maxVariants {
		return fmt.Errorf("%d variants", len(c.Variants))
	}
	for i, v := range c.Variants {
		sum.add(v.PayloadBytes, v.Temp, v.Memory, v.Engine, v.Decode)
		if len(v.Layers) != len(c.Layers) {
			return fmt.Errorf("variant %d: %d layers of %d", i+1, len(v.Layers), len(c.Layers))
		}
		for _, l := range v.Layers {
			sum.add(l.Bytes)
		}
		if err := checkForm(v.Format, v.Bases, len(v.Layers), func(n int) Encoding { return v.Layers[n].Encoding }); err != nil {
			return fmt.Errorf("variant %d: %w", i+1, err)
		}
		if f := v.Content; f != nil {
			if sum.add(f.Size); f.Size == 0 {
				return fmt.Errorf("variant %d: empty content", i+1)
			}
			if err := f.Digest.Check(); err != nil {
				return fmt.Errorf("variant %d: content: %w", i+1, err)
			}
		}
		switch {
		case (v.Content != nil) != c.apart():
			return fmt.Errorf("variant %d: some variants are in the payload, and others are not", i+1)
		case v.Content != nil && c.IsFile():
			return fmt.Errorf("variant %d: content outside of the payload, which only images have", i+1)
		case v.Format == FormatFull && i != len(c.Variants)-1:
			return fmt.Errorf("variant %d: a full image that is not the last variant", i+1)
		case v.Format == FormatDelta && len(v.Bases) == 0 && c.IsFile():
			return fmt.Errorf("variant %d: a delta of a file without a base", i+1)
		case v.Format == FormatDelta && len(v.Bases) == 0 && i != len(c.Variants)-1:
			return fmt.Errorf("variant %d: a delta without a base that is not the last variant", i+1)
		case v.Shared && (len(v.Bases) == 0 || len(v.Bases[0].DiffIDs) == 0):
			return fmt.Errorf("variant %d: shared content, and no base with layers to make it from", i+1)
		}
	}
	return nil
}

// checkForm checks the form of an image: whole, or as a delta against bases.
func checkForm(format Format, bases []Base, layers int, encoding func(int) Encoding) error {
	if format != FormatFull && format != FormatDelta {
		return fmt.Errorf("format %q is not known", clip.Text(string(format)))
	}
	for i := range layers {
		switch e := encoding(i); e {
		case EncodingVerbatim:
		case EncodingDelta, EncodingOmitted:
			if format != FormatDelta {
				return fmt.Errorf("layer %d: %s in a full image", i, e)
			}
		default:
			return fmt.Errorf("layer %d: encoding %q is not known", i, clip.Text(string(e)))
		}
	}
	if len(bases) > maxBases {
		return fmt.Errorf("%d bases", len(bases))
	}
	if len(bases) > 0 && format != FormatDelta {
		return fmt.Errorf("a full image with bases")
	}
	for _, b := range bases {
		if err := CheckURL(b.URL); err != nil {
			return fmt.Errorf("base: %w", err)
		}
		if err := b.Digest.Check(); err != nil {
			return fmt.Errorf("base: %w", err)
		}
		if len(b.DiffIDs) > image.MaxLayers {
			return fmt.Errorf("base: %d layers", len(b.DiffIDs))
		}
		for _, d := range b.DiffIDs {
			if err := d.Check(); err != nil {
				return fmt.Errorf("base: %w", err)
			}
		}
	}
	return nil
}

// furtherName checks a component that has the same image as an earlier one: only
// the names may differ.
func (c *Component) furtherName(same []*Component) error {
	for i, s := range same {
		if c.URL == s.URL {
			return fmt.Errorf("its image occurs twice under this name")
		}
		if i > 0 {
			continue // the same as the first
		}
		if c.Type != s.Type || c.Platform != s.Platform || c.ConfigSize != s.ConfigSize || c.Size != s.Size || c.Format != s.Format ||
			c.PayloadBytes != s.PayloadBytes || !slices.Equal(c.Layers, s.Layers) ||
			!reflect.DeepEqual(c.Bases, s.Bases) || !reflect.DeepEqual(c.Variants, s.Variants) {
			return fmt.Errorf("it names a different image under the name %q", clip.Text(s.URL))
		}
	}
	return nil
}

// total adds up sizes and notes an invalid one. Its bound lets callers add some of
// the sizes once more without an overflow.
type total struct {
	sum int64
	bad bool
}

func (t *total) add(sizes ...int64) {
	const most = math.MaxInt64 / 16
	for _, n := range sizes {
		if n < 0 || n > most || t.sum > most-n {
			t.bad = true
			return
		}
		t.sum += n
	}
}
