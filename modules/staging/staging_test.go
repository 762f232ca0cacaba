package staging

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// write makes an artifact of about a size.
func write(t *testing.T, app, version string, size int) []byte {
	t.Helper()
	noise := make([]byte, size)
	_, err := rand.Read(noise)
	require.NoError(t, err)
	var images, manifests, out bytes.Buffer
	iw := artifact.NewImagesWriter(&images)
	require.NoError(t, iw.Close())
	_, err = artifact.WriteManifests(&manifests, fstest.MapFS{"compose.yaml": {Data: noise}})
	require.NoError(t, err)
	meta, err := (&artifact.Metadata{Version: artifact.VersionCurrent, ApplicationName: app, Orchestrator: "fake", Platform: "linux/amd64", ApplicationVersion: version}).Encode()
	require.NoError(t, err)
	open := func(b []byte) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	require.NoError(t, mender.Write(&out, mender.Spec{
		Name: app + "-" + version, DeviceTypes: []string{"board"}, PayloadType: mender.PayloadTypeApp, MetaData: meta,
		Files: []mender.File{
			{Name: artifact.ImagesPayload, Size: int64(images.Len()), Open: open(images.Bytes())},
			{Name: artifact.ManifestsPayload, Size: int64(manifests.Len()), Open: open(manifests.Bytes())},
		},
	}, mender.Options{}))
	return out.Bytes()
}

// area is an area in a new store, with disk bytes free if nothing is staged.
func area(t *testing.T, limit, margin int64, disk *int64) *Area {
	a := &Area{Store: store.At(filepath.Join(t.TempDir(), "store")), Limit: limit, Margin: margin}
	a.Free = func(dir string) (int64, uint64, error) {
		files, err := filepath.Glob(filepath.Join(dir, "*")) // those that are being written, too
		free := *disk
		for _, f := range files {
			st, err := os.Stat(f)
			require.NoError(t, err)
			free -= st.Size()
		}
		return free, 1, err
	}
	return a
}

func stage(t *testing.T, a *Area, data []byte) ([]Artifact, error) {
	t.Helper()
	c, err := a.Begin(t.Context())
	require.NoError(t, err)
	defer c.End()
	_, err = c.Add(Source{Reader: bytes.NewReader(data), Size: int64(len(data))}, func(r io.Reader) (*mender.Reader, error) {
		return mender.NewReader(r, mender.ReadOptions{})
	})
	return c.Dropped(), err
}

// staged lists what is staged, the longest staged one first.
func staged(t *testing.T, a *Area) (names []string) {
	t.Helper()
	list, err := a.List()
	require.NoError(t, err)
	for _, x := range list {
		require.Empty(t, x.Problem, x.Name())
		names = append(names, x.ArtifactName)
	}
	return names
}

