package store

import (
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/quickjson"
)

// This file reads documents in their usual form, that of applications at rest. A status
// of many applications reads three documents for each. encoding/json reads documents in
// any other form. A field not named here makes a document unusual, so nothing is lost.

// quick reads a state, and reports whether it could.
func (s *State) quick(data []byte) bool {
	var fast State
	r := quickjson.Of(data)
	r.Object(func(name []byte) {
		switch string(name) {
		case "format":
			fast.Format = int(r.Int(32))
		case "application":
			fast.Application = r.String()
		case "sequence":
			fast.Sequence = r.Int(64)
		case "current":
			fast.Current = r.String()
		case "kept":
			fast.Kept = r.Strings()
		case "stopped":
			fast.Stopped = r.Bool()
		case "applied":
			fast.Applied = r.String()
		case "values":
			fast.Values = r.String()
		default:
			r.Fail()
		}
	})
	if r.Whole() {
		*s = fast
	}
	return r.Whole()
}

// quick reads a release, and reports whether it could.
func (r *Release) quick(data []byte) bool {
	var fast Release
	in := quickjson.Of(data)
	in.Object(func(name []byte) {
		switch string(name) {
		case "format":
			fast.Format = int(in.Int(32))
		case "id":
			fast.ID = in.String()
		case "application":
			fast.Application = in.String()
		case "artifact_name":
			fast.ArtifactName = in.String()
		case "application_version":
			fast.Version = in.String()
		case "orchestrator":
			fast.Orchestrator = in.String()
		case "platform":
			fast.Platform = in.String()
		case "env":
			once(in, fast.Env == nil)
			in.Into(&fast.Env)
		case "components":
			once(in, fast.Components == nil)
			fast.Components = components(in)
		case "policy":
			fast.Policy = in.Raw()
		case "statement":
			fast.Statement = in.Raw()
		case "created":
			fast.Created = in.Time()
		case "boot_id":
			fast.BootID = in.String()
		case "complete":
			fast.Complete = in.Bool()
		default:
			in.Fail()
		}
	})
	if in.Whole() {
		*r = fast
	}
	return in.Whole()
}

// once fails if a field occurs twice: encoding/json would merge the values.
func once(in *quickjson.Reader, first bool) {
	if !first {
		in.Fail()
	}
}

// components reads the components of a release.
func components(in *quickjson.Reader) []Component {
	list := []Component{}
	in.Array(func() {
		var c Component
		in.Object(func(name []byte) {
			switch string(name) {
			case "type":
				c.Type = in.String()
			case "url":
				c.URL = in.String()
			case "digest":
				c.Digest = digest.Digest(in.String())
			case "diff_ids":
				c.DiffIDs = []digest.Digest{}
				in.Array(func() { c.DiffIDs = append(c.DiffIDs, digest.Digest(in.String())) })
			default:
				in.Fail()
			}
		})
		list = append(list, c)
	})
	return list
}

// quick reads a line of the history without the steps, and reports whether it could.
func (l *brief) quick(data []byte) bool {
	var fast brief
	in := quickjson.Of(data)
	in.Object(func(name []byte) {
		switch string(name) {
		case "id":
			fast.ID = in.String()
		case "number":
			fast.Number = in.Int(64)
		case "application":
			fast.Application = in.String()
		case "artifact_name":
			fast.ArtifactName = in.String()
		case "from":
			fast.From = in.String()
		case "to":
			fast.To = in.String()
		case "status":
			fast.Status = in.String()
		case "driver":
			fast.Driver = in.String()
		case "asked":
			once(in, fast.Asked == nil)
			fast.Asked = asked(in)
		case "started":
			fast.Started = in.Time()
		case "ended":
			fast.Ended = in.Time()
		case "error":
			fast.Error = in.String()
		case "steps":
			in.Skip()
		case "measured":
			once(in, fast.Measured == nil)
			fast.Measured = measured(in)
		case "changed":
			once(in, fast.Changed == nil)
			in.Into(&fast.Changed)
		case "totals":
			once(in, fast.Totals == nil)
			fast.Totals = totals(in)
		default:
			in.Fail()
		}
	})
	if in.Whole() {
		*l = fast
	}
	return in.Whole()
}

func asked(in *quickjson.Reader) *Asked {
	a := &Asked{}
	in.Object(func(name []byte) {
		switch string(name) {
		case "how":
			a.How = in.String()
		case "user":
			a.User = in.String()
		case "event":
			a.Event = in.String()
		default:
			in.Fail()
		}
	})
	return a
}

func measured(in *quickjson.Reader) *Measured {
	m := &Measured{}
	in.Object(func(name []byte) {
		switch string(name) {
		case "received":
			m.Received = in.Int(64)
		case "written":
			m.Written = in.Int(64)
		case "downtimes":
			once(in, m.Downtimes == nil)
			m.Downtimes = []Downtime{}
			in.Array(func() { m.Downtimes = append(m.Downtimes, downtime(in)) })
		default:
			in.Fail()
		}
	})
	return m
}

func downtime(in *quickjson.Reader) (d Downtime) {
	in.Object(func(name []byte) {
		switch string(name) {
		case "service":
			d.Service = in.String()
		case "seconds":
			d.Seconds = in.Float()
		case "since":
			d.Since = in.Time()
		default:
			in.Fail()
		}
	})
	return d
}

func totals(in *quickjson.Reader) *Totals {
	t := &Totals{}
	in.Object(func(name []byte) {
		switch string(name) {
		case "statuses":
			once(in, t.Statuses == nil)
			t.Statuses = map[string]int64{}
			in.Object(func(status []byte) { t.Statuses[string(status)] = in.Int(64) })
		case "success":
			t.Success = in.Time()
		default:
			in.Fail()
		}
	})
	return t
}
