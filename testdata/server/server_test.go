// Package server uploads artifacts of app-gen to the deployments service of the
// open-source Mender server and asks which of them it sends. MENDER_APP_DEPLOYMENTS is the
// service's program (services/deployments of mendersoftware/mender-server); without it the
// tests are skipped.
//
// It must not import the product's packages.
package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/testdata/bed"
)

const (
	management = "/api/management/v1/deployments"
	devices    = "/api/devices/v1/deployments"
)

// The server takes whole artifacts, deltas over several bases, and those of --split, and
// sends every device the smallest of the release, whatever it has installed.
func TestServerSendsTheSmallest(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name+".mender") }
	one, two, three := archive(t, "1"), archive(t, "2"), archive(t, "3")
	generate(t, "shop-1", "1", "--output-path", file("1"), "--image", one)
	generate(t, "shop-2", "2", "--output-path", file("2"), "--image", two)
	bases := []string{"--base", file("1"), "--base", file("2"), "--full-fallback", "--image", three}
	generate(t, "shop-3", "3", append([]string{"--output-path", file("3")}, bases...)...)
	generate(t, "shop-3-split", "3", append([]string{"--split", "--output-path", file("split-{base}")}, bases...)...)
	split, err := filepath.Glob(filepath.Join(dir, "split-*.mender"))
	require.NoError(t, err)
	require.Len(t, split, 3)

	for _, path := range append([]string{file("1"), file("2"), file("3")}, split...) {
		s.upload(t, path, http.StatusCreated)
	}
	s.upload(t, file("1"), http.StatusConflict) // its name and depends are there

	s.deploy(t, "shop-3", "a", "b")
	for device, has := range map[string]string{"a": "shop-1", "b": "other"} {
		require.Equal(t, sha256.Sum256(content(t, file("3"))), s.sends(t, device, has))
	}
	smallest := split[0]
	for _, path := range split {
		if len(content(t, path)) < len(content(t, smallest)) {
			smallest = path
		}
	}
	s.deploy(t, "shop-3-split", "c", "d", "e")
	for device, has := range map[string]string{"c": "shop-1", "d": "shop-2", "e": "other"} {
		require.Equal(t, sha256.Sum256(content(t, smallest)), s.sends(t, device, has), "a device with %s gets another one", has)
	}
}

// app-gen gives its artifacts to the server, and a second time it finds them there.
func TestUpload(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "1.mender")
	generate(t, "shop-1", "1", "--output-path", path, "--image", archive(t, "1"))
	server, err := places.OpenMenderServer(s.url, token(`"mender.user":true,"sub":"user"`))
	require.NoError(t, err)
	for _, want := range []bool{false, true} {
		there, err := server.Upload(t.Context(), "shop-1", path)
		require.NoError(t, err)
		require.Equal(t, want, there)
	}
	s.deploy(t, "shop-1", "a", "b")
	require.Equal(t, sha256.Sum256(content(t, path)), s.sends(t, "a", "other"))
	generate(t, "shop-1", "1", "--output-path", path, "--image", archive(t, "2")+"=shop/web:1")
	_, err = server.Upload(t.Context(), "shop-1", path)
	require.ErrorContains(t, err, "the Mender server has another artifact shop-1")
}

// token is one of these claims. The gateway of the server has looked at its signature.
func token(claims string) string {
	return "header." + base64.RawURLEncoding.EncodeToString([]byte("{"+claims+"}")) + ".signature"
}

// service is a running deployments service.
type service struct{ url string }

