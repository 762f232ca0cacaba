package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// What app-gen refuses is what the sub-modules use.
func TestOwnDomain(t *testing.T) { require.Equal(t, imagestore.OwnDomain, source.OwnDomain) }
