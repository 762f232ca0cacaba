package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/clip"
)

const whole = `
version = "3.0-1"
managed = true
class = "storage"
desired_state = "running"
enabled = true

[upgrades]
from_versions = ['2\.5-\d+', '2\.6-\d+']

[downgrades]
allow = false

[orchestrator]
minimum = "v1.29"
maximum = "1.31.4"

[[platform.releases]]
version = '4\.2\.\d+'
files = ["/usr/share/patches/p1"]
provides = {"rootfs-image.patches.version" = '7|8'}

[services]
disabled = []

[[depends]]
name = "db"
version = '25\.09-\d+'
action = "warn"

[[dependent_parent_exceptions]]
name = "web"
version = '25\.09-1'
`

func TestParse(t *testing.T) {
	yes, no := true, false
	want := &Policy{
		Version: "3.0-1", Managed: true, Class: ClassStorage, DesiredState: StateRunning, Enabled: &yes,
		Upgrades:     Upgrades{FromVersions: []string{`2\.5-\d+`, `2\.6-\d+`}},
		Downgrades:   Downgrades{Allow: &no},
		Orchestrator: Orchestrator{Minimum: "v1.29", Maximum: "1.31.4"},
		Platform: PlatformRule{Releases: []PlatformRelease{{
			Version: `4\.2\.\d+`, Files: []string{"/usr/share/patches/p1"}, Provides: map[string]string{"rootfs-image.patches.version": "7|8"},
		}}},
		Services:   Services{Disabled: []string{}},
		Depends:    []Dependency{{Name: "db", Version: `25\.09-\d+`, Action: ActionWarn}},
		Exceptions: []Exception{{Name: "web", Version: `25\.09-1`}},
	}
	p, err := ParseTOML([]byte(whole), "shop")
	require.NoError(t, err)
	assert.Equal(t, want, p)

	data, err := p.Encode()
	require.NoError(t, err)
	assert.NotContains(t, string(data), "3.0-1", "application_version is the version's home in metadata")
	again, err := ParseJSON(data, "shop", "3.0-1")
	require.NoError(t, err)
	assert.Equal(t, want, again)
}

func TestAnEmptyListIsNotAnAbsentOne(t *testing.T) {
	for text, want := range map[string][]string{"": nil, "[upgrades]": nil, "[upgrades]\nfrom_versions = []": {}} {
		p, err := ParseTOML([]byte(text), "shop")
		require.NoError(t, err)
		data, err := p.Encode()
		require.NoError(t, err)
		again, err := ParseJSON(data, "shop", "")
		require.NoError(t, err)
		assert.Equal(t, want, p.Upgrades.FromVersions, "%q", text)
		assert.Equal(t, want, again.Upgrades.FromVersions, "%q as %s", text, data)
	}
}