// start runs the service with a database and an object store of its own.
func start(t *testing.T) service {
	t.Helper()
	program := os.Getenv("MENDER_APP_DEPLOYMENTS")
	if program == "" {
		t.Skip("needs MENDER_APP_DEPLOYMENTS: the program of services/deployments of mendersoftware/mender-server")
	}
	backing := filepath.Join(t.TempDir(), "backing")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", backing, ".")
	build.Dir = filepath.Join(bed.Repository(), "testdata/server/backing")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "build the database and the store: %s", text)

	behind := command(t, backing, t.TempDir())
	_, err = behind.StdinPipe() // it ends with its input
	require.NoError(t, err)
	out, err := behind.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, behind.Start())
	lines := bufio.NewScanner(out)
	var urls []string
	for len(urls) < 2 && lines.Scan() {
		urls = append(urls, lines.Text())
	}
	require.Len(t, urls, 2, "the database and the store do not start")
	bucket, err := http.NewRequest(http.MethodPut, urls[1]+"/artifacts", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(bucket)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())

	listen, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := service{"http://" + listen.Addr().String()}
	require.NoError(t, listen.Close())
	server := command(t, program, "server")
	server.Env = append(os.Environ(), "DEPLOYMENTS_LISTEN="+listen.Addr().String(), "DEPLOYMENTS_MONGO_URL="+urls[0],
		"DEPLOYMENTS_AWS_URI="+urls[1], "DEPLOYMENTS_AWS_AUTH_KEY=key", "DEPLOYMENTS_AWS_AUTH_SECRET=secret",
		"DEPLOYMENTS_STORAGE_BUCKET=artifacts")
	require.NoError(t, server.Start())
	bed.Eventually(t, 2*time.Minute, "the service answers", func() bool {
		response, err := http.Get(s.url + "/api/internal/v1/deployments/alive")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusNoContent
	})
	return s
}

// command is a command that ends with the test. What it says is in the test's log.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stderr = &said
	t.Cleanup(func() {
		cancel()
		if cmd.Process != nil {
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(name), said.String()[max(0, said.Len()-4000):])
		}
	})
	return cmd
}

// upload uploads an artifact.
func (s service) upload(t *testing.T, path string, want int) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	require.NoError(t, form.WriteField("size", fmt.Sprint(len(content(t, path)))))
	part, err := form.CreateFormFile("artifact", filepath.Base(path))
	require.NoError(t, err)
	_, err = part.Write(content(t, path))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	code, answer := s.ask(t, http.MethodPost, management+"/artifacts", form.FormDataContentType(), &body, `"mender.user":true,"sub":"user"`)
	require.Equal(t, want, code, "%s: %s", filepath.Base(path), answer)
}

// deploy deploys a release to devices. For a single one, the service would ask the
// inventory for its groups.
func (s service) deploy(t *testing.T, release string, devices ...string) {
	t.Helper()
	deployment, err := json.Marshal(map[string]any{"name": release, "artifact_name": release, "devices": devices})
	require.NoError(t, err)
	code, answer := s.ask(t, http.MethodPost, management+"/deployments", "application/json", bytes.NewReader(deployment), `"mender.user":true,"sub":"user"`)
	require.Equal(t, http.StatusCreated, code, "%s", answer)
}

// sends returns the digest of what the service sends to a device with an artifact.
func (s service) sends(t *testing.T, device, has string) [sha256.Size]byte {
	t.Helper()
	code, answer := s.ask(t, http.MethodGet, devices+"/device/deployments/next?device_type="+bed.Type+"&artifact_name="+has, "", nil,
		fmt.Sprintf(`"mender.device":true,"sub":%q`, device))
	require.Equal(t, http.StatusOK, code, "%s", answer)
	var next struct {
		Artifact struct{ Source struct{ URI string } }
	}
	require.NoError(t, json.Unmarshal(answer, &next))
	response, err := http.Get(next.Artifact.Source.URI)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	artifact, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return sha256.Sum256(artifact)
}

// ask makes a request with a token of these claims, as the gateway of the server would
// pass it on.
func (s service) ask(t *testing.T, method, path, kind string, body io.Reader, claims string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequest(method, s.url+path, body)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token(claims))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, answer
}

// archive writes the web service's image of a version and returns app-gen's name for it.
func archive(t *testing.T, version string) string {
	t.Helper()
	shop := bed.Shop{Ref: "shop/web:" + version, Version: version, Base: 512}
	image, err := shop.Image()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, bed.WriteArchive(path, image))
	return "docker-archive:" + path
}

// generate runs app-gen.
func generate(t *testing.T, artifact, version string, options ...string) {
	t.Helper()
	manifests := t.TempDir()
	compose := "services:\n  web:\n    image: shop/web:" + version + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644))
	programs, err := bed.Programs()
	require.NoError(t, err)
	args := append([]string{
		"--application-name", "shop", "--artifact-name", artifact, "--software-version", version, "--orchestrator", "docker-compose",
		"--device-type", bed.Type, "--platform", bed.Platform(), "--manifests-dir", manifests, "--deep-delta=false",
	}, options...)
	text, err := exec.Command(filepath.Join(programs, "app-gen"), args...).CombinedOutput()
	require.NoError(t, err, "app-gen %s\n%s", strings.Join(args, " "), text)
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
