package rules

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"strconv"
)

// secretUse is how a service uses a secret.
type secretUse struct {
	Source string          `json:"source"`
	UID    string          `json:"uid"`
	GID    string          `json:"gid"`
	Mode   json.RawMessage `json:"mode"` // octal in a string, or a number
}

// Owner is what services ask for a secret's file.
type Owner struct {
	UID, GID int
	Mode     *fs.FileMode // nil: that of the file
}

// Owner returns the owner and the mode of the file of an encrypted secret. Its services
// share one decrypted file, so they must ask for the same.
func (m *Model) Owner(secret string) (o Owner, err error) {
	first := ""
	var use secretUse
	for _, service := range m.names() {
		for _, u := range m.Services[service].Secrets {
			switch {
			case u.Source != secret:
				continue
			case first == "":
				first, use = service, u
			case u.UID != use.UID || u.GID != use.GID || !bytes.Equal(u.Mode, use.Mode):
				return o, refused("services %s and %s want the encrypted secret %s with another uid, gid or mode: give it two names", first, service, secret)
			}
		}
	}
	for _, id := range []struct {
		text string
		to   *int
	}{{use.UID, &o.UID}, {use.GID, &o.GID}} {
		if id.text == "" {
			continue
		}
		if *id.to, err = strconv.Atoi(id.text); err != nil || *id.to < 0 || *id.to > 1<<31-1 {
			return o, refused("service %s: secret %s: %q is not a number of a user or group", first, secret, id.text)
		}
	}
	if len(use.Mode) == 0 || string(use.Mode) == "null" {
		return o, nil
	}
	text, base := string(use.Mode), 10
	if json.Unmarshal(use.Mode, &text) == nil {
		base = 8
	}
	mode, err := strconv.ParseUint(text, base, 32)
	if err != nil || mode > 0o777 {
		return o, refused("service %s: secret %s: mode %s is not one of permissions alone", first, secret, use.Mode)
	}
	is := fs.FileMode(mode)
	o.Mode = &is
	return o, nil
}
