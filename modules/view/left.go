package view

import (
	"context"
	"slices"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Left is the data of an application that was removed without it.
type Left struct {
	Application string
	Data        []string // what PURGE with data would remove, each in words for a person
}

// Left finds the data of applications that are no longer installed. Each of the orchestrators
// is asked; one that gives no answer has none.
func (v *Viewer) Left(ctx context.Context, s *store.Store, orchestrators []string) ([]Left, error) {
	gone, err := s.Remembered()
	if err != nil {
		return nil, err
	}
	apps, err := s.Apps()
	if err != nil {
		return nil, err
	}
	gone = slices.DeleteFunc(gone, func(name string) bool { return slices.Contains(apps, name) })
	if len(gone) == 0 {
		return nil, nil
	}
	data := map[string][]string{}
	for _, orchestrator := range orchestrators {
		v.askLeft(ctx, orchestrator, gone, func(app string, st submodules.Status) {
			data[app] = append(data[app], st.Data...)
		})
	}
	var left []Left
	for _, name := range gone {
		if len(data[name]) > 0 {
			left = append(left, Left{name, data[name]})
		}
	}
	return left, nil
}

func (v *Viewer) askLeft(ctx context.Context, orchestrator string, gone []string, each func(app string, s submodules.Status)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := v.describe(ctx, orchestrator)
	if err != nil || !m.info.Has(submodules.FeatureStatus) {
		return
	}
	together := 1
	if m.info.Has(submodules.FeatureStatuses) {
		together = submodules.MaxApps
	}
	for group := range slices.Chunk(gone, together) {
		if len(group) > 1 {
			_ = m.Statuses(ctx, submodules.Request{}, group, each)
		} else if st, err := m.Status(ctx, submodules.Request{App: group[0]}); err == nil {
			each(group[0], st)
		}
	}
}
