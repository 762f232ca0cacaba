package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// snapshots asks an engine's containerd for the directories of its files and of
// unpacked layers, and removes what an interrupted load left. It makes seven calls of
// containerd's API (api/services/{snapshots,leases,introspection}/v1) over the
// standard library's HTTP/2: containerd's own client would double the size of the
// program, and take megabytes of memory.
type snapshots struct {
	http        *http.Client
	namespace   string
	snapshotter string
}

// containerdSockets are the places of containerd's socket for an engine that does not
// report it (before 27.0): the engine's own below /run/docker, or the system's.
var containerdSockets = []string{"/run/docker/containerd/containerd.sock", "/run/containerd/containerd.sock"}

// openSnapshots finds the engine's containerd. It returns nil if it cannot be
// reached.
func (e *Engine) openSnapshots(ctx context.Context) (*snapshots, error) {
	info, err := e.system(ctx)
	if err != nil {
		return nil, err
	}
	root, err := e.root(ctx)
	if err != nil || root == "" {
		return nil, err
	}
	namespace, sockets := "moby", containerdSockets
	if c := info.Containerd; c != nil && c.Address != "" {
		sockets = []string{c.Address}
		if c.Namespaces.Containers != "" {
			namespace = c.Namespaces.Containers
		}
	}
	for _, socket := range sockets {
		if fi, err := os.Stat(socket); err == nil && fi.Mode()&os.ModeSocket != 0 {
			return newSnapshots(socket, namespace, info.Driver), nil
		}
	}
	return nil, nil
}

func newSnapshots(socket, namespace, snapshotter string) *snapshots {
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	return &snapshots{
		http: &http.Client{Transport: &http.Transport{
			Protocols: &h2c,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", socket)
			},
		}},
		namespace: namespace, snapshotter: snapshotter,
	}
}

// Close ends the connection.
func (s *snapshots) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

const (
	snapshotService      = "snapshots.v1.Snapshots/"
	leaseService         = "leases.v1.Leases/"
	introspectionService = "introspection.v1.Introspection/"
)

// roots returns the directories of the plugins that keep something of images,
// by the plugin's id: "content", "bolt" and the snapshotter. A PluginsResponse
// has in field 1 a plugin (id 2, exports 5: key 1, value 2), repeated.
func (s *snapshots) roots(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply, err := s.call(ctx, introspectionService+"Plugins", nil)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	plugins, err := readProto(reply)
	if err != nil {
		return nil, err
	}
	roots := map[string]string{}
	for _, p := range plugins {
		fields, err := readProto([]byte(p.value))
		if err != nil {
			return nil, err
		}
		id := fields.get(2)
		if id != "content" && id != "bolt" && id != s.snapshotter {
			continue
		}
		for _, f := range fields {
			if f.number != 5 {
				continue
			}
			export, err := readProto([]byte(f.value))
			if err != nil {
				return nil, err
			}
			if root := export.get(2); export.get(1) == "root" && path.IsAbs(root) {
				roots[id] = root
			}
		}
	}
	return roots, nil
}

// viewPrefix begins the keys of our views.
const viewPrefix = "mender-app-"

var views atomic.Int64

// dir opens the directory that the uppermost layer of a chain was unpacked to.
// The directory stays while an image has the layer. dir makes a view to find it, and
// removes the view again at once.
func (s *snapshots) dir(ctx context.Context, chain image.Digest) (*os.Root, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	key := fmt.Sprintf(viewPrefix+"%d-%d-%d", os.Getpid(), time.Now().UnixNano(), views.Add(1))
	reply, err := s.call(ctx, snapshotService+"View", protoFields{{1, s.snapshotter}, {2, key}, {3, chain.String()}}.message())
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", chain, err)
	}
	// If this fails, containerd collects the view later.
	_, _ = s.call(context.WithoutCancel(ctx), snapshotService+"Remove", protoFields{{1, s.snapshotter}, {2, key}}.message())
	dir, err := upperOf(reply)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", chain, err)
	}
	return os.OpenRoot(dir)
}

// remove removes the snapshot of a chain, and the remains of unpacking a layer on top
// of it; it reports whether there was a snapshot.
func (s *snapshots) remove(ctx context.Context, chain image.Digest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	left, others, err := s.above(ctx, chain)
	if err != nil {
		return false, err
	}
	for _, key := range left {
		if _, err := s.call(ctx, snapshotService+"Remove", protoFields{{1, s.snapshotter}, {2, key}}.message()); err != nil {
			return false, fmt.Errorf("snapshot %s: %w", key, err)
		}
	}
	_, err = s.call(ctx, snapshotService+"Remove", protoFields{{1, s.snapshotter}, {2, chain.String()}}.message())
	var failed *grpcError
	if errors.As(err, &failed) && failed.status == grpcNotFound {
		return false, nil
	}
	if err != nil && len(others) > 0 {
		return false, fmt.Errorf("snapshot %s, on which there are %q: %w", chain, others, err)
	}
	if err != nil {
		return false, fmt.Errorf("snapshot %s: %w", chain, err)
	}
	return true, nil
}

// above returns the keys of the snapshots on top of a chain. left are our own views,
// and those that a layer was being unpacked into, "extract-<number> <chain>"
// (containerd, core/snapshots.UnpackKeyPrefix); others are the rest. Each message of
// the reply has in field 1 a snapshot (name 1), repeated.
func (s *snapshots) above(ctx context.Context, chain image.Digest) (left, others []string, err error) {
	messages, err := s.exchange(ctx, snapshotService+"List", protoFields{{1, s.snapshotter}, {2, fmt.Sprintf("parent==%q", chain)}}.message())
	if err != nil {
		return nil, nil, fmt.Errorf("snapshots on %s: %w", chain, err)
	}
	for _, m := range messages {
		infos, err := readProto(m)
		if err != nil {
			return nil, nil, err
		}
		for _, info := range infos {
			fields, err := readProto([]byte(info.value))
			if err != nil {
				return nil, nil, err
			}
			if name := fields.get(1); strings.HasPrefix(name, "extract-") || strings.HasPrefix(name, viewPrefix) {
				left = append(left, name)
			} else {
				others = append(others, name)
			}
		}
	}
	return left, others, nil
}

// upperOf reads a ViewSnapshotResponse: field 1 is a mount (type 1, source 2,
// options 4), repeated.
func upperOf(reply []byte) (string, error) {
	mounts, err := readProto(reply)
	if err != nil {
		return "", err
	}
	if len(mounts) == 1 && mounts[0].number == 1 {
		fields, err := readProto([]byte(mounts[0].value))
		if err != nil {
			return "", err
		}
		var options []string
		for _, f := range fields {
			if f.number == 4 {
				options = append(options, f.value)
			}
		}
		if dir := imagestore.Upper(fields.get(1), fields.get(2), options); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("the snapshotter has no directory of the layer")
}
