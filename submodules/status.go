package submodules

import (
	"context"
	"time"
)

// Status is the answer to STATUS. All of it is read from the engine at one time.
type Status struct {
	Alive    bool      `json:"alive"`    // as ALIVE answers
	Healthy  bool      `json:"healthy"`  // as HEALTHY answers
	Services []Service `json:"services"` // sorted by name and instance
	// Data is what PURGE with data would remove of an application that is no longer
	// installed, each in words for a person.
	Data []string `json:"data,omitempty"`
}

// Service is one instance of a service, such as a container, or a service without
// instances.
type Service struct {
	Name     string `json:"service"`
	Instance string `json:"instance,omitempty"` // the container's name; "" if it is missing
	Health   string `json:"health"`             // one of the constants below
	Image    string `json:"image,omitempty"`    // the reference that the instance was made from
	// Since is when the instance started or, if it does not run, when it ended.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`          // since the instance was made
	Failure  string    `json:"failure,omitempty"` // what is wrong or, if healthy, what was; one line
	Failed   time.Time `json:"failed,omitzero"`   // when that was, if known
	Said     string    `json:"said,omitempty"`    // with Failure: its last line of output until then
}

// The health of a service's instance.
const (
	Healthy   = "healthy"   // it runs, and no check says otherwise
	Starting  = "starting"  // it runs, and its health check has not succeeded yet
	Unhealthy = "unhealthy" // it runs, and something is wrong
	Down      = "down"      // it should run but does not
	Finished  = "done"      // it had one job and has done it
	Off       = "off"       // the manifests give it no instance, as replicas: 0 does
)

// Reporter is a Session with the feature status.
type Reporter interface {
	// Status returns the condition of the application and of each service.
	Status(ctx context.Context, r Request) (Status, error)
}
