package corpus

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goProgram is a Go program in two releases.
type goProgram struct {
	name, about string
	pkg         string // of the command, within the module
	module      string
	v1, v2      string
	arch        string // GOARCH[/GOARM]
	platform    string
}

var goPrograms = []goProgram{
	{"go-armv7", "an MQTT broker in Go on arm/v7, a minor release", "/cmd", "github.com/mochi-mqtt/server/v2", "v2.6.6", "v2.7.9", "arm/7", "linux/arm/v7"},
	{"go-arm64", "a gRPC client in Go on arm64, a patch release", "/cmd/grpcurl", "github.com/fullstorydev/grpcurl", "v1.9.3", "v1.9.4", "arm64", "linux/arm64"},
	{"go-amd64", "a metrics exporter in Go on amd64, a patch release", "", "github.com/prometheus/node_exporter", "v1.9.0", "v1.9.1", "amd64", "linux/amd64"},
}

func goPairs() []Pair {
	var list []Pair
	for _, p := range goPrograms {
		list = append(list, Pair{Name: p.name, About: p.about, platform: p.platform, build: p.build})
	}
	return list
}

// build makes images as the programs' Dockerfiles do: one layer of certificates and
// above it one with the program.
func (p goProgram) build(b *builder) (old, new []layer, err error) {
	certs := tree{}
	certs.file("etc/ssl/certs/ca-certificates.crt", 0o644, time.Unix(1700000000, 0), text(42, 220000))
	certs.file("etc/passwd", 0o644, time.Unix(1700000000, 0), []byte("root:x:0:0:root:/root:/bin/sh\n"))
	images := make([][]tree, 2)
	for i, v := range []string{p.v1, p.v2} {
		program, err := p.compile(b, v)
		if err != nil {
			return nil, nil, err
		}
		app := tree{}
		app.file("usr/bin/"+p.name, 0o755, time.Unix(1710000000+int64(i)*5000000, 0), program)
		images[i] = []tree{certs, app}
	}
	return b.pair(images[0], images[1])
}

func (p goProgram) compile(b *builder, version string) ([]byte, error) {
	gopath := filepath.Join(b.temp, "go")
	arch, arm, _ := strings.Cut(p.arch, "/")
	cmd := exec.CommandContext(b.ctx, "go", "install", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", p.module+p.pkg+"@"+version)
	cmd.Dir = b.temp
	cache, err := exec.CommandContext(b.ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: the go command: %w", ErrUnavailable, err)
	}
	cmd.Env = append(os.Environ(), "GOPATH="+gopath, "GOMODCACHE="+strings.TrimSpace(string(cache)), "GOBIN=",
		"GOOS=linux", "GOARCH="+arch, "GOARM="+arm, "GOAMD64=v1", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOTOOLCHAIN=local", "GOWORK=off")
	if b.pins != nil {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+Toolchain)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		if b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
		return nil, fmt.Errorf("%w: %s@%s: %w\n%s", ErrUnavailable, p.module, version, err, out)
	}
	defer os.RemoveAll(filepath.Join(gopath, "bin"))
	made, err := filepath.Glob(filepath.Join(gopath, "bin", "*"))
	if err == nil && len(made) == 1 {
		if info, serr := os.Stat(made[0]); serr == nil && info.IsDir() { // of another architecture
			made, err = filepath.Glob(filepath.Join(made[0], "*"))
		}
	}
	if err != nil || len(made) != 1 {
		return nil, fmt.Errorf("%s@%s: %d programs, %v", p.module, version, len(made), err)
	}
	program, err := os.ReadFile(made[0])
	if err == nil && b.pins != nil {
		err = b.pins.program(fmt.Sprintf("%s linux/%s %s%s@%s", Toolchain, p.arch, p.module, p.pkg, version), program)
	}
	return program, err
}
