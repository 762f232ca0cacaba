package main

import (
	"encoding/json"
	"fmt"

	"github.com/mender-app/mender-app/testdata/bed"
)

// client installs artifacts on the device: Mender's client, or mender-app.
type client interface {
	name() string
	command(verb string) []string
	// believes returns what the client records as installed: the artifact's name, then
	// its other provides.
	believes() (string, error)
}

func newClient(d *bed.Device) client {
	for _, command := range []string{"mender", "mender-update"} {
		if r, err := d.Run("sh", "-c", "command -v "+command); err == nil && r.Code == 0 {
			return menderClient{d, command}
		}
	}
	return ownClient{d}
}

type menderClient struct {
	device *bed.Device
	path   string
}

func (c menderClient) name() string { return "the Mender client" }

func (c menderClient) command(verb string) []string {
	if c.path == "mender" {
		return []string{c.path, "--no-syslog", verb}
	}
	return []string{c.path, verb}
}

func (c menderClient) believes() (string, error) {
	provides, err := c.device.Provides()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s (data-partition.shop.version %s)", provides["artifact_name"], provides["data-partition.shop.version"]), nil
}

// ownClient is for a device without Mender.
type ownClient struct{ device *bed.Device }

func (c ownClient) name() string { return "mender-app" }

func (c ownClient) command(verb string) []string {
	if verb == "install" { // the demo has no key to sign with
		return []string{"mender-app", verb, "--unsigned"}
	}
	return []string{"mender-app", verb}
}

func (c ownClient) believes() (string, error) {
	r, err := c.device.Run("mender-app", "list", "--json")
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("mender-app list: %s", r.Output())
	}
	if err != nil {
		return "", err
	}
	var apps []struct {
		Artifact string `json:"artifact_name"`
		State    string `json:"state"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &apps); err != nil || len(apps) != 1 {
		return "", fmt.Errorf("mender-app list: %s (%w)", r.Output(), err)
	}
	return fmt.Sprintf("%s (%s)", apps[0].Artifact, apps[0].State), nil
}
