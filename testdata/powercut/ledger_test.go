package powercut

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// With MENDER_APP_DATA=sqlite or =postgres the application has one more service, which
// writes to a database all the time: see the program in the directory ledger. Its data is
// migrated by each release, and must come back with each.

const (
	ledgerTag  = "yard/ledger:1"
	ledgerPort = "8081"
	ledgerData = app + "_books" // the volume with the database
)

// needLedger reads what the test is to run with.
func needLedger(t *testing.T) {
	t.Helper()
	work.ledger = os.Getenv("MENDER_APP_DATA")
	switch work.ledger {
	case "", "sqlite":
	case "postgres":
		if _, err := postgresFiles(); err != nil {
			t.Skipf("needs PostgreSQL, Debian's package postgresql: %v", err)
		}
	default:
		t.Fatalf("MENDER_APP_DATA=%s: it is sqlite or postgres", work.ledger)
	}
}

// ledgerProgram compiles the program.
func ledgerProgram(dir string) (string, error) {
	program := filepath.Join(dir, "ledger")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	build.Dir, build.Env = filepath.Join(bed.Repository(), "testdata/powercut/ledger"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the ledger: %w\n%s", err, out)
	}
	return program, nil
}

// addLedger makes the image of the service, and returns app-gen's name for it.
func (c *catalogue) addLedger(dir string) (string, error) {
	program, err := ledgerProgram(dir)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	image := bed.Image{Ref: ledgerTag, Command: []string{"/bin/ledger"}, Layers: [][]bed.File{{{Name: "bin/ledger", Mode: 0o755, Data: data}}}}
	if work.ledger == "postgres" {
		files, err := postgresFiles()
		if err != nil {
			return "", err
		}
		image.Layers = append([][]bed.File{files}, image.Layers...)
	}
	if c.ledger, err = configDigest(image); err != nil {
		return "", err
	}
	return archive(dir, image)
}

// ledgerService is the service in a Compose file, "" if there is none.
func ledgerService(version, restart string) string {
	if work.ledger == "" {
		return ""
	}
	return fmt.Sprintf(`  ledger:
    image: %s
    command: ["run", "%s", "/books", "/records"]
    environment: [LEDGER=%s]
    restart: %s
    ports: ["%s:8081"]
    tmpfs: ["/tmp"]
    volumes: ["books:/books", "records:/records"]
`, ledgerTag, version, work.ledger, restart, ledgerPort)
}

func ledgerVolume() string {
	if work.ledger == "" {
		return ""
	}
	return "  books:\n"
}

// ledgerPolicy writes what makes the data go with its release. PostgreSQL cannot be
// migrated by a hook on this device, which has no such program: the new release does it.
func ledgerPolicy(dir, manifests string, r *release) error {
	switch {
	case work.ledger == "" || r.careless:
		return nil
	case work.ledger == "postgres":
		return os.WriteFile(filepath.Join(manifests, "app.toml"), []byte("[data]\nvolumes = [\"books\"]\nsnapshot = true\n"), 0o644)
	}
	policy := "[data]\nvolumes = [\"books\"]\nsnapshot = true\nmigrate = \"hooks/migrate\"\n[[hooks]]\nname = \"migrate\"\n"
	hook := "#!/bin/sh\nexec \"${0%/*}/../ledger\" migrate " + r.version + " \"$MENDER_APP_DATA/books\"\n"
	program, err := ledgerProgram(dir)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(manifests, "app.toml"), []byte(policy), 0o644),
		os.Mkdir(filepath.Join(manifests, "hooks"), 0o755),
		os.WriteFile(filepath.Join(manifests, "hooks", "migrate"), []byte(hook), 0o755),
		exec.Command("cp", program, filepath.Join(manifests, "ledger")).Run(),
	)
}

// TestWithoutTheCopyItIsSeen is the control experiment: where the policy does not name the
// data, a release runs on the data of another one, and the ledger tells.
func TestWithoutTheCopyItIsSeen(t *testing.T) {
	prepared(t)
	if work.ledger == "" {
		t.Skip("needs MENDER_APP_DATA=sqlite or postgres: there is no ledger")
	}
	m, err := newMachine(work.installed, work.catalogue)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.close()) }()
	require.NoError(t, m.boot())
	_ = m.mender(step{"install", "2 careless"}) // with SQLite, its ledger ends at once
	_ = m.mender(step{"rollback", ""})
	_, err = settled(m.Device, m.catalogue, work.records)
	require.ErrorContains(t, err, "violation")
}

var ledgerSays = regexp.MustCompile(`^ledger (\d+) rows (\d+) from [\d: ]+ ok$`)

// ledgerRows asks the ledger of a release for the number of its rows, and asserts that its
// database is whole, and its own. It waits for a database that recovers.
func ledgerRows(d *bed.Device, version string) (rows int, err error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		r, err := d.Run("timeout", "20", "bash", "-c", "cat </dev/tcp/127.0.0.1/"+ledgerPort)
		if err != nil {
			return 0, err
		}
		said := strings.TrimSpace(r.Stdout)
		if m := ledgerSays.FindStringSubmatch(said); m != nil && m[1] == version {
			return strconv.Atoi(m[2])
		}
		if said != "" || time.Now().After(end) {
			logs, _ := d.Run("docker", "logs", "--tail", "10", app+"-ledger-1")
			return 0, fmt.Errorf("the ledger of release %s says %q %s, and its log: %s", version, said, r.Stderr, logs.Output())
		}
	}
}

// postgresFiles are the files of PostgreSQL on this machine, with their libraries, for an
// image.
func postgresFiles() ([]bed.File, error) {
	server, err := exec.LookPath("postgres")
	if err != nil {
		return nil, err
	}
	if server, err = filepath.EvalSymlinks(server); err != nil {
		return nil, err
	}
	bin := filepath.Dir(server) // /usr/lib/postgresql/15/bin
	home := filepath.Dir(bin)
	share := filepath.Join("/usr/share/postgresql", filepath.Base(home))
	files := []bed.File{
		{Name: "etc/passwd", Data: []byte("root:x:0:0::/:/bin/sh\nledger:x:999:999::/tmp:/bin/sh\n")},
	}
	add := func(path, as string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		files = append(files, bed.File{Name: strings.TrimPrefix(as, "/"), Mode: int64(info.Mode().Perm()), Data: data})
		return err
	}
	var programs []string
	for _, name := range []string{"postgres", "initdb"} {
		programs = append(programs, filepath.Join(bin, name))
	}
	out, err := exec.Command("ldd", append(programs, "/bin/sh")...).Output() // initdb starts the server with a shell
	if err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	libraries := map[string]bool{}
	for _, path := range regexp.MustCompile(`/\S+\.so[.0-9]*`).FindAllString(string(out), -1) {
		libraries[path] = true
	}
	for _, path := range slices.Sorted(maps.Keys(libraries)) {
		if err := add(path, path); err != nil {
			return nil, err
		}
	}
	for _, path := range append(programs, "/bin/sh") {
		if err := add(path, path); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{filepath.Join(home, "lib"), share} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.Contains(path, "/bitcode/") || strings.Contains(path, "/extension/") && !strings.Contains(path, "plpgsql") || strings.Contains(path, "/man/") {
				return err
			}
			return add(path, path)
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
