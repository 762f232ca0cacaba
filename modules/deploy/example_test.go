package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// printer is a sub-module that prints what it is asked to do. On a device, a
// *submodules.Module runs one.
type printer struct{}

// Call answers the verbs that an application without images needs.
func (printer) Call(_ context.Context, verb string, r submodules.AnyRequest) ([]byte, error) {
	switch verb {
	case submodules.VerbProtocol:
		return json.Marshal(submodules.Info{Protocol: submodules.Protocol, Name: "printer", Features: []string{submodules.FeatureSync}})
	case submodules.VerbRollout:
		about := r.Common()
		text, err := os.ReadFile(filepath.Join(about.Dir, "compose.yaml"))
		fmt.Printf("  rollout of %s: %s\n", about.App, text)
		return nil, err
	case submodules.VerbHealthy:
		return []byte("true\n"), nil
	case submodules.VerbReqs, submodules.VerbSync:
		return nil, nil
	}
	return nil, fmt.Errorf("%s: not printed", verb)
}

// writeTree makes the file tree that the Mender client gives a module, with the
// payload stored in files/.
func writeTree(dir, name string) error {
	meta, err := (&artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: "shop", Orchestrator: "printer", Platform: "linux/amd64",
	}).Encode()
	if err != nil {
		return err
	}
	var manifests bytes.Buffer
	if _, err := artifact.WriteManifests(&manifests, fstest.MapFS{"compose.yaml": {Data: []byte("this is " + name)}}); err != nil {
		return err
	}
	return os.CopyFS(dir, fstest.MapFS{
		"header/artifact_name":   {Data: []byte(name)},
		"header/meta-data":       {Data: meta},
		"files/manifests.tar.gz": {Data: manifests.Bytes()},
	})
}

// The Mender client calls the update module once for each state of an update;
// each call is handled by an Engine over the same store.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	engine := &deploy.Engine{
		Store: store.At(filepath.Join(dir, "store")),
		Find:  func(string) (submodules.Client, error) { return submodules.Client{Caller: printer{}}, nil },
		Log:   slog.New(slog.DiscardHandler),
		Keep:  1,
	}
	for _, name := range []string{"shop-1", "shop-2"} {
		if err := writeTree(filepath.Join(dir, name), name); err != nil {
			fmt.Println(err)
			return
		}
		tree, err := modules.OpenTree(filepath.Join(dir, name))
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, state := range []modules.State{modules.ArtifactInstall, modules.ArtifactCommit, modules.Cleanup} {
			fmt.Println(name, state)
			if err := engine.Handle(ctx, state, tree); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	back, err := engine.GoBack(ctx, "shop", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("back to", back.ID)

	// Output:
	// shop-1 ArtifactInstall
	//   rollout of shop: this is shop-1
	// shop-1 ArtifactCommit
	// shop-1 Cleanup
	// shop-2 ArtifactInstall
	//   rollout of shop: this is shop-2
	// shop-2 ArtifactCommit
	// shop-2 Cleanup
	//   rollout of shop: this is shop-1
	// back to 1-shop-1
}
