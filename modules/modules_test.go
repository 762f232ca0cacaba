package modules_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func TestTreeOfBothClients(t *testing.T) {
	for client, newline := range map[string]string{"3.4.0": "", "C++": "\n"} {
		t.Run(client, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "header/artifact_name", "rel 2"+newline)
			write(t, dir, "header/artifact_group", newline)
			write(t, dir, "header/payload_type", "app"+newline)
			write(t, dir, "current_artifact_name", "rel 1"+newline)
			write(t, dir, "header/meta-data", `{"a":1}`+newline)
			tree, err := modules.OpenTree(dir)
			require.NoError(t, err)
			for want, get := range map[string]func() (string, error){
				"rel 2": tree.ArtifactName, "app": tree.PayloadType,
				"rel 1": tree.CurrentArtifactName,
			} {
				got, err := get()
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			meta, err := tree.MetaData()
			require.NoError(t, err)
			require.JSONEq(t, `{"a":1}`, string(meta))
			_, stored := tree.Files()
			require.False(t, stored)
		})
	}
}

func TestNoMetaData(t *testing.T) {
	for _, content := range []string{"null", "null\n", "", " \n"} {
		dir := t.TempDir()
		write(t, dir, "header/meta-data", content)
		tree, err := modules.OpenTree(dir)
		require.NoError(t, err)
		meta, err := tree.MetaData()
		require.NoError(t, err)
		require.Nil(t, meta, "%q", content)
	}
}

func TestHugeMetaDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "header/meta-data", "")
	require.NoError(t, os.Truncate(filepath.Join(dir, "header/meta-data"), 1<<40))
	tree, err := modules.OpenTree(dir)
	require.NoError(t, err)
	_, err = tree.MetaData()
	require.ErrorContains(t, err, "larger than")
}

func TestOpenTree(t *testing.T) {
	_, err := modules.OpenTree("")
	require.ErrorContains(t, err, "no file tree was given")
	_, err = modules.OpenTree(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// offer is the client's side of stream-next: one line each time it is opened,
// then nothing once.
func offer(t *testing.T, dir string, lines []string, contents map[string]string) {
	t.Helper()
	done := offerOnly(t, dir, append(lines, ""), contents)
	t.Cleanup(func() { <-done })
}

// offerOnly offers these lines and says when they were taken.
func offerOnly(t *testing.T, dir string, lines []string, contents map[string]string) <-chan struct{} {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "stream-next"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "streams"), 0o700))
	for name := range contents {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "streams", name), 0o600))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, line := range lines {
			f, err := os.OpenFile(filepath.Join(dir, "stream-next"), os.O_WRONLY, 0)
			if err != nil {
				return
			}
			_, _ = f.WriteString(line)
			_ = f.Close()
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "streams/"), " ")
			if content, ok := contents[name]; ok {
				f, err := os.OpenFile(filepath.Join(dir, "streams", name), os.O_WRONLY, 0)
				if err != nil {
					return
				}
				_, _ = f.WriteString(content)
				_ = f.Close()
			}
		}
	}()
	return done
}

// A Download that gives up, at whatever moment, leaves a client 3.4.0 that has
// a file on offer or has said that there are no more: see Leave.
func TestLeaveWaitsForTheClient(t *testing.T) {
	contents := map[string]string{"images.tar.gz": "II", "manifests.tar.gz": "MMM"}
	lines := []string{"streams/images.tar.gz\n", "streams/manifests.tar.gz\n", ""}
	for read, name := range []string{"at once", "after the first file", "after the second file", "after the end"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			offered := offerOnly(t, dir, lines[:min(read+1, 3)], contents)
			tree, err := modules.OpenTree(dir)
			require.NoError(t, err)
			streams := tree.Streams(false)
			for n := range read {
				s, err := streams.Next()
				if n == 2 {
					require.ErrorIs(t, err, io.EOF)
					break
				}
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, s)
				require.NoError(t, err)
				require.NoError(t, s.Close())
			}
			left := make(chan struct{})
			go func() { tree.Leave(time.Hour); close(left) }()
			<-left
			if read < 2 { // the file on offer is left unread: read it for the client's sake
				name := strings.TrimSpace(lines[read])
				_, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
			}
			<-offered
		})
	}
}

