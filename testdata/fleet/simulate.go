package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// What is assumed of the fleet; docs/FLEET.md says where the numbers come from.
const (
	devices   = 1_000_000
	ageMonths = 19.2 // mean age of what a device has
	every     = 3    // months between releases
	perSite   = 20   // devices that share a line
	line      = 1e6  // of a site, bits a second
	egress    = 1e9  // of the web server, bits a second
	poll      = 1800 // seconds between a device's looks for updates
	shards    = 8
)

// platforms have these shares of the devices.
var platforms = []struct {
	name  string
	share float64
}{{"linux/arm/v7", 0.5}, {"linux/arm64", 0.4}, {"linux/amd64", 0.1}}

// device is one of the fleet.
type device struct {
	platform int
	back     int // how many releases it is back; 0: more than any base
	asks     int // the second in which it begins
}

func fleet() []device {
	random := rand.New(rand.NewPCG(1, 1))
	list := make([]device, devices)
	for i := range list {
		d := &list[i]
		for at := random.Float64() - platforms[0].share; at >= 0 && d.platform < len(platforms)-1; at -= platforms[d.platform].share {
			d.platform++
		}
		// The sum of two exponentials: a gamma distribution of shape 2.
		age := -ageMonths / 2 * (math.Log(1-random.Float64()) + math.Log(1-random.Float64()))
		if d.back = 1 + int(age/every); d.back > bases {
			d.back = 0
		}
		d.asks = random.IntN(poll)
	}
	return list
}

// file is what a device fetches. Files of the same name are the same.
type file struct {
	name  string
	bytes float64
}

// way is a way to bring a release to the fleet.
type way struct {
	name    string
	files   func(platform, back int) []file
	mirrors bool    // a site keeps what its devices fetch
	stored  float64 // bytes
	cpu     float64 // seconds
}

func ways(images []*image) ([]way, error) {
	of := make([][]*image, len(platforms))
	for n, p := range platforms {
		for _, i := range images {
			if i.platform == p.name {
				of[n] = append(of[n], i)
			}
		}
	}
	ways := []way{{name: "whole images"}, {name: "layers alone"}, {name: "one artifact for several bases"}, {name: "by reference"}, {name: "by reference, with site mirrors", mirrors: true}}
	whole := make([]file, len(platforms))
	several := make([]file, len(platforms))
	small := make([]file, len(platforms))
	for n, list := range of {
		size, err := smallArtifact(list)
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			whole[n].bytes += i.gzip
			several[n].bytes += i.whole
			ways[2].cpu += i.wholeCPU
			for k := 1; k <= bases; k++ {
				several[n].bytes += i.delta[k]
				ways[2].cpu += i.cpu[k]
			}
		}
		whole[n].name, several[n].name = "whole "+platforms[n].name, "several "+platforms[n].name
		small[n] = file{"small " + platforms[n].name, float64(size)}
		ways[0].stored += whole[n].bytes
		ways[2].stored += several[n].bytes
		ways[3].stored += several[n].bytes + small[n].bytes
	}
	ways[1].stored = ways[0].stored
	ways[3].cpu, ways[4].cpu, ways[4].stored = ways[2].cpu, ways[2].cpu, ways[3].stored
	ways[0].files = func(p, _ int) []file { return whole[p : p+1] }
	ways[2].files = func(p, _ int) []file { return several[p : p+1] }
	ways[1].files = func(p, back int) (list []file) {
		for _, i := range of[p] {
			f := file{"layers " + i.name, i.layers}
			if back == 0 {
				f = file{"layers, all " + i.name, i.gzip}
			}
			list = append(list, f)
		}
		return list
	}
	ways[3].files = func(p, back int) []file {
		list := []file{small[p]}
		for _, i := range of[p] {
			f := file{fmt.Sprint(i.name, " ", back), i.delta[back]}
			if back == 0 {
				f.bytes = i.whole
			}
			list = append(list, f)
		}
		return list
	}
	ways[4].files = ways[3].files
	return ways, nil
}

