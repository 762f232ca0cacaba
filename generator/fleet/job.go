package fleet

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// JobKinds are the engines that a job can be for.
var JobKinds = []string{"kubernetes", "gitlab", "github", "shell"}

// What one shard takes: the encoder keeps two processors busy, and app-gen holds its memory
// below 1400 MiB (docs/BENCHMARKS.md has the peaks of single images, up to 800 MiB).
const (
	shardCPU    = "2"
	shardMemory = "1500Mi"
	mostMemory  = "2Gi"
	// tries is how often an engine runs a shard that fails, after the first time.
	tries = 3
)

// Job says which work an engine is asked for. The paths are those on the engine.
type Job struct {
	Kind                  string // one of JobKinds
	Plan, Store, Releases string
	Shards                int
	Image                 string // container image that has app-gen; not for a shell
	Claim                 string // Kubernetes: the volume claim that is mounted at /fleet
}

// check refuses texts that need a quote somewhere: they stand in YAML and in shells.
func (j *Job) check() error {
	if !slices.Contains(JobKinds, j.Kind) {
		return &Error{Text: fmt.Sprintf("there is no engine %q", j.Kind), Hint: "it is " + strings.Join(JobKinds, ", ")}
	}
	if j.Shards < 1 || j.Shards > MaxShards {
		return &Error{Text: fmt.Sprintf("%d shards", j.Shards), Hint: fmt.Sprintf("give --shards, from 1 to %d", MaxShards)}
	}
	if most := map[string]int{"gitlab": 200, "github": 256}[j.Kind]; most > 0 && j.Shards > most {
		return &Error{Text: fmt.Sprintf("%s has at most %d jobs", j.Kind, most), Hint: "give fewer --shards: each makes more deltas"}
	}
	if j.Kind != "shell" && j.Image == "" {
		return &Error{Text: "--image is missing", Hint: "name a container image that has app-gen and sh"}
	}
	if j.Kind == "kubernetes" && j.Claim == "" {
		return &Error{Text: "--claim is missing", Hint: "name a PersistentVolumeClaim, ReadWriteMany, with the plan, the releases and the store"}
	}
	for _, s := range []string{j.Plan, j.Store, j.Releases, j.Image, j.Claim} {
		if strings.ContainsFunc(s, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@+", r))
		}) || strings.HasPrefix(s, "-") {
			return &Error{Text: fmt.Sprintf("%q has characters that a shell or YAML may take for something else", s), Hint: "use letters, digits and / . _ - : @ +"}
		}
	}
	return nil
}

// run is the command of a shard.
func (j *Job) run(shard string) string {
	return fmt.Sprintf("app-gen fleet run %s %s --releases %s --shard %s/%d", j.Plan, j.Store, j.Releases, shard, j.Shards)
}

// Write writes the job: an object of Kubernetes, a job of a CI system, or a line for a shell.
func (j *Job) Write(w io.Writer) error {
	if err := j.check(); err != nil {
		return err
	}
	var err error
	switch j.Kind {
	case "kubernetes":
		_, err = fmt.Fprintf(w, kubernetesJob, j.Shards, tries, j.Image, j.run("$((JOB_COMPLETION_INDEX + 1))"), shardCPU, shardMemory, mostMemory, j.Claim)
	case "gitlab":
		_, err = fmt.Fprintf(w, gitlabJob, j.Shards, j.Image, j.run("$CI_NODE_INDEX"))
	case "github":
		numbers := make([]string, j.Shards)
		for i := range numbers {
			numbers[i] = fmt.Sprint(i + 1)
		}
		_, err = fmt.Fprintf(w, githubJob, j.Image, strings.Join(numbers, ", "), j.run("${{ matrix.shard }}"))
	default:
		_, err = fmt.Fprintf(w, "seq %d | xargs -P %[1]d -I '{}' %s\n", j.Shards, j.run("{}"))
	}
	return err
}

// A shard that fails is tried again by itself. The secret has what reading the releases
// needs, such as APP_GEN_RELEASES_HEADER; it may be missing.
const kubernetesJob = `apiVersion: batch/v1
kind: Job
metadata:
  generateName: app-gen-fleet-
spec:
  completionMode: Indexed
  completions: %[1]d
  parallelism: %[1]d
  backoffLimitPerIndex: %[2]d
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: app-gen
          image: %[3]s
          command: ["sh", "-c", "exec %[4]s"]
          workingDir: /fleet
          envFrom:
            - secretRef: {name: app-gen-fleet, optional: true}
          resources:
            requests: {cpu: "%[5]s", memory: %[6]s}
            limits: {memory: %[7]s}
          volumeMounts:
            - {name: fleet, mountPath: /fleet}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: fleet
          persistentVolumeClaim: {claimName: %[8]s}
        - name: tmp
          emptyDir: {}
`

const gitlabJob = `fleet:
  parallel: %[1]d
  image: %[2]s
  retry: 2
  script:
    - %[3]s
`

const githubJob = `jobs:
  fleet:
    runs-on: self-hosted
    container: %[1]s
    strategy:
      fail-fast: false
      matrix:
        shard: [%[2]s]
    steps:
      - run: %[3]s
`