// Client 3.4.0 sometimes has stream-next open for reading itself while it offers a
// file. The module must get this offer although it has not asked for it yet.
func TestOfferIsNotLost(t *testing.T) {
	dir := t.TempDir()
	next := filepath.Join(dir, "stream-next")
	file := filepath.Join(dir, "streams/images.tar.gz")
	require.NoError(t, syscall.Mkfifo(next, 0o600))
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	put := func(path, content string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(content)
		return errors.Join(err, f.Close())
	}
	client := make(chan error, 1)
	go func() { client <- errors.Join(put(next, "streams/images.tar.gz\n"), put(file, "II")) }()

	tree, err := modules.OpenTree(dir)
	require.NoError(t, err)
	streams := tree.Streams(false)
	for _, line := range []string{"streams/images.tar.gz\n", ""} {
		s, err := streams.Next()
		require.NoError(t, err)
		data, err := io.ReadAll(s)
		require.NoError(t, err)
		require.Equal(t, "II", string(data))
		require.NoError(t, s.Close())
		require.NoError(t, <-client)

		own, err := os.OpenFile(next, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		require.NoError(t, err)
		require.NoError(t, put(next, line))
		require.NoError(t, own.Close())
		if line != "" {
			go func() { client <- put(file, "II") }()
		}
	}
	ended := make(chan error, 1)
	go func() { _, err := streams.Next(); ended <- err }()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, io.EOF)
	case <-time.After(time.Minute):
		require.Fail(t, "the offer was lost")
	}
}

func TestLeaveDoesNotWaitForEver(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "stream-next"), 0o600))
	tree, err := modules.OpenTree(dir)
	require.NoError(t, err)
	tree.Leave(10 * time.Millisecond)
}

func TestStreams(t *testing.T) {
	contents := map[string]string{"images.tar.gz": "II", "manifests.tar.gz": "MMM"}
	for name, lines := range map[string][]string{
		"Download":              {"streams/images.tar.gz\n", "streams/manifests.tar.gz\n"},
		"DownloadWithFileSizes": {"streams/images.tar.gz 2\n", "streams/manifests.tar.gz 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			offer(t, dir, lines, contents)
			tree, err := modules.OpenTree(dir)
			require.NoError(t, err)
			streams := tree.Streams(name == "DownloadWithFileSizes")
			for _, want := range []string{"images.tar.gz", "manifests.tar.gz"} {
				s, err := streams.Next()
				require.NoError(t, err)
				require.Equal(t, want, s.Name)
				got, err := io.ReadAll(s)
				require.NoError(t, err)
				require.Equal(t, contents[want], string(got))
				require.NoError(t, s.Close())
			}
			for range 3 { // the pipe is not asked again: nobody would answer
				_, err = streams.Next()
				require.Equal(t, io.EOF, err)
			}
		})
	}
}

func FuzzStreamNext(f *testing.F) {
	for _, seed := range []string{"streams/a", "streams/a 1\n", "streams/../a", "streams/a/b 2", "a", " ", "streams/ 1", "streams/a -1", "streams/a b 7"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, line string, sizes bool) {
		dir := t.TempDir()
		write(t, dir, "stream-next", line)
		write(t, dir, "secret", "x")
		tree, err := modules.OpenTree(dir)
		require.NoError(t, err)
		s, err := tree.Streams(sizes).Next()
		tree.Leave(0) // closes stream-next
		if err == nil {
			_ = s.Close()
			t.Fatalf("opened %q where there are no streams", s.Name)
		}
	})
}

func TestStoredFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "files/manifests.tar.gz", "MMM")
	write(t, dir, "files/images.tar.gz", "II")
	tree, err := modules.OpenTree(dir)
	require.NoError(t, err)
	streams, err := tree.StoredFiles()
	require.NoError(t, err)
	for _, want := range []string{"images.tar.gz", "manifests.tar.gz"} {
		s, err := streams.Next()
		require.NoError(t, err)
		require.Equal(t, want, s.Name)
		require.NoError(t, s.Close())
	}
	_, err = streams.Next()
	require.Equal(t, io.EOF, err)
}

func TestReplies(t *testing.T) {
	for _, s := range modules.States() {
		require.True(t, s.Known())
		answer, asks := modules.Reply(s)
		require.Equal(t, asks, answer != "")
	}
	require.False(t, modules.State("ArtifactTeleport").Known())
}
