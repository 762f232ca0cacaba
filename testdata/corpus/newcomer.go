package corpus

import (
	"strconv"
	"time"
)

// Newcomer returns the images of a project of five services as people build them: a
// database, a broker, and programs in Node, Python and Go, the four of Debian over one
// base layer. Between the two states, one file of the service "node" changes.
func Newcomer() []Pair {
	const arch, platform = "amd64", "linux/amd64"
	var list []Pair
	for _, s := range []struct{ name, packages string }{
		{"postgres", "postgresql-15 ca-certificates"},
		{"mosquitto", "mosquitto ca-certificates"},
		{"node", "nodejs node-express node-ws ca-certificates"},
		{"python", "python3 python3-django python3-psycopg2 python3-cryptography ca-certificates"},
	} {
		d := debian{name: s.name, arch: arch, platform: platform, app: s.packages, s1: stable}
		list = append(list, Pair{Name: "newcomer-" + s.name, About: s.packages, platform: platform, build: func(b *builder) (old, next []layer, err error) {
			r, err := d.release(b, d.s1, 0)
			if err != nil {
				return nil, nil, err
			}
			images := [2][]tree{}
			for i := range images {
				when := time.Unix(1740000000, 0)
				app := tree{}
				for n := range 40 {
					app.file("srv/app/lib/"+strconv.Itoa(n)+".js", 0o644, when, text(uint64(n+7), 12_000))
				}
				server := string(text(99, 30_000))
				if i == 1 && s.name == "node" {
					when = when.Add(time.Hour)
					server = server[:20_000] + "// the second release\n" + server[20_000:]
				}
				app.file("srv/app/server.js", 0o644, when, []byte(server))
				images[i] = []tree{r.base, r.app, app}
			}
			return b.pair(images[0], images[1])
		}})
	}
	p := goProgram{name: "exporter", module: "github.com/prometheus/node_exporter", v1: "v1.9.0", v2: "v1.9.0", arch: arch}
	return append(list, Pair{Name: "newcomer-go", About: "a metrics exporter in Go", platform: platform, build: func(b *builder) (old, next []layer, err error) {
		program, err := p.compile(b, p.v1)
		if err != nil {
			return nil, nil, err
		}
		app := tree{}
		app.file("usr/bin/exporter", 0o755, time.Unix(1740000000, 0), program)
		return b.pair([]tree{app}, []tree{app})
	}})
}
