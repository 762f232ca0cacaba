package encoder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/lz/parse"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// Only literals in bulk count, those of all objects together.
func TestEffort(t *testing.T) {
	of := func(op script.Op, size int64) *objectPlan {
		return &objectPlan{contents: []*target{{Place: script.Place{Size: size}, plan: &script.Content{Op: op}}}}
	}
	effort := func(plans ...*objectPlan) parse.Effort {
		size, _ := bulk(plans)
		return Standard.of(size)
	}
	require.Equal(t, parse.Thorough, effort())
	require.Equal(t, parse.Thorough, effort(of(script.Bulk, quickFrom-lz.Alignment), nil, of(script.Copy, 1<<40), of(script.Literal, 1<<20)))
	require.Equal(t, parse.Quick, effort(of(script.Bulk, quickFrom), nil, of(script.Bulk, 1)))
	require.Equal(t, parse.Swift, Quick.of(1))
	require.Equal(t, parse.Thorough, Best.of(2*quickFrom))
	require.Equal(t, parse.None, Stored.of(1))
}
