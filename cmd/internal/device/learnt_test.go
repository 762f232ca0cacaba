package device

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/store"
)

// trustRig is a device with keys, and people who sign.
type trustRig struct {
	dir    string
	keys   map[string]ed25519.PrivateKey
	store  *store.Store
	now    time.Time
	config string
}

var midsummer = time.Date(2027, 6, 21, 12, 0, 0, 0, time.UTC)

func newTrustRig(t *testing.T, config string) *trustRig {
	t.Helper()
	g := &trustRig{dir: t.TempDir(), keys: map[string]ed25519.PrivateKey{}, now: midsummer, config: config}
	for _, name := range []string{"anna", "bert", "carl", "shop", "other"} {
		public, key, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		text, err := mender.EncodePublicKey(public)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(g.dir, name+".pub"), []byte(text), 0o644))
		g.keys[name] = key
	}
	g.store = store.At(filepath.Join(g.dir, "store"))
	require.NoError(t, g.store.Prepare())
	return g
}

func (g *trustRig) signatures(t *testing.T) Signatures {
	t.Helper()
	c, err := load(t, fmt.Sprintf("persistent_store = %q\nmender_conf = \"/nowhere\"\n", g.store.Dir())+strings.ReplaceAll(g.config, "@", g.dir))
	require.NoError(t, err)
	require.NoError(t, c.Signatures.Err)
	c.Signatures.Now, c.Signatures.ClockSet = func() time.Time { return g.now }, func() bool { return g.now.Year() > 2000 }
	return c.Signatures
}

// signed is a statement about the shop of a version, by each of the people.
func (g *trustRig) signed(t *testing.T, version string, issued, expires time.Time, by ...string) *statement.Signed {
	t.Helper()
	s := statement.Of(&artifact.Metadata{ApplicationName: "shop", ApplicationVersion: version, Orchestrator: "fake", Platform: "linux/amd64"}, digest.Of(nil))
	s.Issued, s.Expires = issued, expires
	var b json.RawMessage
	var st *statement.Signed
	for i, name := range by {
		var err error
		if o := (mender.Options{Key: g.keys[name]}); i == 0 {
			b, err = statement.Sign(s, o)
		} else {
			b, err = st.AddSignature(o)
		}
		require.NoError(t, err)
		st, err = statement.Parse(b)
		require.NoError(t, err)
	}
	return st
}

func (g *trustRig) fingerprint(t *testing.T, name string) digest.Digest {
	t.Helper()
	f, err := mender.Fingerprint(g.keys[name].Public())
	require.NoError(t, err)
	return digest.Digest(f)
}

// learn has the device see a list.
func (g *trustRig) learn(t *testing.T, list statement.Revocations, by ...string) {
	t.Helper()
	var b json.RawMessage
	for i, name := range by {
		var err error
		if o := (mender.Options{Key: g.keys[name]}); i == 0 {
			b, err = statement.SignRevocations(&list, o)
		} else {
			r, perr := statement.ParseRevocations(b)
			require.NoError(t, perr)
			b, err = r.AddSignature(o)
		}
		require.NoError(t, err)
	}
	require.NoError(t, g.signatures(t).LearnRevocations(g.store, &artifact.Metadata{Revocations: b}, slog.New(slog.DiscardHandler)))
}

func (g *trustRig) learnTime(t *testing.T, application string, st *statement.Signed) {
	t.Helper()
	require.NoError(t, g.signatures(t).LearnTime(g.store, application, st, slog.New(slog.DiscardHandler)))
}

const twoOfThree = "[[keys]]\nfiles = [\"@/anna.pub\", \"@/bert.pub\", \"@/carl.pub\"]\nthreshold = 2\napplications = [\"*\"]\n"

