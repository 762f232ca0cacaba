package submodules

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/stretchr/testify/require"
)

// PROTOCOL.md is the protocol's home; the code must not say anything else.
func TestProtocolDocument(t *testing.T) {
	b, err := os.ReadFile("PROTOCOL.md")
	require.NoError(t, err)
	doc := string(b)
	require.Contains(t, doc, "version "+Protocol)
	for _, v := range verbs() {
		require.Contains(t, doc, "| `"+strings.TrimSpace(v.name+" "+v.args)+"` |")
	}
	for _, c := range codeText {
		require.Contains(t, doc, fmt.Sprintf("| %d | ", c.code))
	}
	require.Len(t, codes, len(codeText)-1, "one sentinel a code, none for 0")
	for _, n := range append(append([]string{}, passedEnv...), names.AlwaysEnv...) {
		require.Contains(t, doc, "`"+n+"`")
	}
	for _, e := range envText {
		require.Contains(t, doc, "`"+e.name+"`")
	}
	for _, f := range []string{FeatureStream, FeatureStage, FeatureComponents, FeatureDelta, FeatureVcdiff, FeatureVerify, FeatureSync,
		FeatureRepair, FeatureStorage, FeatureAnnounced, FeatureEngine, VerbEngine, FeatureSecrets, VerbRestore, FeatureStatus, FeatureStatuses, FeatureLogs, FeatureCheck, FeatureServices, FeatureDowntime, FeatureOverrides, FeatureValues, FeatureData, FeatureCPUSet, FeatureRun, OptionProbe, OptionMake, OptionRemove, OptionFirst, OptionFollow, Healthy, Starting, Unhealthy, Down, Finished,
		OptionSecrets, OptionDeepDelta, OptionDelta, OptionStage, OptionDistrust, OptionFinish, DefaultDir, DefaultConfigDir} {
		require.Contains(t, doc, f)
	}
}
