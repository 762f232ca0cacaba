//go:build keep

// Package keep pins the modules that the first packages will import, so that
// go.mod changes once while they are written. It goes away with the last of them.
package keep

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/compose-spec/compose-go/v2/cli"
	_ "github.com/cyphar/filepath-securejoin"
	_ "github.com/docker/docker/client"
	_ "github.com/gabstv/go-bsdiff/pkg/bsdiff"
	_ "github.com/gofrs/flock"
	_ "github.com/google/go-containerregistry/pkg/authn"
	_ "github.com/google/go-containerregistry/pkg/registry"
	_ "github.com/google/go-containerregistry/pkg/v1/daemon"
	_ "github.com/google/go-containerregistry/pkg/v1/empty"
	_ "github.com/google/go-containerregistry/pkg/v1/layout"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/google/go-containerregistry/pkg/v1/remote"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/cobra/doc"
	_ "github.com/stretchr/testify/require"
	_ "github.com/vbatts/tar-split/tar/asm"
	_ "github.com/vbauerster/mpb/v8"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gopkg.in/yaml.v3"
	_ "pgregory.net/rapid"
)
