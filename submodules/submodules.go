// Package submodules is the sub-module API of mender-app, both sides of it.
//
// A sub-module is an executable that knows one orchestrator. The caller's side
// (Find, Module) runs it. The sub-module's side (Orchestrator, Session, Main) is the
// frame that sub-modules in Go are written in. PROTOCOL.md describes the protocol; a
// test compares it with the constants here.
//
// The package must not know any orchestrator, image store, artifact or Mender.
package submodules

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
)

// Protocol is the version this package speaks. A sub-module that does not know
// the verb PROTOCOL speaks version 1.0, which has no features.
const Protocol = "1.1"

// DefaultDir is where sub-modules are installed.
const DefaultDir = "/usr/share/mender/app-modules/v1"

// The verbs. VerbLsComponents is the older name of VerbList.
const (
	VerbExportManifest = "EXPORT_MANIFEST"
	VerbSave           = "SAVE"
	VerbLoad           = "LOAD"
	VerbList           = "LIST"
	VerbLsComponents   = "LS_COMPONENTS"
	VerbDelete         = "DELETE"
	VerbRollout        = "ROLLOUT"
	VerbRollback       = "ROLLBACK"
	VerbPurge          = "PURGE"
	VerbStop           = "STOP"
	VerbStart          = "START"
	VerbAlive          = "ALIVE"
	VerbHealthy        = "HEALTHY"
	VerbReqs           = "REQS"
	VerbProtocol       = "PROTOCOL"
	VerbVerify         = "VERIFY"
	VerbSync           = "SYNC"
	VerbRepair         = "REPAIR"
	VerbStorage        = "STORAGE"
	VerbEngine         = "ENGINE"
	VerbRestore        = "RESTORE"
	VerbStatus         = "STATUS"
	VerbLogs           = "LOGS"
	VerbCheck          = "CHECK"
	VerbRender         = "RENDER"
	VerbVolumes        = "VOLUMES"
	VerbRun            = "RUN"
)

// The features a sub-module may announce in its Info.
const (
	FeatureStream     = "stream"      // LOAD accepts the path "-": content on standard input
	FeatureStage      = "stage"       // LOAD knows the option "stage"
	FeatureComponents = "components"  // MENDER_APP_COMPONENTS is honoured
	FeatureDelta      = "delta/1"     // LOAD rebuilds from a mender-app delta, format 1
	FeatureShared     = "shared/1"    // LOAD takes a delta with shared content before it
	FeatureVcdiff     = "vcdiff"      // LOAD reads the shell reference's xdelta3 deltas
	FeatureVerify     = "verify"      // VERIFY is there
	FeatureSync       = "sync"        // SYNC is there
	FeatureRepair     = "repair"      // REPAIR is there
	FeatureStorage    = "storage"     // STORAGE is there
	FeatureAnnounced  = "announced"   // LOAD refuses content that is not what the metadata announces
	FeatureEngine     = "engine"      // ENGINE is there
	FeatureSecrets    = "secrets"     // encrypted secrets are decrypted; RESTORE is there
	FeatureStatus     = "status"      // STATUS is there
	FeatureStatuses   = "statuses/1"  // STATUS takes several applications
	FeatureLogs       = "logs/1"      // LOGS is there
	FeatureCheck      = "check/1"     // CHECK is there
	FeatureServices   = "services/1"  // MENDER_APP_DISABLED is honoured
	FeatureDowntime   = "downtime/1"  // ROLLOUT and ROLLBACK tell how long services were down
	FeatureOverrides  = "overrides/1" // MENDER_APP_OVERRIDES is honoured; RENDER is there
	FeatureValues     = "values/1"    // MENDER_APP_VALUES is honoured
	FeatureCPUSet     = "cpuset/1"    // MENDER_APP_CPUSET is honoured
	FeatureData       = "data/1"      // STOP knows the option "remove"; VOLUMES is there
	FeatureRun        = "run/1"       // RUN is there
)

// The words of OPTIONS.
const (
	OptionDeepDelta = "deep_delta" // the content is a deep delta, the reference's or ours
	OptionDelta     = "delta"      // the content is a mender-app delta
	OptionDistrust  = "distrust"   // LOAD verifies what is present already, and loads it again where it is not whole
	OptionFinish    = "finish"     // REPAIR only ends what it has begun
	OptionFirst     = "first"      // PURGE also removes the volumes that the first ROLLOUT of the release made
	OptionFollow    = "follow"     // LOGS goes on with what is written from now on
	OptionMake      = "make"       // VOLUMES makes the volumes that are not there yet
	OptionProbe     = "probe"      // RUN only makes sure that it could run the command
	OptionRemove    = "remove"     // STOP also removes the containers, so that nothing restarts them
	OptionSecrets   = "secrets"    // REQS makes sure that encrypted secrets can be decrypted
	OptionStage     = "stage"      // LOAD keeps the component under the application's own reference only
)

