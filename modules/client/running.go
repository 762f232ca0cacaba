package client

import (
	"maps"
	"reflect"
	"slices"
)

// Running describes the current release of an application.
type Running struct {
	ArtifactName string
	Provides     map[string]string // nil: unknown
}

// Belongings are what an application has in a record: the artifact of its release, and
// the names of what that provides.
type Belongings struct {
	ArtifactName string   `json:"artifact_name"`
	Provides     []string `json:"provides,omitempty"`
}

// Of returns i as it is if exactly these applications run: an operator may have gone back
// to an older release or removed an application, and an application may have been
// installed together with another one. What several applications provide stays as it is.
func (i Installed) Of(running map[string]Running) Installed {
	out := i
	out.Provides, out.Applications = maps.Clone(i.Provides), maps.Clone(i.Applications)
	by := map[string]int{} // how many applications provide a name
	for _, now := range running {
		for name := range now.Provides {
			by[name]++
		}
	}
	for app, was := range i.Applications {
		now, there := running[app]
		if there && now.Provides == nil {
			continue
		}
		for _, name := range was.Provides {
			if by[name] == 0 {
				delete(out.Provides, name)
			}
		}
		if out.Before == nil && out.ArtifactName == was.ArtifactName {
			out.ArtifactName = now.ArtifactName
		}
		if !there {
			delete(out.Applications, app)
		}
	}
	for app, now := range running {
		if now.Provides == nil {
			continue
		}
		if out.Applications == nil {
			out.Applications = map[string]Belongings{}
		}
		out.Applications[app] = Belongings{now.ArtifactName, slices.Sorted(maps.Keys(now.Provides))}
		for name, value := range now.Provides {
			if by[name] > 1 {
				continue
			}
			if out.Provides == nil {
				out.Provides = map[string]string{}
			}
			out.Provides[name] = value
		}
	}
	return out
}

// Unsettled reports whether Settle has something to write. It needs no lock.
func (c *Client) Unsettled(running map[string]Running) bool {
	r, err := c.Read()
	return err == nil && r.unsettled(running)
}

func (r *Record) unsettled(running map[string]Running) bool {
	empty := r.Installed.ArtifactName == "" && r.Installed.Provides == nil
	return r.Open == nil && !empty && !reflect.DeepEqual(r.Installed.Of(running), r.Installed)
}

// Settle records that exactly these applications run. While an update is open, and before
// the first artifact, it writes nothing. The caller holds the lock.
func (c *Client) Settle(running map[string]Running) error {
	r, err := c.Read()
	if err != nil || !r.unsettled(running) {
		return err
	}
	r.Installed = r.Installed.Of(running)
	return c.save(r)
}
