// Package slow tests what takes long and rarely breaks. make test-all runs it.
package slow

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// bad is an artifact, or a device, that an update must be refused on.
type bad struct {
	name   string
	change func(h *bed.Handmade)                    // of a good artifact's parts
	damage func(file []byte) []byte                 // of the artifact's bytes
	device func(t *testing.T, d *bed.Device) func() // of the device; the result puts it back
	says   string                                   // regular expression: the one line that says why
}

func metadata(key string, value any) func(*bed.Handmade) {
	return func(h *bed.Handmade) {
		var m map[string]any
		_ = json.Unmarshal([]byte(h.Metadata), &m) // it is ours
		if value == nil {
			delete(m, key)
		} else {
			m[key] = value
		}
		text, _ := json.Marshal(m) // of plain values
		h.Metadata = string(text)
	}
}

func manifest(m bed.Member) func(*bed.Handmade) {
	return func(h *bed.Handmade) { h.Manifests = append(h.Manifests, m) }
}

func imageMember(m bed.Member) func(*bed.Handmade) {
	return func(h *bed.Handmade) { h.Images = append(h.Images, m) }
}

// inDevice runs a script on the device before, and another one after.
func inDevice(before, after string) func(*testing.T, *bed.Device) func() {
	return func(t *testing.T, d *bed.Device) func() {
		d.MustRun(t, "bash", "-ec", before)
		return func() { d.MustRun(t, "bash", "-ec", after) }
	}
}

