package fleet

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
)

// within2 requires that an estimate is at most twice what was measured, and at least half.
func within2(t *testing.T, what string, estimated time.Duration, measured float64) {
	t.Helper()
	t.Logf("%s: estimated %.1f s, measured %.1f s", what, estimated.Seconds(), measured)
	require.Less(t, estimated.Seconds(), 2*measured, what)
	require.Greater(t, estimated.Seconds(), measured/2, what)
}

// component has layers of sizes in MiB, all different from those of others.
func component(name string, mib ...float64) *artifact.Component {
	c := &artifact.Component{}
	for i, m := range mib {
		c.Layers = append(c.Layers, artifact.Layer{DiffID: image.Digest(fmt.Sprint(name, i)), Size: int64(m * (1 << 20))})
	}
	return c
}

// TestEstimateByKind: what encoding takes is known within a factor of two before anything of
// an image is made, for a base system with security updates and for programs that changed.
// The times are those of docs/BENCHMARKS.md, docs/benchmark.csv and docs/FLEET.md.
func TestEstimateByKind(t *testing.T) {
	for _, c := range []struct {
		pair     string
		layers   []float64 // in MiB
		measured float64   // seconds
	}{
		{"p06-mosquitto-armhf", []float64{92.9}, 4.96},
		{"p06-mosquitto-armhf over twenty bases, each", []float64{92.9}, 94. / 20},
		{"debian-base-arm64", []float64{90.4}, 6.14},
		{"go-mqtt-armv7", []float64{7.3}, 2.00},
		{"go-exporter-amd64", []float64{15.8}, 4.91},
		{"go-grpcurl-arm64", []float64{28.3}, 17.80},
	} {
		n, encoding := changed(component("new", c.layers...), component("old", c.layers...))
		_, encoding = (&samples{}).estimate(n, encoding)
		within2(t, c.pair, encoding, c.measured)
	}
}

// TestEstimateFromMade: the metadata of a delta says what making it took, within a factor of
// two. Instructions, sizes and times are those of docs/BENCHMARKS.md and docs/benchmark.csv.
func TestEstimateFromMade(t *testing.T) {
	for _, c := range []struct {
		pair     string
		decode   float64 // 10^9 instructions
		bytes    int64
		measured float64
	}{
		{"p03-nats-armv7", 2.83, 22_630, 1.60},
		{"go-mqtt-armv7", 1.69, 54_951, 2.00},
		{"debian-nginx-arm64", 12.80, 108_838, 4.56},
		{"squashed-redis-amd64", 18.32, 132_383, 9.32},
		{"compressed-docs-arm64", 14.68, 3_119_115, 15.21},
	} {
		var s samples
		v := artifact.Variant{Decode: int64(c.decode * 1e9), PayloadBytes: c.bytes}
		for range enough {
			s.add(&v, 100<<20)
		}
		size, encoding := s.estimate(100<<20, time.Hour)
		within2(t, c.pair, encoding, c.measured)
		require.InDelta(t, c.bytes, size, 5<<10)
	}
}

// TestEstimateOfOlderBases: a delta over the previous release alone does not make those over
// twenty releases look cheap. The times are those of testdata/fleet/history.csv.
func TestEstimateOfOlderBases(t *testing.T) {
	f, err := os.Open("../../testdata/fleet/history.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	// Between the measured ages lie straight lines.
	measured, lastAge, last := 0., 0., 0.
	for _, row := range rows[1:] {
		age, err := strconv.ParseFloat(row[0], 64)
		require.NoError(t, err)
		cpu, err := strconv.ParseFloat(row[2], 64)
		require.NoError(t, err)
		for at := lastAge + 1; at <= age; at++ {
			measured += last + (cpu-last)*(at-lastAge)/(age-lastAge)
		}
		lastAge, last = age, cpu
	}
	n, byKind := changed(component("new", 15), component("old", 15))
	for _, made := range []int{0, 1} {
		var s samples
		for range made {
			s.add(&artifact.Variant{Decode: 2_830_000_000, PayloadBytes: 22_706}, n)
		}
		_, encoding := s.estimate(n, byKind)
		within2(t, fmt.Sprintf("go-nats-armv7 over twenty releases, %d made", made), 20*encoding, measured)
	}
}