func TestRefusedPolicies(t *testing.T) {
	for _, c := range []struct{ toml, says string }{
		{"managed = yes", "line 1"},
		{"\n\nmanaged = 1", `line 3 (last key "managed")`},
		{"managed = true\nmanaged = true", "line 2"},
		{"manged = true", "manged: unknown key"},
		{"Managed = true", "Managed: unknown key"},
		{"[upgrades]\nfrom_version = []", "upgrades.from_version: unknown key"},
		{`"upgrades.from_versions" = []`, "unknown key"},
		{"[[depends]]\nname = 'db'\n[[depends]]\nname = 'x'\nversions = '1'", "depends[1].versions: unknown key"},
		{"version = \"1\\n2\"", "version: "},
		{"class = 'storage'", "class: only a managed application"},
		{"managed = true\nclass = 'fast'", `class: "fast" is not`},
		{"desired_state = 'up'", `desired_state: "up" is not`},
		{"[upgrades]\nfrom_versions = ['1', '(']", "upgrades.from_versions[1]: bad expression"},
		{`upgrades = {from_versions = ['(?=a)']}`, "upgrades.from_versions[0]: bad expression"},
		{"[upgrades]\nfrom_versions = ['" + strings.Repeat("a", maxExpression+1) + "']", "upgrades.from_versions[0]: the expression has 257 bytes"},
		{"[upgrades]\nfrom_versions = ['([a-z0-9]{50}){50}']", "upgrades.from_versions[0]: "},
		{"[upgrades]\nfrom_versions = ['(abcdefghij){1000}']", "is too large"},
		{"[orchestrator]\nminimum = '1'", "orchestrator.minimum: "},
		{"[orchestrator]\nmaximum = '1.29-rc'", "orchestrator.maximum: "},
		{"[orchestrator]\nminimum = '1.30'\nmaximum = '1.29'", "orchestrator: no version is at least 1.30 and at most 1.29"},
		{"[orchestrator]\nminimum = '1.29.5'\nmaximum = '1.29.4'", "orchestrator: no version"},
		{"[platform]\nreleases = []", "platform.releases: an empty list"},
		{"[[platform.releases]]\nfiles = []", "platform.releases[0].version: it is missing"},
		{"[[platform.releases]]\nversion = '['", "platform.releases[0].version: bad expression"},
		{"[[platform.releases]]\nversion = '1'\nfiles = ['etc/x']", "platform.releases[0].files[0]: "},
		{"[[platform.releases]]\nversion = '1'\nfiles = ['/etc/../x']", "platform.releases[0].files[0]: "},
		{"[[platform.releases]]\nversion = '1'\nprovides = {a = '('}", `platform.releases[0].provides["a"]: bad expression`},
		{"[[platform.releases]]\nversion = '1'\nprovides = {a = 1}", "line 3"},
		{"[[depends]]\nversion = '1'", "depends[0].name: "},
		{"[[depends]]\nname = '../db'", "depends[0].name: "},
		{"[[depends]]\nname = 'shop'", "depends[0].name: shop depends on itself"},
		{"[[depends]]\nname = 'db'\n[[depends]]\nname = 'db'", "depends[1].name: db occurs twice"},
		{"[[depends]]\nname = 'db'\nversion = '*'", "depends[0].version: bad expression"},
		{"[[depends]]\nname = 'db'\naction = 'fail'", `depends[0].action: "fail" is not`},
		{"[[dependent_parent_exceptions]]\nname = 'web'", "dependent_parent_exceptions[0].version: it is missing"},
		{"[[dependent_parent_exceptions]]\nname = 'shop'\nversion = '1'", "dependent_parent_exceptions[0].name: "},
		{"[[dependent_parent_exceptions]]\nname = 'web'\nversion = ')'", "dependent_parent_exceptions[0].version: bad expression"},
		{"x = '" + strings.Repeat("x", MaxBytes) + "'", "larger than"},
	} {
		_, err := ParseTOML([]byte(c.toml), "shop")
		require.ErrorIs(t, err, ErrPolicy, "%s", clip.Text(c.toml))
		assert.Contains(t, err.Error(), c.says, "%s", clip.Text(c.toml))
		assert.NotContains(t, err.Error(), "\n")
	}
}

