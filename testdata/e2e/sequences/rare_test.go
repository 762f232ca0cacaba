package sequences

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

const (
	otherFile = `printf 'services:\n  web: {image: "shop/stock:1", ports: ["8080:8080"]}\n  more: {image: "shop/stock:1"}\n' >/tmp/other.yaml; docker compose -p shop -f /tmp/other.yaml up -d --pull never`
	inside    = "docker rm -f shop-web-1 shop-stock-1; docker network rm shop_default; docker network create --internal --label com.docker.compose.project=shop --label com.docker.compose.network=default shop_default"
	forged    = `labels=$(docker inspect -f '{{range $k, $v := .Config.Labels}}--label={{$k}}={{$v}} {{end}}' shop-stock-1); docker commit shop-stock-1 forged:1; docker rm -f shop-stock-1; docker run -d --name shop-stock-1 --network shop_default --network-alias stock -p 8081:8080 -v shop_counts:/var/shop $labels forged:1`
	pruned    = "a prune of everything"
	stranger  = "docker run -d --name stranger --network shop_default shop/stock:1"
)

// rare is what a person does once, in each state of a deployment. The tests of what an engine
// loses and people do share the work; L is submodules/compose.TestPutsRightWhatIsLost, E
// slow.TestEachLossInEachWay, S TestSequences and R TestRareSequences:
//
//	what                                  update,    resume,    before, in ROLLOUT,
//	                                      rollback,  reconcile  before the commit, and
//	                                      START                 commit or rollback
//	network gone                          L E        E          S
//	  of another kind, made by hand       L                     R
//	  disconnected, connected again       L                     S R
//	container gone                        L E        E          S R
//	  half made                           L E        E          R
//	  paused, stopped, killed             L E (1)    E (1)      S
//	  renamed, names changed              L                     R
//	  its name is somebody else's         L (2)                 R
//	  from another image, policy changed  L                     R
//	  more of it, fewer of it             L                     R
//	tags gone or moved                    L E        E          S
//	  every name of an image              E          E          R
//	volume gone                           E          E          S R
//	mounted files gone                    L E        E
//	files of the store gone, hollow       E          E
//	limits changed                        L
//	bridges gone                          E          E          R
//	firewall's rules gone                 E          E
//	data root without containers          E          E
//	project renamed, other files          L E        E          R (3)
//	connection without a container        E          E
//	everything pruned                                           R
//
// (1) E has paused ones alone. (2) TestNameOfOthers. (3) Other files alone.
var rare = map[string][]string{
	"another file":                   {otherFile},
	"another file without orphans":   {otherFile + " --remove-orphans"},
	"an internal network":            {inside},
	"an internal network, and up":    {inside, byHand + "up -d --pull never"},
	"a new name":                     {"docker rename shop-web-1 kiosk"},
	"a new name, and another has it": {"docker rename shop-web-1 kiosk", "docker run -d --name shop-web-1 shop/stock:1"},
	"a stop, and the volume":         {"mender-app stop shop", "docker rm -f shop-web-1 shop-stock-1", "docker volume rm shop_counts", "mender-app start shop"},
	"a committed image":              {"docker commit shop-web-1 shop/web:1", "docker tag shop/web:1 shop/web:2", "docker rm -f shop-web-1", byHand + "up -d --pull never"},
	"a stranger in the network":      {stranger},
	"a stranger alone in it":         {stranger, "docker rm -f shop-web-1 shop-stock-1"},
	"another network":                {"docker network create elsewhere", "docker network disconnect shop_default shop-web-1", "docker network connect elsewhere shop-web-1"},
	"down with volumes":              {byHand + "down -v"},
	"everything":                     {"docker rm -f $(docker ps -aq)", "docker network prune -f", "docker volume prune -f"},
	"no policy, and a kill":          {"docker update --restart no shop-web-1", "docker kill shop-web-1"},
	"fewer of it":                    {byHand + "up -d --pull never --scale web=0"},
	"half made":                      {byHand + "rm -sf stock", byHand + "create --pull never stock"},
	"names for each other":           {"docker rename shop-web-1 between", "docker rename shop-stock-1 shop-web-1", "docker rename between shop-stock-1"},
	"connected again":                {"docker network disconnect shop_default shop-web-1", "docker network connect shop_default shop-web-1"},
	"another image with the labels":  {forged},
	"every name of an image":         {`docker ps -q | xargs docker inspect -f '{{.Image}}' | sort -u | xargs docker image inspect -f '{{join .RepoTags "\n"}}' | xargs docker rmi -f`},
	"a bridge":                       {"docker stop -t 1 shop-web-1 shop-stock-1", "ip link delete br-$(docker network ls --no-trunc -q -f name=shop_default | cut -c1-12)"},
	pruned:                           {"docker system prune -af --volumes"},
	"a run beside it":                {byHand + "run -d --no-deps web"},
}

