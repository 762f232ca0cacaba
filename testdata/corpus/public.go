package corpus

import (
	"embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Public returns the pairs of the public benchmark. What they are made of is recorded
// with its SHA-256 in public/inputs.txt, and the images themselves in
// public/SHA256SUMS: they have the same bytes wherever and whenever they are built.
func Public() []Pair {
	list := []Pair{
		publicGo("go-mqtt-armv7", "minor release", "an MQTT broker in Go", goProgram{module: "github.com/mochi-mqtt/server/v2", pkg: "/cmd", v1: "v2.6.6", v2: "v2.7.9", arch: "arm/7"}),
		publicGo("go-nats-armv7", "patch release", "a message server in Go", goProgram{module: "github.com/nats-io/nats-server/v2", v1: "v2.15.1", v2: "v2.15.2", arch: "arm/7"}),
		publicGo("go-grpcurl-arm64", "patch release", "a gRPC client in Go whose dependencies changed", goProgram{module: "github.com/fullstorydev/grpcurl", pkg: "/cmd/grpcurl", v1: "v1.9.3", v2: "v1.9.4", arch: "arm64"}),
		publicGo("go-coredns-arm64", "patch release", "a DNS server in Go, large", goProgram{module: "github.com/coredns/coredns", v1: "v1.14.6", v2: "v1.14.7", arch: "arm64"}),
		publicGo("go-exporter-amd64", "patch release", "a metrics exporter in Go", goProgram{module: "github.com/prometheus/node_exporter", v1: "v1.9.0", v2: "v1.9.1", arch: "amd64"}),
	}
	for _, d := range []debian{
		{name: "debian-base-arm64", about: "a base system with OpenSSL", arch: "arm64", app: "openssl ca-certificates", s1: stable, s2: patched},
		{name: "debian-nginx-arm64", about: "nginx and its base system", arch: "arm64", app: "nginx-light ca-certificates", s1: stable, s2: patched},
		{name: "python-django-arm64", about: "Python and Django and their base system", arch: "arm64", app: "python3-django", s1: stable, s2: patched},
		{name: "node-amd64", about: "a node runtime and its base system", arch: "amd64", app: "nodejs", s1: stable, s2: patched},
		{name: "java-tomcat-amd64", about: "a Java runtime and Tomcat", arch: "amd64", app: "openjdk-17-jre-headless tomcat10", s1: stable, s2: patched},
		{name: "minor-mosquitto-armhf", about: "mosquitto 2.0.11 to 2.0.21 on one base system, from backports", arch: "armhf", app: "mosquitto", app2: "mosquitto/bookworm-backports libmosquitto1/bookworm-backports", s1: stable, s2: ported},
		{name: "debian-next-armhf", about: "a base system and the next release of Debian", arch: "armhf", app: "ca-certificates", s1: stable, s2: next},
	} {
		kind := "security updates"
		switch d.s2 {
		case ported:
			kind = "minor release"
		case next:
			kind = "next Debian"
		}
		list = append(list, public(d.name, kind, d.about, d.arch, func(b *builder, r1, r2 release) (old, new []tree, err error) {
			return []tree{r1.base, r1.app}, []tree{r2.base, r2.app}, nil
		}, d))
	}
	for _, s := range []struct {
		kind string
		debian
	}{
		{"rebuilt", debian{name: "times-mosquitto-armhf", about: "the same files with later times", arch: "armhf", app: "mosquitto", s1: stable, s2: stable}},
		{"moved", debian{name: "moved-django-amd64", about: "the application and its security updates in another directory", arch: "amd64", app: "python3-django", s1: stable, s2: patched}},
		{"squashed", debian{name: "squashed-redis-amd64", about: "three layers become one, with security updates", arch: "amd64", app: "redis-server openssl", s1: stable, s2: patched}},
	} {
		for _, shape := range shapes {
			if shape.name == s.kind {
				list = append(list, public(s.name, shape.name, s.about, s.arch, func(_ *builder, r1, r2 release) (old, new []tree, err error) {
					o, n := shape.make(r1, r2)
					return o, n, nil
				}, s.debian))
			}
		}
	}
	list = append(list,
		public("inserted-nginx-arm64", "inserted", "a layer of new packages below an application whose configuration changed", "arm64", insertedPackages,
			debian{arch: "arm64", app: "nginx-light ca-certificates", s1: stable, s2: stable}),
		public("build-exporter-amd64", "real build", "apt-get upgrade in a Dockerfile, below a Go program's patch release", "amd64", upgraded,
			debian{arch: "amd64", app: "redis-server openssl", s1: stable, s2: patched}),
		Pair{Name: "compressed-docs-arm64", Kind: "compressed", About: "manuals and changelogs in gzip and a tar.gz of them, the next release of Debian", platform: "linux/arm64", build: documents},
		Pair{Name: "alpine-base-armv7", Kind: "security updates", About: "a base system of Alpine, whose archive could not be reached: left out", platform: "linux/arm/v7", build: func(*builder) (old, new []layer, err error) {
			return nil, nil, fmt.Errorf("%w: no archive of Alpine could be reached when the list was made, so its packages are not recorded", ErrUnavailable)
		}},
	)
	for i := range list {
		list[i].public = true
	}
	return list
}

var platforms = map[string]string{"armhf": "linux/arm/v7", "arm/7": "linux/arm/v7", "arm64": "linux/arm64", "amd64": "linux/amd64"}

func publicGo(name, kind, about string, p goProgram) Pair {
	p.name = name
	return Pair{Name: name, Kind: kind, About: about, platform: platforms[p.arch], build: p.build}
}

// public is a pair that is made of two releases of Debian packages.
func public(name, kind, about, arch string, make func(b *builder, r1, r2 release) (old, new []tree, err error), d debian) Pair {
	return Pair{Name: name, Kind: kind, About: about, platform: platforms[arch], build: func(b *builder) (old, new []layer, err error) {
		r1, err := d.release(b, d.s1, 0)
		if err != nil {
			return nil, nil, err
		}
		if d.app2 != "" {
			d.app = d.app2
		}
		r2, err := d.release(b, d.s2, 1)
		if err != nil {
			return nil, nil, err
		}
		o, n, err := make(b, r1, r2)
		if err != nil {
			return nil, nil, err
		}
		return b.pair(o, n)
	}}
}

// insertedPackages adds a layer of packages that the old image has nothing of.
func insertedPackages(b *builder, r1, r2 release) (old, new []tree, err error) {
	debs, err := b.packages("arm64", stable, systemPackages+" curl git")
	if err != nil {
		return nil, nil, err
	}
	whole, err := b.install(debs, time.Unix(1738000000, 0))
	if err != nil {
		return nil, nil, err
	}
	return []tree{r1.base, r1.app, r1.conf}, []tree{r1.base, withParents(whole.without(r1.base), whole), r1.app, r2.conf}, nil
}

// upgraded is what these lines of a Dockerfile make, before and after a rebuild:
//
//	FROM the base of the first build
//	RUN apt-get update && apt-get -y upgrade && apt-get -y install redis-server openssl
//	COPY node_exporter /usr/local/bin/
//	COPY app.conf /etc/app/
func upgraded(b *builder, r1, r2 release) (old, new []tree, err error) {
	images := make([][]tree, 2)
	p := goProgram{name: "node_exporter", module: "github.com/prometheus/node_exporter", arch: "amd64"}
	for i, r := range []release{r1, r2} {
		when := time.Unix(1737000000+int64(i)*8000000, 0)
		program, err := p.compile(b, []string{"v1.9.0", "v1.9.1"}[i])
		if err != nil {
			return nil, nil, err
		}
		whole := r.base.clone().add(r.app)
		run := withParents(whole.without(r1.base), whole)
		var log strings.Builder
		names := slices.Sorted(maps.Keys(run))
		for n, name := range names {
			if pkg, ok := strings.CutSuffix(name, ".list"); ok && strings.HasPrefix(name, "var/lib/dpkg/info/") {
				for _, state := range []string{"unpacked", "half-configured", "installed"} {
					fmt.Fprintf(&log, "%s status %s %s\n", when.Add(time.Duration(n/40)*time.Second).UTC().Format(time.DateTime), state, strings.TrimPrefix(pkg, "var/lib/dpkg/info/"))
				}
			}
		}
		run.file("var/log/dpkg.log", 0o644, when, []byte(log.String()))
		app := tree{}
		app.file("usr/local/bin/node_exporter", 0o755, when, program)
		images[i] = []tree{r1.base, run, app, r.conf}
	}
	return images[0], images[1], nil
}

// withParents adds the directories above a layer's entries, as engines do.
func withParents(layer, whole tree) tree {
	for _, name := range slices.Collect(maps.Keys(layer)) {
		for {
			n := strings.LastIndexByte(name, '/')
			if n < 0 {
				break
			}
			name = name[:n]
			if whole[name] != nil {
				layer[name] = whole[name]
			}
		}
	}
	return layer
}

//go:embed public/inputs.txt public/SHA256SUMS
var recorded embed.FS

// recordedSums are the SHA-256 of the images of the public benchmark, by PAIR/v1.tar
// and PAIR/v2.tar.
func recordedSums() (map[string]string, error) {
	f, err := recorded.Open("public/SHA256SUMS")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			sums[name] = sum
		}
	}
	return sums, nil
}