// TestThreshold: as many different keys of a table must have signed the statement as it says,
// whoever signed the artifact around it.
func TestThreshold(t *testing.T) {
	g := newTrustRig(t, twoOfThree)
	for _, c := range []struct {
		by     []string // who signed the statement; none: there is none
		signer string   // of the artifact
		says   string   // "" if it is allowed
	}{
		{by: []string{"anna", "bert"}},
		{by: []string{"carl", "anna"}},
		{by: []string{"other", "carl", "anna"}},
		{by: []string{"anna"}, says: "1 of the keys of [[keys]] number 1 signed it, and 2 must: add a signature with app-gen sign"},
		{by: []string{"anna", "anna"}, says: "1 of the keys"},
		{by: []string{"anna", "other"}, says: "1 of the keys"},
		{by: []string{"other", "shop"}, says: "no trusted key signed it"},
		{by: []string{"anna"}, signer: "anna", says: "1 of the keys"},
		{by: []string{"anna"}, signer: "bert", says: "1 of the keys"},
		{by: []string{"anna", "bert"}, signer: "anna"},
		{signer: "anna", says: "the artifact has no signed statement, and 2 keys must sign one"},
		{says: "the artifact has no signed statement, but keys are bound"},
	} {
		signer := ""
		if c.signer != "" {
			text, err := os.ReadFile(filepath.Join(g.dir, c.signer+".pub"))
			require.NoError(t, err)
			signer = string(text)
		}
		err := g.signatures(t).TrustWithin(signer, ReachSeen(&mender.Header{Provides: map[string]string{"rootfs-image.version": "1"}}, nil))("shop", g.signed(t, "1", time.Time{}, time.Time{}, c.by...))
		if c.says == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, client.ErrRefused, "%+v", c)
		require.ErrorContains(t, err, c.says, "%+v", c)
	}
	// A key that two files have counts once.
	data, err := os.ReadFile(filepath.Join(g.dir, "anna.pub"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "bert.pub"), data, 0o644))
	require.ErrorContains(t, g.signatures(t).Trust("")("shop", g.signed(t, "1", time.Time{}, time.Time{}, "anna")), "1 of the keys")

	// A key that alone signs for one application is no quorum for the device.
	g = newTrustRig(t, twoOfThree+"[[keys]]\nfile = \"@/anna.pub\"\napplications = [\"shop\"]\n")
	os1 := ReachSeen(&mender.Header{Provides: map[string]string{"rootfs-image.version": "1"}}, nil)
	own := ReachSeen(&mender.Header{Provides: map[string]string{"data-partition.shop.version": "1"}}, nil)
	require.NoError(t, g.signatures(t).TrustWithin("", own)("shop", g.signed(t, "1", time.Time{}, time.Time{}, "anna")))
	require.ErrorContains(t, g.signatures(t).TrustWithin("", os1)("shop", g.signed(t, "1", time.Time{}, time.Time{}, "anna")), "it provides rootfs-image.version")
	require.NoError(t, g.signatures(t).TrustWithin("", os1)("shop", g.signed(t, "1", time.Time{}, time.Time{}, "anna", "carl")))

	for conf, says := range map[string]string{
		strings.Replace(twoOfThree, "= 2", "= 4", 1):      "threshold is 4, and there are 3 keys",
		strings.Replace(twoOfThree, "= 2", "= 0", 1):      "threshold is 0",
		strings.Replace(twoOfThree, "= 2", "= \"x\"", 1):  "not a whole number",
		strings.Replace(twoOfThree, "thresh", "tresh", 1): "unknown setting",
	} {
		c, err := load(t, conf)
		require.NoError(t, err)
		require.ErrorContains(t, c.Signatures.Err, says)
	}
}

