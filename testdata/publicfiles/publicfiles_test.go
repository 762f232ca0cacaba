package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Projects with what people write in Compose files are on a device what plain Compose makes
// of them, keep their data, leave nothing, and change as check says.
func TestKindsOfProjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes projects through their whole life; left out of -short")
	}
	bed.Require(t)
	projects, err := find([]string{"projects"})
	require.NoError(t, err)
	require.Len(t, projects, 3)
	b, err := newBench(false)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	for i, p := range projects {
		r, err := b.project("kind"+string(rune('a'+i)), p)
		require.NoError(t, err, p)
		require.Positive(t, r.keeps, r.line())
		r.project, r.keeps = p, 0
		require.Equal(t, row{project: p}, r)
		require.Equal(t, p+": as plain Compose", r.line())
	}
}

func TestTable(t *testing.T) {
	text := table([]row{
		{project: "a", keeps: 2},
		{project: "b", refused: "no", plain: "no"},
		{project: "c", refused: "it has\n build"},
		{project: "d", failed: "oh"},
		{project: "e", keeps: 1, wrong: []string{"web"}},
	})
	require.Contains(t, text, "| plain Compose runs | 4 |\n| of these app-gen accepts | 3 |\n| of these deployed | 2 |")
	require.Contains(t, text, "| 2 of 3 |")
	require.Contains(t, text, "refused: c: it has build\n")
	list, err := find([]string{filepath.Join("projects", "kinds")})
	require.NoError(t, err)
	require.Equal(t, []string{"projects/kinds"}, list)
}