// smallArtifact is the size of an artifact without its images, in bytes.
func smallArtifact(images []*image) (int64, error) {
	count := 0
	digests := func() digest.Digest { count++; return digest.Of(fmt.Append(nil, images[0].platform, count)) }
	m := &artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: "shop", Orchestrator: "docker-compose", Platform: images[0].platform,
		Requires:       []string{artifact.FeatureDelta, artifact.FeatureVariants, artifact.FeatureContent},
		ContentSources: []string{"https://downloads.example/content"}, Sizes: &artifact.Sizes{Engine: 1 << 20, Temp: 1 << 20},
	}
	compose := "services:\n"
	for n, i := range images {
		url := fmt.Sprintf("registry.example/shop/%s:21", i.name)
		compose += fmt.Sprintf("  service-%d:\n    image: %s\n", n, url)
		c := artifact.Component{URL: url, Type: artifact.ComponentImage, Digest: digests(), Platform: i.platform, ConfigSize: 1000, Format: artifact.FormatVariants, PayloadBytes: int64(i.whole)}
		for range 2 {
			c.Layers = append(c.Layers, artifact.Layer{DiffID: digests(), Size: int64(i.gzip), Encoding: artifact.EncodingVariant})
		}
		m.Images = append(m.Images, c.Digest.Hex())
		for k := range bases + 1 {
			size := int64(i.delta[k])
			if k == 0 {
				size = int64(i.whole)
			}
			v := artifact.Variant{Format: artifact.FormatDelta, PayloadBytes: size, Content: &artifact.Content{Digest: digests(), Size: size}, Temp: int64(i.gzip), Memory: 24 << 20, Engine: int64(i.gzip), Decode: int64(i.gzip)}
			for range c.Layers {
				v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: artifact.EncodingDelta, Bytes: size / 2})
			}
			if k > 0 {
				v.Bases = []artifact.Base{{URL: fmt.Sprintf("registry.example/shop/%s:%d", i.name, k), Digest: digests()}}
				m.Images = append(m.Images, v.Bases[0].Digest.Hex())
			}
			c.Variants = append(c.Variants, v)
		}
		slices.Reverse(c.Variants) // the one without a base is the last
		m.Components = append(m.Components, c)
	}
	slices.Sort(m.Images)
	text, err := m.Encode()
	if err != nil {
		return 0, err
	}
	var manifests bytes.Buffer
	if _, err := artifact.WriteManifests(&manifests, fstest.MapFS{"docker-compose.yml": {Data: []byte(compose)}}); err != nil {
		return 0, err
	}
	var out bytes.Buffer
	err = mender.Write(&out, mender.Spec{
		Name: "shop-21", DeviceTypes: []string{"box"}, PayloadType: mender.PayloadTypeApp, MetaData: text,
		Provides: map[string]string{"data-partition.shop.version": "21"}, ClearsProvides: []string{"data-partition.shop.*"},
		Files: []mender.File{{Name: artifact.ManifestsPayload, Size: int64(manifests.Len()), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(manifests.Bytes())), nil }}},
	}, mender.Options{Compression: mender.Gzip})
	return int64(out.Len()), err
}

// result is what a rollout does.
type result struct {
	bytes    float64 // that the server sends
	requests int     // to it
	distinct int     // files
	hours    float64 // until the last device has the release
	peak     int     // requests in one second
	busiest  float64 // bits a second that are asked for at most
}