// TestExpiry: what a device that asks for it makes of the time in statements.
func TestExpiry(t *testing.T) {
	const shop = "[[keys]]\nfile = \"@/shop.pub\"\napplications = [\"shop\"]\n"
	const all = "[[keys]]\nfile = \"@/anna.pub\"\napplications = [\"*\"]\n"
	day := 24 * time.Hour
	g := newTrustRig(t, "require_unexpired = true\n"+shop+all)
	trust := func(st *statement.Signed) error { return g.signatures(t).Trust("")("shop", st) }
	good := g.signed(t, "2", midsummer.Add(-day), midsummer.Add(day), "shop")
	old := g.signed(t, "1", midsummer.Add(-9*day), midsummer.Add(-8*day), "shop")
	require.NoError(t, trust(good))
	err := trust(old)
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, "the release expired at 2027-06-13T12:00:00Z, and it is 2027-06-21T12:00:00Z by this device's clock; if the clock is right, install one that app-gen made since then")
	require.ErrorContains(t, trust(g.signed(t, "2", time.Time{}, time.Time{}, "shop")), "make it with app-gen --key and --expires")

	// A clock that is not set: nothing is known yet, then the newest statement is.
	g.now = time.Unix(0, 0)
	require.NoError(t, trust(old))
	g.learnTime(t, "shop", good)
	g.learnTime(t, "shop", old) // it does not go back
	err = trust(old)
	require.ErrorContains(t, err, "and it is 2027-06-20T12:00:00Z at least, by a statement that this device has seen")
	require.NoError(t, trust(good))

	// Nobody with the key of the shop decides what time it is for the till.
	till := statement.Of(&artifact.Metadata{ApplicationName: "till", Orchestrator: "fake", Platform: "linux/amd64"}, digest.Of(nil))
	till.Issued, till.Expires = old.Issued, old.Expires
	b, err := statement.Sign(till, mender.Options{Key: g.keys["anna"]})
	require.NoError(t, err)
	forTill, err := statement.Parse(b)
	require.NoError(t, err)
	require.NoError(t, g.signatures(t).Trust("")("till", forTill))
	g.learnTime(t, "shop", g.signed(t, "2", midsummer, midsummer.Add(day), "other")) // whose key does not count
	learnt, err := g.store.Trust()
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"shop": good.Issued}, learnt.Times)
	g.learnTime(t, "shop", g.signed(t, "3", midsummer, midsummer.Add(day), "shop", "anna"))
	require.ErrorContains(t, g.signatures(t).Trust("")("till", forTill), "it is 2027-06-21T12:00:00Z at least")

	// A time ahead of a clock that is set is not kept.
	g.now = midsummer
	g.learnTime(t, "shop", g.signed(t, "4", midsummer.Add(400*day), midsummer.Add(500*day), "anna"))
	require.NoError(t, trust(good))

	// Without the setting nothing of this is asked.
	g.config = shop
	require.NoError(t, trust(old))
}

