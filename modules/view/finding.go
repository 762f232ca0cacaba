package view

import "github.com/mender-app/mender-app/submodules"

// Finding is one line of mender-app doctor.
type Finding struct {
	Status string `json:"status"` // one of the constants below
	Check  string `json:"check"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"` // what to do about it
}

// The statuses of a finding.
const (
	FindingOK   = "ok"
	FindingWarn = "warn" // works, but not as well as it could
	FindingFail = "fail" // something will not work
)

// Checkup is what was found on a device.
type Checkup struct {
	Findings []Finding
	Engines  []submodules.Engine // those that answered
}
