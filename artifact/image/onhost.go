package image

import (
	"encoding/json"
	"fmt"
	"strings"
)

// OpenOnHost is OpenArchive for build hosts, which fill in the platform that a config
// lacks. The Platform of such an image is that of its entry in the index, as far as the
// config does not name another; it may be incomplete. WithPlatform makes it an image for
// devices, which refuse it as it is.
func OpenOnHost(path string) (*Archive, error) { return openArchive(path, true) }

// NewOnHost is New for the images that OpenOnHost reads. listed is the platform in the
// index, if any.
func NewOnHost(config []byte, layers []Layer, listed Platform, tags ...string) (*Image, error) {
	c, p, err := onHost(config, listed)
	if err != nil {
		return nil, err
	}
	return newImage(config, c, p, layers, tags)
}

// PlatformOnHost is the platform that NewOnHost gives an image.
func PlatformOnHost(config []byte, listed Platform) (Platform, error) {
	_, p, err := onHost(config, listed)
	return p, err
}

func onHost(config []byte, listed Platform) (*Config, Platform, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, Platform{}, err
	}
	p := c.Platform().Or(listed)
	if err := p.check(); err != nil {
		return nil, Platform{}, fmt.Errorf("%w: platform in the index: %w", ErrFormat, err)
	}
	return c, p, nil
}

// check refuses a platform whose text is malformed, as far as it names one.
func (p Platform) check() error {
	_, err := ParsePlatform(p.Or(Platform{OS: "linux", Arch: "amd64"}).String())
	return err
}

// WithPlatform returns the image with the platform p in its config. The config, and so its
// digest, is the same for each run, and no manifest of the archive names it.
func WithPlatform(img *Image, p Platform) (*Image, error) {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(img.Config, &config); err != nil {
		return nil, fmt.Errorf("%w: image config: %w", ErrFormat, err)
	}
	if config == nil { // null
		config = map[string]json.RawMessage{}
	}
	for key := range config {
		// encoding/json, and so an engine, reads "OS" as os too
		if strings.EqualFold(key, "os") || strings.EqualFold(key, "architecture") || strings.EqualFold(key, "variant") {
			delete(config, key)
		}
	}
	for key, text := range map[string]string{"os": p.OS, "architecture": p.Arch, "variant": p.Variant} {
		if text == "" {
			continue
		}
		b, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		config[key] = b
	}
	b, err := json.Marshal(config) // sorts the keys
	if err != nil {
		return nil, err
	}
	named, err := New(b, img.Layers, img.Tags...)
	if err != nil {
		return nil, err
	}
	named.refs = img.refs
	return named, nil
}
