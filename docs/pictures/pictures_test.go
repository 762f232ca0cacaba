package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pictures beside this program are what it draws from the documents as they are.
func TestPicturesAreCurrent(t *testing.T) {
	drawn, err := pictures("..")
	require.NoError(t, err)
	for name, want := range drawn {
		have, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "run `go run -C docs/pictures .`")
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
	}
}

const list = `# Benchmarks

## Deep deltas

- p03: a Go server
- moved: <elsewhere>

    go test

## Others
`

const table = `pair,tool,KiB,encode CPU s
nothing,idle on arm/v7,0.0,0.00
p03-nats,delta,40.0,3.53
p03-nats,"delta, decoded on arm/v7",39.0,3.30
p03-nats,xdelta3 whole,1149.8,1.97
p03-nats,xdelta3 by layer,1127.0,1.97
p03-nats,bsdiff by layer,200.0,7.14
p03-nats,hdiffz -m,1.0,7.14
p03-nats,HDiffPatch by layer,100.0,7.14
moved,delta,5.0,0.1
moved,zstd -19 --patch-from,10.0,0.1
a layer of 1024 MiB,delta,6483.3,67.34
`

// Of each pair, the bars are those of the table: of several ways to call a tool the
// smallest, and none of a tool or a pair that has nothing to compare with.
func TestReadPairs(t *testing.T) {
	pairs, err := readPairs(list, strings.NewReader(table))
	require.NoError(t, err)
	require.Equal(t, []pair{
		{name: "p03-nats", about: "a Go server", ours: 40, peers: []size{{"HDiffPatch", 100}, {"bsdiff", 200}, {"xdelta3", 1127}}},
		{name: "moved", about: "<elsewhere>", ours: 5, peers: []size{{"zstd", 10}}},
	}, pairs)

	drawn, err := sizes(pairs)
	require.NoError(t, err)
	picture := string(drawn)
	require.Contains(t, picture, "40 % of HDiffPatch")
	require.Contains(t, picture, "50 % of zstd")
}

func TestReadPairsRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no table":  "",
		"no pair":   "pair,tool,KiB\nnothing,idle,0.0\n",
		"no number": "pair,tool,KiB\np03,delta,?\n",
		"no KiB":    "pair,tool\np03,delta\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readPairs(list, strings.NewReader(text))
			require.Error(t, err)
		})
	}
}
