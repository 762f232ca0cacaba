package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// family is a metric in Prometheus' text format.
type family struct {
	name, kind, help string
	lines            []byte
}

// families are the metrics in the order of their first use.
type families struct {
	list   []*family
	byName map[string]*family
}

// add adds a value with labels, which are names and values in turn.
func (f *families) add(name, kind, help string, value float64, labels ...string) {
	m := f.byName[name]
	if m == nil {
		m = &family{name: name, kind: kind, help: help}
		f.list, f.byName[name] = append(f.list, m), m
	}
	m.lines = append(m.lines, name...)
	for i := 0; i < len(labels); i += 2 {
		m.lines = append(m.lines, "{,"[min(i, 1)])
		m.lines = append(append(m.lines, labels[i]...), `="`...)
		m.lines = append(append(m.lines, escape.Replace(clip.Quote(labels[i+1]))...), '"')
	}
	if len(labels) > 0 {
		m.lines = append(m.lines, '}')
	}
	m.lines = append(strconv.AppendFloat(append(m.lines, ' '), value, 'g', -1, 64), '\n')
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// Metrics returns the device's metrics in Prometheus' text format.
func (s *Server) Metrics(ctx context.Context) ([]byte, error) {
	f := &families{byName: map[string]*family{}}
	f.add("mender_app_info", "gauge", "The version of mender-app.", 1, "version", s.Version)
	apps, err := s.overviews(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range apps {
		f.application(o)
	}
	names, err := s.Store.Remembered()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s.history(f, name)
	}
	queue, err := s.readQueue()
	if err != nil {
		return nil, err
	}
	f.add("mender_app_open_deployments", "gauge", "Deployments that have not ended.", float64(len(queue.Deployments)))
	waiting := map[string]float64{}
	for _, task := range queue.Tasks {
		if task.Attempts > 0 {
			waiting["failed"]++
		} else {
			waiting["new"]++
		}
	}
	for _, state := range []string{"new", "failed"} {
		f.add("mender_app_queue_tasks", "gauge", "Tasks that wait for mender-app reconcile: new ones, and those whose last attempt failed.", waiting[state], "state", state)
	}
	f.add("mender_app_held", "gauge", "1 if updates are held (mender-app hold).", number(queue.Hold.Held))
	f.add("mender_app_locks", "gauge", "Applications that refuse updates for now.", float64(len(queue.Locks)))
	f.add("mender_app_staged", "gauge", "Staged artifacts.", float64(len(queue.Staged)))
	for _, disk := range slices.Sorted(maps.Keys(s.Disks)) {
		if free, _, err := diskspace.Free(diskspace.Existing(s.Disks[disk])); err == nil {
			f.add("mender_app_free_bytes", "gauge", "Free bytes of the file systems of the store and of the engine.", float64(free), "disk", disk)
		}
	}
	size := 0
	for _, m := range f.list {
		size += 2*len(m.name) + len(m.kind) + len(m.help) + len(m.lines) + 20
	}
	out := make([]byte, 0, size)
	for _, m := range f.list {
		out = append(fmt.Appendf(out, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind), m.lines...)
	}
	return out, nil
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// application adds the metrics of an application.
func (f *families) application(o *view.Overview) {
	f.add("mender_app_application_info", "gauge", "The release of an application that runs, or should run.", 1,
		"application", o.Name, "release", o.Release, "artifact", o.ArtifactName, "version", o.Version, "orchestrator", o.Orchestrator)
	f.add("mender_app_application_state", "gauge", "1 for the state that an application is in.", 1, "application", o.Name, "state", o.State)
	if o.Health != "" {
		f.add("mender_app_application_healthy", "gauge", "1 if an application that should run is healthy.", number(o.Health == submodules.Healthy), "application", o.Name)
		f.add("mender_app_application_health_known", "gauge", "0 if the sub-module or the engine of an application does not answer.", number(o.Health != view.Unknown), "application", o.Name)
	}
	for _, v := range o.Services {
		labels := []string{"application", o.Name, "service", v.Name, "instance", v.Instance}
		f.add("mender_app_service_healthy", "gauge", "1 if an instance of a service is healthy or has done its only job, and for a service that is to have none.", number(slices.Contains([]string{submodules.Healthy, submodules.Finished, submodules.Off}, v.Health)), labels...)
		f.add("mender_app_service_restarts", "gauge", "Restarts of an instance of a service since it was made.", float64(v.Restarts), labels...)
	}
}

// history adds the metrics from an application's history, even if it has been removed.
func (s *Server) history(f *families, name string) {
	last, totals, found, err := s.Store.Totals(name)
	if err != nil || !found {
		return // a damaged history is rebuilt by the next deployment
	}
	for _, status := range store.Statuses() {
		f.add("mender_app_deployments_total", "counter", "Deployments of an application that have ended, by their outcome.", float64(totals.Statuses[status]), "application", name, "status", status)
	}
	if !totals.Success.IsZero() {
		f.add("mender_app_last_success_timestamp_seconds", "gauge", "When the last deployment that was installed or restored ended.", seconds(totals.Success), "application", name)
	}
	f.add("mender_app_last_deployment_timestamp_seconds", "gauge", "When the last deployment ended.", seconds(last.Ended), "application", name, "status", last.Status)
	if took := last.Ended.Sub(last.Started); took >= 0 {
		f.add("mender_app_last_deployment_duration_seconds", "gauge", "How long the last deployment took, from its download to its end.", took.Seconds(), "application", name)
	}
	if m := last.Measured; m != nil {
		f.add("mender_app_last_deployment_received_bytes", "gauge", "Bytes that the last deployment received.", float64(m.Received), "application", name)
		f.add("mender_app_last_deployment_written_bytes", "gauge", "Bytes that all programs wrote to the disks of the store and the engine during the last deployment.", float64(m.Written), "application", name)
		for _, t := range m.Downtimes {
			f.add("mender_app_last_deployment_downtime_seconds", "gauge", "How long no instance of a service was ready during the last deployment, for services it restarted.", t.Seconds, "application", name, "service", t.Service)
		}
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