func badInputs(t *testing.T) []bad {
	return []bad{
		// The container.
		{name: "truncated in the middle", damage: func(b []byte) []byte { return b[:len(b)/2] }, says: `(?i)EOF|truncated|size|short`},
		{name: "truncated at the end", damage: func(b []byte) []byte { return b[:len(b)-20_000] }, says: `(?i)EOF|truncated|size|short`},
		{name: "bit flipped in the payload", damage: flip(0.5), says: `(?i)checksum|corrupt|invalid|flate|crc`},
		{name: "bit flipped near the end", damage: flip(0.97), says: `(?i)checksum|corrupt|invalid|flate|crc|EOF`},

		// The metadata.
		{name: "metadata missing", change: func(h *bed.Handmade) { h.Metadata = "" }, says: `meta-?data`},
		{name: "metadata null", change: func(h *bed.Handmade) { h.Metadata = "null" }, says: `meta-?data`},
		{name: "metadata of wrong types", change: metadata("images", 7), says: `meta-?data`},
		{name: "no application name", change: metadata("application_name", nil), says: `application`},
		{name: "application name ..", change: metadata("application_name", ".."), says: `application`},
		{name: "application name with dot-dot", change: metadata("application_name", "../../etc"), says: `application`},
		{name: "application name with slash", change: metadata("application_name", "a/b"), says: `application`},
		{name: "application name with NUL", change: metadata("application_name", "a\x00b"), says: `application`},
		{name: "application name with newline", change: metadata("application_name", "a\nb"), says: `application`},
		{name: "no orchestrator", change: metadata("orchestrator", nil), says: `orchestrator`},
		{name: "unknown orchestrator", change: metadata("orchestrator", "nomad"), says: `nomad`},
		{name: "orchestrator with dot-dot", change: metadata("orchestrator", "../../../../bin/true"), says: `orchestrator`},
		{name: "other platform", change: metadata("platform", "linux/s390x"), says: `s390x`},
		{name: "unknown version", change: metadata("version", "99.0"), says: `99`},

		// The sums.
		{name: "wrong sum", change: func(h *bed.Handmade) {
			bed.Find(h.Images, "/sums-new.txt").Data = []byte(digest('0') + "\n")
		}, says: digest('0')[:8]},
		{name: "no sum", change: func(h *bed.Handmade) { bed.Find(h.Images, "/sums-new.txt").Data = nil }, says: `sums-new`},
		{name: "sum is no digest", change: func(h *bed.Handmade) {
			bed.Find(h.Images, "/sums-new.txt").Data = []byte("../../etc/passwd\n")
		}, says: `sums-new|digest`},
		{name: "no image", change: func(h *bed.Handmade) {
			*bed.Find(h.Images, "/image.img") = bed.Member{Name: "images/", Type: tar.TypeDir}
		}, says: `image.img`},
		{name: "image is no archive", change: func(h *bed.Handmade) {
			bed.Find(h.Images, "/image.img").Data = bytes.Repeat([]byte("no tar "), 10_000)
		}, says: `(?i)archive|tar|image`},
		{name: "image cut off", change: func(h *bed.Handmade) {
			m := bed.Find(h.Images, "/image.img")
			m.Data = m.Data[:len(m.Data)/3]
		}, says: `(?i)EOF|truncated|cut|short|archive`},
		{name: "layer other than its diffID", change: inImage(func(list []tarMember) []tarMember {
			list[newLayer(t, list)].data = list[slices.IndexFunc(list, tarMember.layer)].data
			return list
		}), says: `does not match its digest`},
		{name: "layer missing", change: inImage(func(list []tarMember) []tarMember {
			i := newLayer(t, list)
			return slices.Delete(list, i, i+1)
		}), says: `neither in the content nor in the engine`},
		{name: "member of an image twice", change: inImage(func(list []tarMember) []tarMember {
			return append(list, list[newLayer(t, list)])
		}), says: `it occurs twice`},
		{name: "image for another platform", change: func(h *bed.Handmade) {
			other := e2e.Web(t, "2", "")
			other.Platform = "linux/s390x"
			members, digest, err := bed.ReferenceImage(other)
			require.NoError(t, err)
			_, old, err := bed.ReferenceImage(e2e.Web(t, "2", ""))
			require.NoError(t, err)
			h.Images = slices.DeleteFunc(h.Images, func(m bed.Member) bool { return strings.Contains(m.Name, old) })
			h.Images = append(h.Images, members...)
			h.Metadata = strings.ReplaceAll(h.Metadata, old, digest)
		}, says: `is for linux/s390x, the release for`},

		// Another application's.
		{name: "a reference that devices assign themselves", change: func(h *bed.Handmade) {
			for _, name := range []string{"/url-new.txt", "/url-current.txt"} {
				bed.Find(h.Images, name).Data = []byte("mender-app.local/shop:" + digest('a') + "\n")
			}
		}, says: `a name that devices assign themselves`},
		{name: "a service of another application's image", change: func(h *bed.Handmade) {
			m := bed.Find(h.Manifests, ".yml")
			m.Data = bytes.ReplaceAll(m.Data, []byte("shop/web:2"), []byte("mender-app.local/depot:"+digest('a')))
		}, says: `mender-app\.local/depot:a+ is a name that mender-app gives`},

		// The members of the payloads.
		{name: "manifest with absolute name", change: manifest(bed.Member{Name: "/etc/mender/evil", Data: []byte("evil")}), says: `/etc/mender/evil`},
		{name: "manifest with dot-dot", change: manifest(bed.Member{Name: "manifests/../../../../etc/mender/evil", Data: []byte("evil")}), says: `evil`},
		{name: "manifest outside its directory", change: manifest(bed.Member{Name: "elsewhere/evil", Data: []byte("evil")}), says: `elsewhere`},
		{name: "link to an absolute path", change: manifest(bed.Member{Name: "manifests/passwd", Type: tar.TypeSymlink, Link: "/etc/passwd"}), says: `passwd`},
		{name: "link out of the tree", change: manifest(bed.Member{Name: "manifests/up", Type: tar.TypeSymlink, Link: "../../../../etc"}), says: `up`},
		{name: "writing through a link", change: func(h *bed.Handmade) {
			manifest(bed.Member{Name: "manifests/d", Type: tar.TypeSymlink, Link: "/etc/mender"})(h)
			manifest(bed.Member{Name: "manifests/d/evil", Data: []byte("evil")})(h)
		}, says: `manifests/d|\bd\b`},
		{name: "hard link", change: manifest(bed.Member{Name: "manifests/shadow", Type: tar.TypeLink, Link: "/etc/shadow"}), says: `shadow`},
		{name: "device node", change: manifest(bed.Member{Name: "manifests/disk", Type: tar.TypeBlock}), says: `disk`},
		{name: "pipe", change: manifest(bed.Member{Name: "manifests/pipe", Type: tar.TypeFifo}), says: `pipe`},
		{name: "image member with absolute name", change: imageMember(bed.Member{Name: "/etc/mender/evil", Data: []byte("evil")}), says: `evil`},
		{name: "image member with dot-dot", change: imageMember(bed.Member{Name: "images/../../etc/mender/evil", Data: []byte("evil")}), says: `evil`},
		{name: "device node among the images", change: imageMember(bed.Member{Name: "images/disk", Type: tar.TypeChar}), says: `disk`},
		{name: "link among the images", change: imageMember(bed.Member{Name: "images/" + digest('1') + "/image.img", Type: tar.TypeSymlink, Link: "/etc/passwd"}), says: `image.img`},

		// More than was announced, or than any limit allows.
		{name: "manifests that unpack to half a gigabyte", change: manifest(bed.Member{Name: "manifests/zeros", Zeros: 512 << 20}), says: `(?i)large|limit|more than|exceeds|beyond`},
		{name: "a text of an image that has no end", change: func(h *bed.Handmade) {
			bed.Find(h.Images, "/url-new.txt").Data, bed.Find(h.Images, "/url-new.txt").Zeros = nil, 64<<20
		}, says: `(?i)url-new|large|limit|beyond`},
		{name: "images beyond the announced size", change: metadata("sizes", map[string]any{
			"images_payload": 10_000, "manifests_payload": 100_000, "manifests": 100_000,
		}), says: `(?i)large|limit|more than|announced|beyond`},
		{name: "more than the disk holds", change: metadata("sizes", map[string]any{
			"images_payload": 1 << 50, "manifests_payload": 100_000, "manifests": 100_000, "engine": 1 << 50,
		}), says: `(?i)space|room`},

		// The application.
		{name: "no compose file", change: func(h *bed.Handmade) { h.Manifests = h.Manifests[:1] }, says: `(?i)compose`},
		{name: "compose file that is none", change: func(h *bed.Handmade) {
			bed.Find(h.Manifests, ".yml").Data = []byte("services: [this, is: no compose file\n")
		}, says: `(?i)yaml|compose`},
		{name: "image that is not there", change: func(h *bed.Handmade) {
			m := bed.Find(h.Manifests, ".yml")
			m.Data = bytes.ReplaceAll(m.Data, []byte("shop/web:2"), []byte("shop/till:9"))
		}, says: `shop/till:9`},

		// The device.
		{name: "sub-module missing", device: inDevice("mv "+e2e.ComposeSubmodule+" /tmp/kept", "mv /tmp/kept "+e2e.ComposeSubmodule), says: `docker-compose`},
		{name: "sub-module not executable", device: inDevice("chmod a-x "+e2e.ComposeSubmodule, "chmod a+x "+e2e.ComposeSubmodule), says: `docker-compose`},
		{name: "no Compose", device: inDevice(
			`mkdir /tmp/plugins
for f in /usr/libexec /usr/lib /usr/local/libexec /usr/local/lib; do
	f=$f/docker/cli-plugins
	[ ! -e $f/docker-compose ] || mv $f/docker-compose /tmp/plugins/$(echo $f | tr / _)
done`,
			"for f in /tmp/plugins/*; do mv $f $(basename $f | tr _ /)/docker-compose; done; rmdir /tmp/plugins"), says: `(?i)compose`},
		{name: "Compose v1", device: inDevice(
			`printf '#!/bin/sh\necho docker-compose version 1.29.2, build unknown\n' >/usr/local/bin/docker-compose-1; chmod 755 /usr/local/bin/docker-compose-1
			 echo 'DOCKER_COMPOSE_COMMAND="/usr/local/bin/docker-compose-1"' >/etc/mender/mender-app-docker-compose.conf.new
			 [ ! -e /etc/mender/mender-app-docker-compose.conf ] || mv /etc/mender/mender-app-docker-compose.conf /tmp/kept.conf
			 mv /etc/mender/mender-app-docker-compose.conf.new /etc/mender/mender-app-docker-compose.conf`,
			`rm /etc/mender/mender-app-docker-compose.conf; [ ! -e /tmp/kept.conf ] || mv /tmp/kept.conf /etc/mender/mender-app-docker-compose.conf`),
			says: `(?i)compose.*(1\.29|v2|version 2)`},
		{name: "no Docker socket", device: inDevice("mv /run/docker.sock /run/away.sock", "mv /run/away.sock /run/docker.sock"), says: `(?i)docker`},
		{name: "configuration that is broken", device: inDevice(
			`cp -a /etc/mender/mender-app.conf /tmp/kept.conf 2>/dev/null || true; echo 'what is this?' >/etc/mender/mender-app.conf`,
			`rm /etc/mender/mender-app.conf; [ ! -e /tmp/kept.conf ] || mv /tmp/kept.conf /etc/mender/mender-app.conf`), says: `mender-app\.conf`},
	}
}

