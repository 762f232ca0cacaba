package submodules

import (
	"context"
	"time"
)

// Status is the answer to STATUS. All of it comes from one look at the engine.
type Status struct {
	Alive    bool      `json:"alive"`    // as ALIVE answers
	Healthy  bool      `json:"healthy"`  // as HEALTHY answers
	Services []Service `json:"services"` // sorted by name and instance
}

// Service is one instance of a service, such as a container, or a service that has
// none.
type Service struct {
	Name     string `json:"service"`
	Instance string `json:"instance,omitempty"` // the container's name; "" if it is missing
	Health   string `json:"health"`             // one of the constants below
	// Since is when the instance was started or, if it does not run, when it ended.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`          // since the instance was made
	Failure  string    `json:"failure,omitempty"` // what is wrong or, of a healthy one, what was; one line
	Failed   time.Time `json:"failed,omitzero"`   // when that was, if it is known
	Said     string    `json:"said,omitempty"`    // with Failure: its last line of output until then
}

// The health of a service's instance.
const (
	Healthy   = "healthy"   // it runs, and no check says otherwise
	Starting  = "starting"  // it runs, and its health check has not succeeded yet
	Unhealthy = "unhealthy" // it runs, and something is wrong
	Down      = "down"      // it should run, and does not
	Finished  = "done"      // it had one job, and has done it
)

// Reporter is a Session with the feature status.
type Reporter interface {
	// Status says how the application and each of its services is.
	Status(ctx context.Context) (Status, error)
}