// TestEveryValueIsChecked: a wrong value is refused, with its key.
func TestEveryValueIsChecked(t *testing.T) {
	for _, c := range []struct{ toml, says string }{
		{"[upgrades]\nautomatic = 'yes'", "line 2"},
		{"[keep]\nall = true", "keep.all: unknown key"},
		{"[[hooks]]\nname = 'pre-lunch'", `hooks[0].name: "pre-lunch" is not check, `},
		{"[[hooks]]\nname = 'check'\n[[hooks]]\nname = 'check'", "hooks[1].name: check occurs twice"},
		{"[[hooks]]\nname = 'check'\ntimeout = '10'", "hooks[0].timeout: "},
		{"[[hooks]]\nname = 'check'\ntimeout = '2h'", "hooks[0].timeout: "},
		{"[[hooks]]\nname = 'check'\nretries = 11", "hooks[0].retries: 11 is not from 0 to 10"},
		{"[[hooks]]\nname = 'check'\nretries = -1", "hooks[0].retries: "},
		{"[hooks]\ncheck = 'x'", "hooks.check: unknown key"},
		{"[data]\nsnapshot = true", "data.snapshot: nothing to copy"},
		{"[data]\nvolumes = ['db', 'db']", "data.volumes[1]: db occurs twice"},
		{"[data]\nvolumes = ['../db']", "data.volumes[0]: "},
		{"[data]\nvolumes = ['./../db']", "data.volumes[0]: \"./../db\" is not a path in its shortest form, after ./"},
		{"[data]\nvolumes = ['./']", "data.volumes[0]: "},
		{"[data]\ndirectories = ['/']", "data.directories[0]: "},
		{"[data]\ndirectories = ['/a/../b']", "data.directories[0]: "},
		{"[data]\nvolumes = ['db']\nmigrate = 'hook'", `data.migrate: "hook" is not hooks/migrate`},
		{"[data]\nvolumes = ['db']\nmigrate = 'hooks/migrate'", "data.migrate: without a copy a rollback is impossible"},
		{"[data]\nvolumes = ['db']", "data.snapshot: the named data is not copied"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = 'hooks/migrate'", "data.migrate: it is hooks/migrate, and a table [[hooks]]"},
		{"[[hooks]]\nname = 'migrate'", "data.migrate: without a copy"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = 'hooks/migrate'\n[[hooks]]\nname = 'migrate'\nretries = 1", "data.migrate: the hook migrate may neither fail"},
		{"[resources]\ncpuset = '0'", "line 2"},
		{"[resources]\ncpuset = ['web', 'web']", "resources.cpuset[1]: web occurs twice"},
		{"[resources]\ncpuset = ['a b']", "resources.cpuset[0]: "},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db'}", "data.migrate.command: 0 words"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {command = ['x']}", `data.migrate.service: "" is not a name`},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = ['x'], timeout = '2h'}", "data.migrate.timeout: "},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = ['x', \"a\\u0000b\"]}", "data.migrate.command[1]: "},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = ['x'], image = 'y'}", "data.migrate.image: unknown key"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {timeout = '1m'}", "data.migrate.service: "},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = 'x'}", "data.migrate is neither a text nor a table"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = 7", "data.migrate is neither a text nor a table"},
		{"[data]\nvolumes = ['db']\nmigrate = {service = 'db', command = ['x']}", "data.migrate: without a copy a rollback is impossible"},
		{"[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = ['x']}\n[[hooks]]\nname = 'migrate'", "data.migrate: it is a command, and a table [[hooks]]"},
		{"[engine_upgrades]\ntiming = 'now'", "engine_upgrades.timing: "},
		{"enabled = false", "enabled: only a managed application"},
		{"[[hooks]]\nname = 'enabled'", "hooks[0].name: only a managed application"},
		{"[[reapply]]\non = 'boot'", "reapply: only a managed application"},
		{"managed = true\n[[reapply]]\non = 'Boot'", "reapply[0].on: "},
		{"managed = true\n[[reapply]]\non = ''", "reapply[0].on: "},
		{"managed = true\n[[reapply]]\non = 'schedule'", "reapply[0].calendar: "},
		{"managed = true\n[[reapply]]\non = 'schedule'\ncalendar = 'fortnightly'", "reapply[0].calendar: "},
		{"managed = true\n[[reapply]]\non = 'boot'\ncalendar = 'daily'", "reapply[0].calendar: "},
		{"managed = true\n[[reapply]]\non = 'boot'\nfilter_field = 'x'", "reapply[0].filter_field: "},
		{"managed = true\n[[reapply]]\non = 'boot'\nfilter = {a = 1}", "line 4"},
		{"managed = true\n[[reapply]]\non = 'boot'\nfilter = {'a b' = 'x'}", "reapply[0].filter: "},
		{"managed = true\n[[reapply]]\nwhen = 'boot'", "reapply[0].when: unknown key"},
		{"[services]\ndisabled = ['a', 'a']", "services.disabled[1]: a occurs twice"},
		{"[services]\ndisabled = ['job/a', 'deployment/']", "services.disabled[1]: \"\" is not a name"},
		{"[services]\ndisabled = ['a/b/c']", "services.disabled[0]: \"b/c\" is not a name"},
		{"[data]\nvolumes = ['a/b']", "data.volumes[0]: \"a/b\" is not a name"},
	} {
		_, err := ParseTOML([]byte(c.toml), "shop")
		require.ErrorIs(t, err, ErrPolicy, c.toml)
		assert.Contains(t, err.Error(), c.says, c.toml)
	}
}

// TestPolicyInMetadata: what the device reads is checked as strictly as what
// app-gen reads.
func TestPolicyInMetadata(t *testing.T) {
	for json, says := range map[string]string{
		``:                                     "not a JSON object",
		`null`:                                 "not a JSON object",
		`[]`:                                   "not a JSON object",
		`{} {}`:                                "more than a JSON object",
		`{"Managed":true}`:                     "Managed: unknown key",
		`{"depends":[{"nam":"db"}]}`:           "depends[0].nam: unknown key",
		`{"depends":[{"name":"shop"}]}`:        "depends on itself",
		`{"depends":[1]}`:                      "cannot unmarshal",
		`{"resources":{"cpuset":"0"}}`:         "cannot unmarshal",
		`{"upgrades":{"from_versions":[1]}}`:   "cannot unmarshal",
		`{"upgrades":{"from_versions":["("]}}`: "bad expression",
		`{"version":"1.0"}`:                    "application_version",
		`{"platform":{"releases":[]}}`:         "an empty list",
	} {
		_, err := ParseJSON([]byte(json), "shop", "2.0")
		require.ErrorIs(t, err, ErrPolicy, json)
		assert.Contains(t, err.Error(), says, json)
	}
	p, err := ParseJSON([]byte(`{"version":"2.0"}`), "shop", "2.0")
	require.NoError(t, err)
	assert.Equal(t, &Policy{Version: "2.0"}, p)
}

func TestWholeMatch(t *testing.T) {
	for _, c := range []struct {
		expression, text string
		want             bool
	}{
		{`1\.0-1`, "1.0-1", true},
		{`1\.0-1`, "1.0-10", false},
		{`1\.0-1`, "11.0-1", false},
		{`1|1\.0`, "1.0", true}, // the first alternative alone would stop too early
		{`a)|(b`, "b", false},
		{`\Q1.0`, "1.0", true},
		{`\Q1.0`, "1x0", false},
		{`1\.\d+?`, "1.25", true},
		{`(?i)RC1`, "rc1", true},
		{`^1$`, "1", true},
		{`.*`, "", true},
		{`\d+`, "", false},
		{``, "anything", true},
		{`1`, "1\n", false},
	} {
		assert.Equal(t, c.want, matches(c.expression, c.text), "%q, %q", c.expression, c.text)
	}
}

// FuzzParse: no policy makes the parser fail in another way than with its
// error; what it accepts survives the way through metadata and can be decided.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("")
	f.Add("[upgrades]\nfrom_versions = []")
	f.Add("[[depends]]\nname = 'db'\nversion = '(a|b){3}'")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseTOML([]byte(text), "shop")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than a line: %q", err)
			}
			return
		}
		data, err := p.Encode()
		require.NoError(t, err)
		again, err := ParseJSON(data, "shop", p.Version)
		require.NoError(t, err, "%s", data)
		data2, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(data), string(data2))
		Decide(Request{
			Operation: Install, App: App{Name: "shop", Version: p.Version, Policy: p},
			Installed: []App{{Name: "shop", Version: "1.0"}, {Name: "db", Version: "2", Policy: p}},
			Engine:    Engine{"docker-compose", "28.5.2"}, Platform: Platform{Version: "4.2.1"},
		})
		Order([]App{{Name: "shop", Policy: p}, {Name: "db", Policy: p}})
	})
}