// TestRevoked: a list counts by its own signatures, never goes back, and what it names is
// refused wherever it comes from.
func TestRevoked(t *testing.T) {
	none := time.Time{}
	g := newTrustRig(t, twoOfThree+"[[keys]]\nfile = \"@/shop.pub\"\napplications = [\"shop\"]\n")
	trust := func(st *statement.Signed) error { return g.signatures(t).Trust("")("shop", st) }
	byShop, byBoth := g.signed(t, "1", none, none, "shop"), g.signed(t, "2", none, none, "anna", "bert", "carl")
	keys := statement.Revocations{Version: 2, Keys: []digest.Digest{g.fingerprint(t, "shop")}}
	for _, who := range [][]string{{"shop"}, {"anna"}, {"other", "shop", "anna"}} {
		g.learn(t, keys, who...) // too few, or who may not
		require.NoError(t, trust(byShop))
	}
	require.True(t, g.signatures(t).Verified("shop", byShop))
	require.False(t, g.signatures(t).Verified("till", byShop), "the key is bound to another application")
	require.False(t, g.signatures(t).Verified("till", g.signed(t, "1", none, none, "anna")), "too few keys")
	require.False(t, Signatures{}.Verified("shop", byShop), "no key to verify it with")
	g.learn(t, keys, "anna", "bert")
	require.False(t, g.signatures(t).Verified("shop", byShop))
	err := trust(byShop)
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, "shop.pub is revoked: have the release signed with another key")
	require.NoError(t, trust(byBoth))
	require.NoError(t, trust(g.signed(t, "1", none, none, "shop", "anna", "bert")), "enough others signed it")

	// As the signer of the artifact, with or without a statement.
	text, err := os.ReadFile(filepath.Join(g.dir, "shop.pub"))
	require.NoError(t, err)
	for _, st := range []*statement.Signed{nil, byShop} {
		require.ErrorContains(t, g.signatures(t).Trust(string(text))("shop", st), "is revoked")
	}
	read, err := g.signatures(t).Read(g.signatures(t).Keys)
	require.NoError(t, err)
	require.ErrorContains(t, MayInstall(read, &mender.Header{SignedBy: g.keys["shop"].Public()}, "shop"), "is revoked")

	// A kept release of the key stays where it is.
	release := func(st *statement.Signed, by string) *store.Release {
		b, err := statement.Sign(&st.Statement, mender.Options{Key: g.keys[by]})
		require.NoError(t, err)
		return &store.Release{Application: "shop", Statement: b}
	}
	require.ErrorContains(t, g.signatures(t).MayGoBack(release(byShop, "shop")), "is revoked")
	require.NoError(t, g.signatures(t).MayGoBack(release(byShop, "anna")), "who signed it was enough when it came")
	require.NoError(t, g.signatures(t).MayGoBack(&store.Release{Application: "shop"}))

	// A list never goes back; a greater version says all that is revoked.
	g.learn(t, statement.Revocations{Version: 1}, "anna", "bert")
	g.learn(t, statement.Revocations{Version: 2}, "anna", "bert")
	require.ErrorContains(t, trust(byShop), "is revoked")
	g.learn(t, statement.Revocations{Version: 3, Statements: []digest.Digest{byBoth.Digest()}}, "anna", "carl")
	require.NoError(t, trust(byShop))
	require.ErrorContains(t, trust(byBoth), "the release is revoked (revocations 3): install a newer one")
	require.ErrorContains(t, g.signatures(t).MayGoBack(release(byBoth, "anna")), "the release is revoked")

	// A revoked key is none of a threshold, and signs no list.
	g.learn(t, statement.Revocations{Version: 4, Keys: []digest.Digest{g.fingerprint(t, "anna")}}, "anna", "bert")
	require.NoError(t, trust(byBoth), "two others signed it")
	require.ErrorContains(t, trust(g.signed(t, "2", none, none, "anna", "bert")), "1 of the keys of [[keys]] number 1 signed it")
	g.learn(t, statement.Revocations{Version: 5}, "anna", "bert")
	require.Error(t, trust(g.signed(t, "2", none, none, "anna", "bert")))
	g.learn(t, statement.Revocations{Version: 5}, "carl", "bert")
	require.NoError(t, trust(g.signed(t, "2", none, none, "anna", "bert")))

	// Where what is known cannot be read, nothing is trusted, and the error says what to do.
	require.NoError(t, os.WriteFile(g.store.Meta("trust.json"), []byte("{"), 0o600))
	err = trust(byBoth)
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "revoked keys and releases are not known: remove the file to continue without it")
}

// TestRevokesEverything: a list that names all keys, with the greatest version, leaves the
// device without updates until its configuration names another key, and no longer.
func TestRevokesEverything(t *testing.T) {
	none := time.Time{}
	shop := "[[keys]]\nfile = \"@/shop.pub\"\napplications = [\"shop\"]\n"
	g := newTrustRig(t, twoOfThree+shop)
	trust := func(st *statement.Signed) error { return g.signatures(t).Trust("")("shop", st) }
	all := statement.Revocations{Version: math.MaxInt64}
	for _, name := range []string{"anna", "bert", "carl", "shop"} {
		all.Keys = append(all.Keys, g.fingerprint(t, name))
	}
	g.learn(t, all, "anna", "bert")
	for _, by := range [][]string{{"shop"}, {"anna", "bert", "carl"}, {"anna", "bert", "carl", "shop"}} {
		require.ErrorIs(t, trust(g.signed(t, "1", none, none, by...)), client.ErrRefused)
		g.learn(t, statement.Revocations{Version: math.MaxInt64}, by...) // nobody takes it back
	}
	require.ErrorIs(t, trust(g.signed(t, "1", none, none, "shop")), client.ErrRefused)

	g.config = shop + "[[keys]]\nfile = \"@/other.pub\"\napplications = [\"*\"]\n"
	require.NoError(t, trust(g.signed(t, "1", none, none, "other")))
	require.ErrorIs(t, trust(g.signed(t, "1", none, none, "shop")), client.ErrRefused)
}
