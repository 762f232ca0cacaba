package version

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		// both semantic
		{"1.2.3", "1.2.3", 0},
		{"1.2.3", "v1.2.3", 0},
		{"v1.10.0", "1.9.0", +1},
		{"1.2.3-rc.1", "1.2.3", -1},
		{"1.2.3-1", "1.2.3", -1},
		{"1.0.0-alpha.2", "1.0.0-alpha.10", -1},
		{"1.2.3+build.7", "1.2.3+build.8", 0},
		{"99999999999.0.0", "99999999998.0.0", +1}, // beyond 32 bits
		// Debian: one is not semantic
		{"1.0-1", "1.0-2", -1},
		{"1.0-10", "1.0-9", +1},
		{"25.09-1", "25.10-1", -1},
		{"1.2", "1.2.3", -1},
		{"v1.3", "1.2.3", +1},
		{"1.2.3-1", "1.2", +1},
		{"1.0~rc1", "1.0", -1},
		{"1:0.1", "9.9", +1},
		{"1.0a", "1.0", +1},
		{"1.0+b1", "1.0a", +1},
		{"20261123120000", "20261123120001", -1}, // beyond 32 bits
		{"7", "07", 0},
		{"1.02.3", "1.2.3", 0},
	} {
		t.Run(c.a+" and "+c.b, func(t *testing.T) {
			got, err := Compare(c.a, c.b)
			require.NoError(t, err)
			assert.Equal(t, c.want, sign(got))
			got, err = Compare(c.b, c.a)
			require.NoError(t, err)
			assert.Equal(t, -c.want, sign(got), "the other way round")
		})
	}
}

func TestWhatHasNoOrder(t *testing.T) {
	for _, s := range []string{
		"", "v", "abc", "vv1", "release-7", "1.0_2", "1 2", "1.0-", "x:1", "1:", ":1", "1.0:2", "1.0\n", "1.0-é", "1:1-2:3",
		strings.Repeat("1", maxLength+1),
	} {
		_, err := Compare(s, "1.0")
		assert.ErrorIs(t, err, ErrNoVersion, "%q", s)
		_, err = Compare("1.0", s)
		assert.ErrorIs(t, err, ErrNoVersion, "%q", s)
	}
}

func TestTriple(t *testing.T) {
	for s, want := range map[string]string{
		"1.29":                  "1.29.0",
		"v1.29":                 "1.29.0",
		"v1.29.2":               "1.29.2",
		"v1.35.3+k3s1":          "1.35.3",
		"1.29.2-gke.100":        "1.29.2",
		"20.10.24+dfsg1":        "20.10.24",
		"18.09.1":               "18.9.1",
		"28.5.2":                "28.5.2",
		"1.2.3.4":               "1.2.3",
		"0.0":                   "0.0.0",
		"1.29+":                 "1.29.0", // a cluster that says its minor version so
		"27.0-rc.1":             "27.0.0",
		"library-import":        "",
		"":                      "",
		"1":                     "",
		"1.":                    "",
		".1":                    "",
		"v":                     "",
		"1.9999999999999999999": "",
	} {
		got, parts, err := Triple(s)
		if want == "" {
			assert.ErrorIs(t, err, ErrNoVersion, "%q", s)
			continue
		}
		require.NoError(t, err, "%q", s)
		assert.Equal(t, want, got, "%q", s)
		if strings.HasSuffix(want, ".0") {
			assert.Equal(t, 2, parts, "%q", s)
		} else {
			assert.Equal(t, 3, parts, "%q", s)
		}
	}
}

// TestOrderIsDpkgs compares Debian's order with dpkg's own.
func TestOrderIsDpkgs(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("needs dpkg")
	}
	part := rapid.StringMatching(`[0-9][0-9a-cA-C.+~]{0,5}(-[0-9a-c.+~]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := part.Draw(t, "a"), part.Draw(t, "b")
		if !debianVersion(a) || !debianVersion(b) {
			t.Fatalf("not taken for versions: %q, %q", a, b)
		}
		op := map[int]string{-1: "lt", 0: "eq", 1: "gt"}[sign(compareDebian(a, b))]
		if out, err := exec.Command(dpkg, "--compare-versions", a, op, b).CombinedOutput(); err != nil {
			t.Fatalf("dpkg: not %q %s %q: %v %s", a, op, b, err, out)
		}
	})
}

// FuzzCompare: no text makes it fail in another way than with its error, and
// what is older one way is newer the other way.
func FuzzCompare(f *testing.F) {
	f.Add("1.2.3", "v1.2.4-rc.1+b")
	f.Add("1:1.0-1~a", "20261123120000")
	f.Add("", "v")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err := Compare(a, b)
		y, rerr := Compare(b, a)
		if (err == nil) != (rerr == nil) || sign(x) != -sign(y) {
			t.Fatalf("%q, %q: %d %v, and %d %v", a, b, x, err, y, rerr)
		}
		if _, _, err := Triple(a); err == nil {
			triple, _, _ := Triple(a)
			if Check(triple) != nil {
				t.Fatalf("%q: triple %q has no order", a, triple)
			}
		}
	})
}

func sign(n int) int { return max(-1, min(1, n)) }