// age makes what is staged older, so that the next artifact is the newest.
func age(t *testing.T, a *Area) {
	t.Helper()
	list, err := a.List()
	require.NoError(t, err)
	for _, x := range list {
		path := a.path(x.Digest, infoSuffix)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		older := x.Staged.Add(-time.Hour).Format(time.RFC3339)
		data = bytes.Replace(data, []byte(x.Staged.Format(time.RFC3339)), []byte(older), 1)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
}

func TestRoom(t *testing.T) {
	one, two, three := write(t, "shop", "1.0.0", 40<<10), write(t, "shop", "2.0.0", 40<<10), write(t, "kiosk", "1.0.0", 40<<10)
	size := int64(len(one))
	huge := int64(1 << 40)

	// The limit: the longest staged goes.
	a := area(t, 2*size+size/2, 0, &huge)
	for _, data := range [][]byte{one, two} {
		dropped, err := stage(t, a, data)
		require.NoError(t, err)
		require.Empty(t, dropped)
		age(t, a)
	}
	_, err := stage(t, a, one) // the same again
	require.NoError(t, err)
	require.Equal(t, []string{"shop-2.0.0", "shop-1.0.0"}, staged(t, a))
	dropped, err := stage(t, a, three)
	require.NoError(t, err)
	require.Len(t, dropped, 1)
	require.Equal(t, []string{"kiosk-1.0.0", "shop-1.0.0"}, staged(t, a), "two was staged before one was again")
	_, err = stage(t, a, write(t, "shop", "3.0.0", 120<<10))
	require.ErrorIs(t, err, ErrSpace)
	require.Len(t, staged(t, a), 2)

	// What must stay free: the longest staged goes, and none if that is not enough.
	disk := 3 * size
	a = area(t, huge, size/2, &disk)
	for _, data := range [][]byte{one, two} {
		_, err := stage(t, a, data)
		require.NoError(t, err)
		age(t, a)
	}
	dropped, err = stage(t, a, three)
	require.NoError(t, err)
	require.Equal(t, "shop-1.0.0", dropped[0].Name())
	_, err = stage(t, a, write(t, "shop", "4.0.0", 150<<10))
	require.ErrorIs(t, err, ErrSpace)
	require.Len(t, staged(t, a), 2)
}

// TestStoppedAnywhere stops staging a second artifact, under the name of the first, at
// each durable step. One of the two is listed and whole, and nothing else is left after
// the next change.
func TestStoppedAnywhere(t *testing.T) {
	huge := int64(1 << 40)
	first, second := write(t, "shop", "1.0.0", 10), write(t, "shop", "1.0.0", 20)
	for n := 1; ; n++ {
		a := area(t, huge, 0, &huge)
		_, err := stage(t, a, first)
		require.NoError(t, err)
		left, stopped := n, errors.New("stopped")
		restore := durable.Inject(func(string) error {
			if left--; left <= 0 { // and nothing after it
				return stopped
			}
			return nil
		})
		c, err := a.Begin(t.Context())
		if err == nil {
			_, err = c.Add(Source{Reader: bytes.NewReader(second), Size: int64(len(second))}, func(r io.Reader) (*mender.Reader, error) {
				return mender.NewReader(r, mender.ReadOptions{})
			})
			c.End()
		}
		restore()
		require.NotEmpty(t, staged(t, a), "point %d", n)
		list, listErr := a.List()
		require.NoError(t, listErr)
		for _, x := range list {
			data, err := os.ReadFile(x.Path)
			require.NoError(t, err)
			require.Equal(t, x.Digest, digest.Of(data))
		}
		_, again := stage(t, a, second)
		require.NoError(t, again)
		files, globErr := filepath.Glob(filepath.Join(a.dir(), "*"))
		require.NoError(t, globErr)
		require.Len(t, files, 3, "the lock, the file and its record")
		if err == nil {
			require.Greater(t, n, 5)
			return
		}
		require.ErrorIs(t, err, stopped)
	}
}

func TestFind(t *testing.T) {
	of := func(app, version, name, problem string) Artifact {
		return Artifact{Record: Record{Application: app, Version: version, ArtifactName: name}, Problem: problem}
	}
	list := []Artifact{of("shop", "3", "shop-3", "its file is missing"), of("shop", "2", "two", ""), of("shop", "1", "one", "")}
	for wanted, found := range map[string]string{"": "two", "1": "one", "one": "one"} {
		a, err := Find(list, "shop", wanted)
		require.NoError(t, err)
		require.Equal(t, found, a.ArtifactName)
	}
	_, err := Find(list, "shop", "3")
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, "shop 3 is not staged: shop-3 is damaged: its file is missing")
	_, err = Find(list, "kiosk", "")
	require.ErrorIs(t, err, ErrNone)
}

// TestFormatDocument compares the record with its table in store/FORMAT.md.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile("../../store/FORMAT.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## staged/<digest>.json\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	fields := []string{"format"}
	record := reflect.TypeFor[Record]()
	for i := range record.NumField() {
		name, _, _ := strings.Cut(record.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	slices.Sort(documented)
	slices.Sort(fields)
	require.Equal(t, fields, documented)
	require.Contains(t, section, fmt.Sprintf("| `format` | 1 | %d |", format))
}
