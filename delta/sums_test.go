package delta_test

import (
	"crypto/md5"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
)

// The new sums of a package's files cost next to nothing.
func TestSums(t *testing.T) {
	image := func(v int64) delta.Image {
		var files []tarFile
		list := ""
		for i := range int64(40) {
			b := noise(i, 2000)
			b[i] += byte(v)
			name := fmt.Sprintf("usr/lib/file%d", i)
			files = append(files, tarFile{name: name, typ: '0', data: b})
			if i%2 == 0 {
				name = name[4:]
			}
			list += fmt.Sprintf("%x  %s\n", md5.Sum(b), name)
		}
		files = append(files, tarFile{name: "var/lib/dpkg/info/p.md5sums", typ: '0', data: []byte(list)})
		return delta.Image{Objects: []delta.Object{bytesObject(delta.Tar, makeTar(files...))}}
	}
	d, _ := roundTrip(t, []delta.Image{image(1)}, image(2))
	require.Less(t, len(d), 40*16)
	t.Log(len(d))
}