// tarMember is a member of an image's archive.
type tarMember struct {
	header tar.Header
	data   []byte
}

func (m tarMember) layer() bool { return strings.HasSuffix(m.header.Name, ".tar.gz") }

func tarMembers(archive []byte) (list []tarMember) {
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := tr.Next()
		if err != nil {
			return list // the end: it is ours
		}
		data, _ := io.ReadAll(tr)
		list = append(list, tarMember{*header, data})
	}
}

// inImage changes the archive of an artifact's first image.
func inImage(edit func([]tarMember) []tarMember) func(*bed.Handmade) {
	return func(h *bed.Handmade) {
		img := bed.Find(h.Images, "/image.img")
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, m := range edit(tarMembers(img.Data)) {
			m.header.Size = int64(len(m.data))
			_ = w.WriteHeader(&m.header)
			_, _ = w.Write(m.data)
		}
		_ = w.Close()
		img.Data = buf.Bytes()
	}
}

// newLayer is the index of a layer of web 2 that web 1 does not have, and not
// the first one.
func newLayer(t *testing.T, list []tarMember) int {
	t.Helper()
	one, _, err := bed.ReferenceImage(e2e.Web(t, "1", ""))
	require.NoError(t, err)
	have := tarMembers(bed.Find(one, "/image.img").Data)
	for i := len(list) - 1; i > slices.IndexFunc(list, tarMember.layer); i-- {
		if list[i].layer() && !slices.ContainsFunc(have, func(m tarMember) bool { return m.header.Name == list[i].header.Name }) {
			return i
		}
	}
	t.Fatal("web 2 has no layer of its own")
	return 0
}