// The environment of a call, beside PATH, HOME, LANG and what the
// configuration of the orchestrator's own tools needs.
const (
	EnvTempDir    = "MODULE_TMPDIR"
	EnvOptions    = "OPTIONS"
	EnvPlatform   = "MENDER_APP_UPDATE_MODULE_PLATFORM"
	EnvComponents = "MENDER_APP_COMPONENTS"
	EnvDeadline   = "MENDER_APP_DEADLINE"
	EnvPurgeData  = "MENDER_APP_PURGE_DATA"
	EnvConfigDir  = "MENDER_APP_CONFIG_DIR"
	EnvStore      = "MENDER_APP_STORE"
	EnvRecipients = "MENDER_APP_RECIPIENTS"
	EnvLogLines   = "MENDER_APP_LOG_LINES"
	EnvDisabled   = "MENDER_APP_DISABLED"
	EnvOverrides  = "MENDER_APP_OVERRIDES"
	EnvValues     = "MENDER_APP_VALUES"
	EnvCPUSet     = "MENDER_APP_CPUSET"
	EnvOldVersion = "MENDER_APP_OLD_VERSION"
	EnvNewVersion = "MENDER_APP_NEW_VERSION"
)

// DefaultConfigDir is where sub-modules read their settings
// (mender-app-<name>.conf), unless EnvConfigDir says otherwise.
const DefaultConfigDir = "/etc/mender"

// passedEnv names the variables passed on from the caller's environment: only those
// needed to find and reach the orchestrator's tools.
var passedEnv = []string{
	"PATH", "HOME", "LANG",
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION",
	"KUBECONFIG", "CONTAINERD_ADDRESS", "XDG_RUNTIME_DIR",
	EnvConfigDir,
}

// Info is a sub-module's answer to PROTOCOL.
type Info struct {
	Protocol string   `json:"protocol"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Features []string `json:"features"`
	// Env are the names that an artifact's metadata may set in its environment, in
	// addition to names.AlwaysEnv.
	Env []string `json:"env,omitempty"`
}

// TakesEnv reports whether the metadata may set a name in the sub-module's
// environment.
func (i Info) TakesEnv(name string) bool {
	return names.CheckEnv(name) == nil && (slices.Contains(names.AlwaysEnv, name) || slices.Contains(i.Env, name))
}

// Engine is what runs the containers: an engine or a cluster.
type Engine struct {
	Name    string `json:"name"`    // docker, podman, kubernetes
	Version string `json:"version"` // in its own words: 20.10.24+dfsg1, v1.29.4+k3s1
	// Compose is the version of Docker Compose that brings applications up, such as 2.26.1;
	// "" if there is none.
	Compose string `json:"compose,omitempty"`
}

// Has reports whether the sub-module announces the feature.
func (i Info) Has(feature string) bool {
	for _, f := range i.Features {
		if f == feature {
			return true
		}
	}
	return false
}

// Component is one part of an application, usually an image. Digest and DiffIDs are
// its identity: for an image the digest of its configuration and those of its
// uncompressed layers ("sha256:<hex>").
type Component struct {
	Type           string          `json:"type"`
	URL            string          `json:"url"`
	Digest         digest.Digest   `json:"digest,omitempty"`
	DiffIDs        []digest.Digest `json:"diff_ids,omitempty"`
	Bases          []Component     `json:"bases,omitempty"`     // with LOAD: the bases of its delta, that of CurrentURL first
	Announced      *Announced      `json:"announced,omitempty"` // with LOAD: what the artifact's metadata says about the content
	AdditionalData json.RawMessage `json:"additional_data,omitempty"`
	App            string          `json:"application,omitempty"` // with STATUS of several applications: whose it is
}

// Announced is the description of a LOAD's content in an artifact's signed metadata.
// The content itself is not verified yet at that point: it is refused if it differs,
// and the sizes bound it.
type Announced struct {
	Format     string           `json:"format,omitempty"`      // full or delta; "": either
	ConfigSize int64            `json:"config_size,omitempty"` // bytes of the image's config
	Layers     []AnnouncedLayer `json:"layers,omitempty"`      // in the order of diff_ids; none: not announced
	Temp       int64            `json:"temp,omitempty"`        // bytes of temporary files
	Engine     int64            `json:"engine,omitempty"`      // bytes that all layers take; for an artifact that does not announce them one by one
}

// AnnouncedLayer is one layer of an Announced.
type AnnouncedLayer struct {
	Size     int64  `json:"size"`               // bytes of the uncompressed tar
	Unpacked int64  `json:"unpacked,omitempty"` // bytes of its files, if more because of sparse files
	Encoding string `json:"encoding"`           // verbatim, delta or omitted
}

// Requirement is one line of REQS: a command, and whether a missing one is an
// error or only a warning.
type Requirement struct {
	Command string
	Warning bool // missing is a warning; otherwise it is an error
}

// SplitURL splits url@sha256:<hex> into the part before the @ and the digest;
// without a digest the second is empty. The digest is not checked.
func SplitURL(url string) (ref string, d digest.Digest) {
	if i := strings.LastIndex(url, "@sha256:"); i >= 0 {
		return url[:i], digest.Digest(url[i+1:])
	}
	return url, ""
}