// roll brings a release to a share of the sites.
func roll(w way, list []device, share float64) result {
	var r result
	names := map[string]bool{}
	files := make([][][]file, len(platforms))
	for p := range files {
		for back := range bases + 1 {
			files[p] = append(files[p], w.files(p, back))
		}
	}
	const seconds = 1 << 21
	asked := make([]int32, seconds)
	change := make([]float64, seconds+1) // of the rate that is asked for
	for at := 0; at+perSite <= int(float64(len(list))*share); at += perSite {
		site := slices.Clone(list[at : at+perSite])
		slices.SortFunc(site, func(a, b device) int { return a.asks - b.asks })
		has := map[string]bool{}
		free := 0.0 // when the line is
		for _, d := range site {
			for _, f := range files[d.platform][d.back] {
				if w.mirrors && has[f.name] {
					continue
				}
				has[f.name], names[f.name] = true, true
				r.requests++
				r.bytes += f.bytes
				begin := max(free, float64(d.asks))
				free = begin + f.bytes*8/line
				asked[int(begin)]++
				change[int(begin)] += line * (1 - (begin - math.Floor(begin)))
				change[int(begin)+1] += line * (begin - math.Floor(begin))
				change[int(free)] -= line * (1 - (free - math.Floor(free)))
				change[int(free)+1] -= line * (free - math.Floor(free))
			}
		}
	}
	r.distinct = len(names)
	rate, waiting, last := 0.0, 0.0, 0
	for t := range seconds {
		rate += change[t]
		r.busiest = max(r.busiest, rate)
		r.peak = max(r.peak, int(asked[t]))
		waiting = max(0, waiting+rate-egress)
		if rate > 1 || waiting > 1 { // bits a second: what is below comes of rounding
			last = t
		}
	}
	r.hours = float64(last+1) / 3600
	return r
}

// simulate returns the tables.
func simulate(images []*image) (string, error) {
	ways, err := ways(images)
	if err != nil {
		return "", err
	}
	list := fleet()
	var b strings.Builder
	b.WriteString("\n| image | platform | whole, gzip | its changed layers, gzip | whole, coded | delta over the previous release | over the 20th |\n|---|---|---|---|---|---|---|\n")
	for _, i := range images {
		fmt.Fprintf(&b, "| %s | %s | %.2f MB | %.2f MB | %.2f MB | %.1f kB | %.1f kB |\n", i.name, i.platform, i.gzip/1e6, i.layers/1e6, i.whole/1e6, i.delta[1]/1e3, i.delta[bases]/1e3)
	}
	fmt.Fprintf(&b, "\n| the fleet of %d devices | the server sends | for each device | in the store | making it, one processor | with %d shards | last device |\n|---|---|---|---|---|---|---|\n", devices, shards)
	for _, w := range ways {
		r := roll(w, list, 1)
		fmt.Fprintf(&b, "| %s | %.2f TB | %.2f MB | %.0f MB | %.0f min | %.0f min | after %.1f h |\n", w.name, r.bytes/1e12, r.bytes/1e6/devices, w.stored/1e6, w.cpu/60, w.cpu/60/shards, r.hours)
	}
	b.WriteString("\n| a rollout to | way | requests | a second at most | asked for at most | cacheable | last device |\n|---|---|---|---|---|---|---|\n")
	for _, share := range []float64{0.01, 0.1, 1} {
		for _, w := range []way{ways[0], ways[3], ways[4]} {
			r := roll(w, list, share)
			fmt.Fprintf(&b, "| %.0f %% | %s | %d | %d | %.2f Gbit/s | %.3f %% | after %.1f h |\n", share*100, w.name, r.requests, r.peak, r.busiest/1e9, 100*(1-float64(r.distinct)/float64(r.requests)), r.hours)
		}
	}
	var over []int
	for _, d := range list {
		if d.back > 0 {
			over = append(over, d.back)
		}
	}
	newest, all := 0, 0
	for _, k := range over {
		all++
		if k == 1 {
			newest++
		}
	}
	sizes := ""
	for p := range platforms {
		sizes += fmt.Sprintf(", %.1f kB for %s", ways[3].files(p, 1)[0].bytes/1e3, platforms[p].name)
	}
	fmt.Fprintf(&b, "\n%.1f %% of the devices have the previous release, and %.1f %% one that is too old for a delta: they fetch whole images, the others none. The artifact itself takes%s.\n", 100*float64(newest)/devices, 100*float64(devices-all)/devices, strings.TrimPrefix(sizes, ","))
	return b.String(), nil
}
