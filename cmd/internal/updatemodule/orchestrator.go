package updatemodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// Mender Orchestrator calls its interfaces (mender-orchestrator/interfaces/v1) as the
// Mender client calls update modules, and adds the component's type and the
// topology's interface_args. The first of these names the application here. Mender's
// documentation, "Interface Protocol", lists the calls. This code has not run under
// the real orchestrator, which is not public.

// orchestratorDriver is the driver in the history.
const orchestratorDriver = "mender-orchestrator"

// The queries that update modules do not have.
const (
	identity  = "Identity"
	provides  = "Provides"
	inventory = "Inventory"
	unpacked  = "NeedsUnpackedArtifact"
)

// machineID identifies the machine; a test sets another file.
var machineID = "/etc/machine-id"

// component is a component of an orchestrated system: an application here.
type component struct {
	typ string
	app string // "" if the topology does not name it
}

// componentOf returns the component of an interface's call; false for the call of an
// update module.
func componentOf(args []string) (component, bool) {
	if len(args) < 3 {
		return component{}, false
	}
	c := component{typ: args[2]}
	if len(args) > 3 {
		c.app = args[3]
	}
	return c, true
}

// query answers a query that only interfaces get; asks is false for any other call.
func (c component) query(name string, w io.Writer) (asks bool, err error) {
	switch name {
	case unpacked:
		_, err := fmt.Fprintln(w, modules.Yes)
		return true, err
	case identity:
		return true, c.identify(w)
	case provides, inventory:
	default:
		return false, nil
	}
	config, err := device.Load()
	if err != nil {
		return true, err
	}
	return true, c.describe(name, config.OpenStore(), w)
}

// identify prints a name that no other component has: a keyed hash of the machine's
// ID, which is confidential.
func (c component) identify(w io.Writer) error {
	id, err := os.ReadFile(machineID)
	if err != nil {
		return fmt.Errorf("the component's identity: %w", err)
	}
	mac := hmac.New(sha256.New, []byte(strings.TrimSpace(string(id))))
	fmt.Fprintf(mac, "mender-app %s %s", c.typ, c.app)
	_, err = fmt.Fprintf(w, "id=%s-%x\n", c.typ, mac.Sum(nil)[:8])
	return err
}

// maxBases bounds how many bases the inventory names.
const maxBases = 32

// describe prints the component's provides or its inventory.
func (c component) describe(name string, s *store.Store, w io.Writer) error {
	line := func(key, value string) {
		if value = device.OneLine(value); value != "" {
			fmt.Fprintf(w, "%s=%s\n", key, value)
		}
	}
	app, err := c.application(s)
	if err != nil {
		return err
	}
	a, err := view.Read(s, app)
	if app == "" || errors.Is(err, store.ErrNoApp) {
		if name == provides { // the version is mandatory
			line("rootfs-image."+modulePayload+".version", "unknown")
		}
		return nil
	}
	if err != nil {
		return err
	}
	r, err := a.Release(a.Committed)
	if err != nil {
		r = &store.Release{Version: "unknown"}
	}
	if name == provides {
		version := r.Version
		if version == "" {
			version = r.ArtifactName
		}
		line("artifact_name", r.ArtifactName)
		line("rootfs-image."+modulePayload+".version", version)
		line("data-partition."+app+".version", r.Version)
		return nil
	}
	line("application", app)
	line("version", r.Version)
	line("state", a.State)
	for _, base := range r.Components[:min(len(r.Components), maxBases)] {
		line("base", base.URL+"@"+base.Digest.String())
	}
	return nil
}

// modulePayload is the payload type of the artifacts, and so the interface's name.
const modulePayload = "app"

// application returns the application that the topology names, or the only one on
// this device, "" for none.
func (c component) application(s *store.Store) (string, error) {
	if c.app != "" {
		return c.app, nil
	}
	names, err := s.Apps()
	switch {
	case err != nil || len(names) == 0:
		return "", err
	case len(names) > 1:
		return "", fmt.Errorf("component %s: this device has the applications %s: name one in interface_args of the topology", c.typ, strings.Join(names, ", "))
	}
	return names[0], nil
}

// accepts returns an error if the artifact is not for the component's application.
func (c component) accepts(state modules.State, application string) error {
	begins := []modules.State{modules.Download, modules.DownloadWithFileSizes, modules.ArtifactInstall}
	if c.app == "" || c.app == application || !slices.Contains(begins, state) {
		return nil
	}
	return fmt.Errorf("component %s is the application %s, but the artifact is for %s", c.typ, c.app, application)
}
