package fleet

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

// What Kubernetes is asked for has its fields, and no others.
func TestKubernetesJob(t *testing.T) {
	var b bytes.Buffer
	j := Job{Kind: "kubernetes", Plan: "plan.json", Store: "store", Releases: "releases", Shards: 8, Image: "registry.example/app-gen:1", Claim: "fleet"}
	require.NoError(t, j.Write(&b))
	var job batchv1.Job
	require.NoError(t, yaml.UnmarshalStrict(b.Bytes(), &job))
	require.Equal(t, batchv1.IndexedCompletion, *job.Spec.CompletionMode)
	require.EqualValues(t, 8, *job.Spec.Completions)
	require.EqualValues(t, tries, *job.Spec.BackoffLimitPerIndex)
	c := job.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"sh", "-c", "exec app-gen fleet run plan.json store --releases releases --shard $((JOB_COMPLETION_INDEX + 1))/8"}, c.Command)
	require.Equal(t, "1500Mi", c.Resources.Requests.Memory().String())
	require.Equal(t, "fleet", job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
}

func TestCIJobs(t *testing.T) {
	for kind, want := range map[string]string{
		"gitlab": "app-gen fleet run plan.json store --releases releases --shard $CI_NODE_INDEX/3",
		"github": "app-gen fleet run plan.json store --releases releases --shard ${{ matrix.shard }}/3",
	} {
		var b bytes.Buffer
		j := Job{Kind: kind, Plan: "plan.json", Store: "store", Releases: "releases", Shards: 3, Image: "app-gen:1"}
		require.NoError(t, j.Write(&b))
		var read map[string]any
		require.NoError(t, yaml.UnmarshalStrict(b.Bytes(), &read))
		require.Contains(t, b.String(), want)
	}
}

func TestJobRefuses(t *testing.T) {
	good := Job{Kind: "shell", Plan: "plan.json", Store: "store", Releases: "releases", Shards: 3}
	for says, change := range map[string]func(*Job){
		"there is no engine":     func(j *Job) { j.Kind = "slurm" },
		"0 shards":               func(j *Job) { j.Shards = 0 },
		"at most 256":            func(j *Job) { j.Kind, j.Shards = "github", 257 },
		"--image is missing":     func(j *Job) { j.Kind = "gitlab" },
		"--claim is missing":     func(j *Job) { j.Kind, j.Image = "kubernetes", "a" },
		"has characters":         func(j *Job) { j.Store = "a b" },
		`"-x" has characters`:    func(j *Job) { j.Plan = "-x" },
		`"$(id)" has characters`: func(j *Job) { j.Releases = "$(id)" },
	} {
		j := good
		change(&j)
		require.ErrorContains(t, j.Write(&bytes.Buffer{}), says)
	}
}
