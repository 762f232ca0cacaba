// Package modules is Mender's update-module protocol, version 3, on the
// module's side: the states, the file tree, the payload's streams and the
// replies. It must not know what an update is or how it is used.
//
// Source of the facts here: Mender's update-modules-v3-file-api.md, and call
// orders traced on mender-client 3.4.0 (Go) and the C++ client.
package modules

// State is the first argument of a call.
type State string

// The states of protocol 3. The C++ client has them all; 3.4.0 lacks
// ProvidePayloadFileSizes and DownloadWithFileSizes.
const (
	ProvidePayloadFileSizes      State = "ProvidePayloadFileSizes"
	Download                     State = "Download"
	DownloadWithFileSizes        State = "DownloadWithFileSizes"
	ArtifactInstall              State = "ArtifactInstall"
	NeedsArtifactReboot          State = "NeedsArtifactReboot"
	ArtifactReboot               State = "ArtifactReboot"
	ArtifactVerifyReboot         State = "ArtifactVerifyReboot"
	SupportsRollback             State = "SupportsRollback"
	ArtifactCommit               State = "ArtifactCommit"
	ArtifactRollback             State = "ArtifactRollback"
	ArtifactRollbackReboot       State = "ArtifactRollbackReboot"
	ArtifactVerifyRollbackReboot State = "ArtifactVerifyRollbackReboot"
	ArtifactFailure              State = "ArtifactFailure"
	Cleanup                      State = "Cleanup"
)

// States lists all states of the protocol.
func States() []State {
	return []State{
		ProvidePayloadFileSizes, Download, DownloadWithFileSizes, ArtifactInstall,
		NeedsArtifactReboot, ArtifactReboot, ArtifactVerifyReboot, SupportsRollback,
		ArtifactCommit, ArtifactRollback, ArtifactRollbackReboot,
		ArtifactVerifyRollbackReboot, ArtifactFailure, Cleanup,
	}
}

// Known reports whether this version knows the state. For an unknown state a module
// must print nothing and exit with 0, so the protocol can be extended.
func (s State) Known() bool {
	for _, k := range States() {
		if s == k {
			return true
		}
	}
	return false
}

// Replies to the states that ask a question. A reply is one line on standard output.
const (
	Yes = "Yes"
	No  = "No"
	// Automatic, as a reply to NeedsArtifactReboot, lets the client restart the machine
	// once for all updates.
	Automatic = "Automatic"
)

// Reply returns the answer to a state that asks a question; asks is false for
// other states. Rollback is always supported, because the module keeps the release it
// replaces until Cleanup. The module asks for the sizes of payload files to check
// free space. It needs no restart unless an application asks for one.
func Reply(s State) (answer string, asks bool) {
	switch s {
	case ProvidePayloadFileSizes, SupportsRollback:
		return Yes, true
	case NeedsArtifactReboot:
		return No, true
	}
	return "", false
}