func flip(where float64) func([]byte) []byte {
	return func(b []byte) []byte {
		b[int(float64(len(b))*where)] ^= 0x10
		return b
	}
}

func digest(c byte) string { return string(bytes.Repeat([]byte{c}, 64)) }

// Bad input is refused with one line that says why. Nothing on the device changes:
// no container, image, volume, network or file, and nothing that the Mender client
// believes.
func TestBadInputChangesNothing(t *testing.T) {
	d := e2e.Device(t)
	good, err := bed.Reference("shop", "shop-1", e2e.Compose("1"), e2e.Web(t, "1", ""), e2e.Stock(t))
	require.NoError(t, err)
	e2e.Mender(t, d, "install", e2e.Handmade(t, d, good))
	e2e.Mender(t, d, "commit")
	next, err := bed.Reference("shop", "shop-2", e2e.Compose("2"), e2e.Web(t, "2", ""), e2e.Stock(t))
	require.NoError(t, err)

	for _, b := range badInputs(t) {
		t.Run(b.name, func(t *testing.T) {
			h := next
			h.Images, h.Manifests = append([]bed.Member(nil), next.Images...), append([]bed.Member(nil), next.Manifests...)
			if b.change != nil {
				b.change(&h)
			}
			file := e2e.Handmade(t, d, h)
			if b.damage != nil {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, b.damage(data), 0o644))
			}
			before := e2e.Unchanging(d.MustState(t))
			restore := func() {}
			if b.device != nil {
				restore = b.device(t, d)
			}
			said := e2e.MenderFails(t, d, "install", file)
			restore()
			e2e.RequireErrorLine(t, b.says, said)
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
		})
	}

	// Afterwards the good artifact still installs.
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Handmade(t, d, next))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
}