// cleanup is what a person removes again who has put something of his own beside the
// application.
const cleanup = `for c in $(docker ps -aq); do
	[ -n "$(docker inspect -f '{{index .Config.Labels "com.docker.compose.project"}}' $c)" ] || docker rm -f $c
done
docker rm -f shop-more-1 $(docker ps -aq --filter label=com.docker.compose.oneoff=True); docker network rm elsewhere; true`

// ends are how the client ends a deployment.
var ends = []string{"commit", "rollback"}

// What people do to the engine once in a while ends as the sequences do. MENDER_APP_SEQUENCES
// is how many of all combinations with a state and an end are tried, and MENDER_APP_RARE an
// expression for the names of those that are tried in each state with each end.
func TestRareSequences(t *testing.T) {
	count, seed, only := number("MENDER_APP_SEQUENCES", 5), number("MENDER_APP_SEED", time.Now().UnixNano()%1e6), os.Getenv("MENDER_APP_RARE")
	chosen, err := regexp.Compile("^(" + only + ")$")
	require.NoError(t, err)
	t.Logf("MENDER_APP_SEED=%d MENDER_APP_SEQUENCES=%d", seed, count)
	names := slices.Sorted(maps.Keys(rare))
	type try struct{ what, state, end string }
	var tries []try
	for _, i := range rand.New(rand.NewPCG(uint64(seed), 0)).Perm(len(names) * len(states) * len(ends)) {
		name := names[i/len(ends)/len(states)]
		state, end := states[i/len(ends)%len(states)], ends[i%len(ends)]
		if name == pruned && state == states[2] && end == "rollback" {
			continue // nobody can go back: the images of the release before are gone
		}
		if only != "" && chosen.MatchString(name) || only == "" && int64(len(tries)) < count {
			tries = append(tries, try{name, state, end})
		}
	}
	d := e2e.DeviceAsShipped(t)
	d.MustRun(t, "bash", "-ec", "printf 'HEALTH_WINDOW=300ms\nHEALTH_DEADLINE=60\n' >>/etc/mender/mender-app-docker-compose.conf")
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		files[v] = e2e.Release(t, d, v, "")
	}
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	runs, resumes := "1", 0
	for _, try := range tries {
		what, state := try.what, try.state
		s := sequence{state, rare[what], try.end}
		began := time.Now()
		runs = s.play(t, d, files, runs, fmt.Sprintf("MENDER_APP_SEED=%d, %s: from release %s, %s", seed, what, runs, s), &resumes)
		require.Contains(t, d.MustRun(t, "curl", "-sf", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", e2e.WebURL), "web "+runs, "%s, %s", what, state)
		d.MustRun(t, "bash", "-c", cleanup)
		t.Logf("%s, %s, then %s: release %s runs (%.1f s)", what, state, s.end, runs, time.Since(began).Seconds())
	}
	t.Logf("%d of %d with mender-app resume", resumes, len(tries))
}