// FuzzMatches: an expression that is accepted matches in bounded time and
// memory, and never fails.
func FuzzMatches(f *testing.F) {
	f.Add(`1\.\d+`, "1.25")
	f.Add(`((a{10}){10}){10}`, "aaaa")
	f.Add(`\Qa`, "a")
	f.Fuzz(func(t *testing.T, expression, text string) {
		if _, err := compile(expression); err == nil {
			matches(expression, text[:min(len(text), maxText)])
		}
	})
}

// A command that migrates data is the same in app.toml and in metadata, and older devices
// refuse it by its name.
func TestMigrate(t *testing.T) {
	p := parse(t, "shop", "[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = {service = 'db', command = ['upgrade', '', '--all'], timeout = '10m'}")
	want := Migrate{Service: "db", Command: []string{"upgrade", "", "--all"}, Timeout: "10m"}
	require.Equal(t, want, p.Data.Migrate)
	require.True(t, p.Migrates())
	require.Equal(t, 10*time.Minute, p.Data.Migrate.Limit())
	require.Equal(t, time.Minute, Migrate{}.Limit())
	text, err := p.Encode()
	require.NoError(t, err)
	require.Contains(t, string(text), `"migrate":{"service":"db","command":["upgrade","","--all"],"timeout":"10m"}`)
	again, err := ParseJSON(text, "shop", "")
	require.NoError(t, err)
	require.Equal(t, want, again.Data.Migrate)

	p = parse(t, "shop", "[data]\nvolumes = ['db']\nsnapshot = true\nmigrate = 'hooks/migrate'\n[[hooks]]\nname = 'migrate'")
	require.False(t, p.Migrates())
	text, err = p.Encode()
	require.NoError(t, err)
	require.Contains(t, string(text), `"migrate":"hooks/migrate"`)
	text, err = parse(t, "shop", "[data]\nvolumes = ['db']\nsnapshot = true").Encode()
	require.NoError(t, err)
	require.NotContains(t, string(text), "migrate")
}
