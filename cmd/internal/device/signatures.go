package device

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules/config"
)

// The Mender client's configuration: its keys are used if mender-app.conf names
// none. The second file is the client's fallback for settings that the first
// lacks.
const (
	menderConf         = "/etc/mender/mender.conf"
	menderConfFallback = "/var/lib/mender/mender.conf"
	maxMenderConf      = 1 << 20
	maxKey             = 1 << 20 // bytes of the file of a key
)

// signatureArrays are the settings that may be arrays.
var signatureArrays = []string{"artifact_verify_keys", "keys", "keys.applications", "keys.files"}

// Key is a public key file and the applications it may sign for.
type Key struct {
	File string
	// Threshold is how many different keys of the same table of [[keys]] must have signed a
	// statement, and Table the number of that table; both are 0 where one key is enough.
	Threshold, Table int
	// Applications are the patterns of names that the key is bound to; "*"
	// stands for any characters. Without patterns the key may sign for each
	// application that no other key is bound to.
	Applications []string
}

// Signatures say what must be signed and by whom. It applies to an artifact that
// `mender-app install` installs, and to the statement of every artifact that the
// update module installs.
type Signatures struct {
	Keys             []Key
	AllowUnsigned    bool // allow_unsigned
	RequireStatement bool // require_statement
	RequireUnexpired bool // require_unexpired
	// Bound: there is a table [[keys]], even if it is broken.
	Bound bool
	// Err is an error in these settings. If it is set, an installation that checks
	// signatures must stop. So must the update module if it needs the keys: with
	// RequireStatement or Bound.
	Err error
	// Learnt is what the device has learnt from signed texts; nil: nothing.
	Learnt func() (store.Trust, error)
	// Now is the machine's clock; nil is time.Now.
	Now func() time.Time
	// ClockSet says whether the clock is right; nil is hold.ClockSet.
	ClockSet func() bool
}

// readSignatures reads the settings.
func readSignatures(f *config.File) (s Signatures) {
	tables, tablesErr := f.Tables("keys")
	s.Bound = len(tables) > 0 || tablesErr != nil
	fail := func(err error) Signatures {
		return Signatures{Err: err, RequireStatement: s.RequireStatement, RequireUnexpired: s.RequireUnexpired, Bound: s.Bound}
	}
	var err error
	if s.RequireStatement, err = f.Bool(false, "require_statement"); err != nil {
		s.RequireStatement = true
		return fail(err)
	}
	if s.RequireUnexpired, err = f.Bool(false, "require_unexpired"); err != nil {
		s.RequireUnexpired = true
		return fail(err)
	}
	if tablesErr != nil {
		return fail(tablesErr)
	}
	if s.AllowUnsigned, err = f.Bool(false, "allow_unsigned"); err != nil {
		return fail(err)
	}
	files := f.Strings("artifact_verify_keys")
	if file := f.String("", "artifact_verify_key"); file != "" {
		files = append(files, file)
	}
	for _, file := range files {
		s.Keys = append(s.Keys, Key{File: file})
	}
	for i, t := range tables {
		keys, err := tableOfKeys(t, i+1)
		if err != nil {
			return fail(fmt.Errorf("[[keys]] number %d: %w", i+1, err))
		}
		s.Keys = append(s.Keys, keys...)
	}
	conf := f.String(menderConf, "mender_conf")
	if err := f.RefuseUnknown("artifact", "key", "allow_"); err != nil {
		return fail(err)
	}
	if len(s.Keys) > 0 {
		return s
	}
	files, err = menderKeys(conf)
	if err == nil && len(files) == 0 && conf == menderConf {
		files, err = menderKeys(menderConfFallback)
	}
	if err != nil {
		return fail(err)
	}
	for _, file := range files {
		s.Keys = append(s.Keys, Key{File: file})
	}
	return s
}

// tableOfKeys reads a table of [[keys]].
func tableOfKeys(t *config.File, number int) (keys []Key, err error) {
	files, applications := t.Strings("files"), t.Strings("applications")
	if file := t.String("", "file"); file != "" {
		files = append(files, file)
	}
	threshold, err := t.Int(1, "threshold")
	if err == nil {
		err = t.RefuseUnknown("")
	}
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("file is not set")
	}
	if len(applications) == 0 {
		return nil, errors.New(`applications is not set; ["*"] is all of them`)
	}
	for _, pattern := range applications {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return nil, fmt.Errorf("applications: %q is not a pattern", pattern)
		}
	}
	if threshold < 1 || threshold > int64(len(files)) {
		return nil, fmt.Errorf("threshold is %d, and there are %d keys in files", threshold, len(files))
	}
	if threshold > statement.MaxSignatures {
		return nil, fmt.Errorf("threshold is %d, and a statement has at most %d signatures", threshold, statement.MaxSignatures)
	}
	for _, file := range files {
		k := Key{File: file, Applications: applications}
		if threshold > 1 {
			k.Threshold, k.Table = int(threshold), number
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// menderKeys returns the files that ArtifactVerifyKey and ArtifactVerifyKeys
// name. As in the Mender client, the settings' names ignore case. A missing
// configuration file names none.
func menderKeys(name string) (files []string, err error) {
	data, err := input.Read(name, maxMenderConf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for key, value := range settings {
		var list []string
		switch strings.ToLower(key) {
		case "artifactverifykey":
			list = []string{""}
			err = json.Unmarshal(value, &list[0])
		case "artifactverifykeys":
			err = json.Unmarshal(value, &list)
		default:
			if strings.HasPrefix(strings.ToLower(key), "artifactverify") {
				err = errors.New("unknown setting")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, key, err)
		}
		for _, file := range list {
			if file != "" {
				files = append(files, file)
			}
		}
	}
	slices.Sort(files)
	return files, nil
}

// MenderKeys are the keys that the Mender client of this device checks signatures with. It
// ignores those of mender-app.conf.
func (c *Config) MenderKeys() (keys []Key, err error) {
	files, err := menderKeys(c.MenderConf)
	if err == nil && len(files) == 0 && c.MenderConf == menderConf {
		files, err = menderKeys(menderConfFallback)
	}
	for _, file := range files {
		keys = append(keys, Key{File: file})
	}
	return keys, err
}

// Trusted is a key that has been read.
type Trusted struct {
	Key
	Public  crypto.PublicKey
	Revoked bool // it no longer counts; see Signatures.Read
}

// is reports whether it is that key.
func (k Trusted) is(public crypto.PublicKey) bool {
	own, ok := k.Public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public != nil && own.Equal(public)
}

// ReadKeys reads the files of keys. A key that cannot be read is an error: the
// applications it protects would be unprotected.
func ReadKeys(keys []Key) (list []Trusted, err error) {
	for _, k := range keys {
		data, err := input.Read(k.File, maxKey)
		if err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		public, err := mender.LoadPublicKey(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.File, err)
		}
		list = append(list, Trusted{Key: k, Public: public})
	}
	return list, nil
}

// MayReplace returns a client.ErrRefused unless signer is one of the keys and
// may sign for the application.
func MayReplace(keys []Trusted, signer crypto.PublicKey, application string) error {
	var own []Trusted
	for _, k := range keys {
		if k.is(signer) {
			own = append(own, k)
		}
	}
	var may []string
	for _, k := range own {
		if k.Revoked {
			return revoked(k)
		}
		if maySign(keys, k, application) {
			return nil
		}
		may = append(may, k.Applications...)
	}
	name := "that signed it"
	if len(own) > 0 {
		name = filepath.Clean(own[0].File)
	}
	if len(may) == 0 {
		return fmt.Errorf("%w: the key %s may not sign for application %q, which other keys are bound to", client.ErrRefused, name, application)
	}
	return fmt.Errorf("%w: the key %s may not sign for application %q, only for %s", client.ErrRefused, name, application, strings.Join(may, ", "))
}

// Reach is what an artifact does beside its payload, as far as it is seen.
type Reach struct {
	*statement.Reach
	Scripts bool  // the state scripts are seen too
	Err     error // why it is not known
}

// ReachOf is the reach of an artifact.
func ReachOf(h *mender.Header) Reach { return Reach{Reach: statement.ReachOf(h), Scripts: true} }

// ReachSeen is what an update module sees of it: no state scripts.
func ReachSeen(h *mender.Header, err error) Reach {
	if err != nil {
		return Reach{Err: err}
	}
	seen := statement.ReachOf(h)
	seen.Scripts = nil
	return Reach{Reach: seen}
}

// stated refuses an artifact that does something else than its statement says. A statement
// without a reach says nothing of it.
func (r Reach) stated(st *statement.Signed) error {
	if st == nil || st.Reach == nil {
		return nil
	}
	if r.Err != nil {
		return fmt.Errorf("%w: cannot tell what the artifact provides: %w", client.ErrRefused, r.Err)
	}
	said := *st.Reach
	if !r.Scripts {
		said.Scripts = nil
	}
	if err := said.Covers(r.Reach); err != nil {
		return fmt.Errorf("%w: %w: the artifact was changed after its maker signed it: use the one that app-gen wrote", client.ErrRefused, err)
	}
	return nil
}

// outside says what of it is not about an application alone; "" for nothing.
func (r Reach) outside(application string) string {
	// FILESYSTEM.APPLICATION.NAME, as app-gen writes it; the last part may be a pattern.
	own := func(key string) bool {
		filesystem, rest, _ := strings.Cut(key, ".")
		name, ok := strings.CutPrefix(rest, application+".")
		return ok && filesystem != "" && name != "" && !strings.ContainsAny(filesystem, "*?[\\") && !strings.Contains(name, ".")
	}
	for _, key := range slices.Sorted(maps.Keys(r.Provides)) {
		if !own(key) {
			return "it provides " + clip.Text(key)
		}
	}
	for _, pattern := range r.Clears {
		if !own(pattern) {
			return "it clears the provides " + clip.Text(pattern)
		}
	}
	switch {
	case r.Group != "":
		return "it sets the artifact group " + clip.Text(r.Group)
	case len(r.Reach.Scripts) > 0:
		return "it has state scripts"
	}
	return ""
}

// maySign reports whether a key may sign for an application.
func maySign(keys []Trusted, k Trusted, application string) bool {
	if len(k.Applications) > 0 {
		return k.boundTo(application)
	}
	return !slices.ContainsFunc(keys, func(k Trusted) bool { return k.boundTo(application) })
}

// forAll reports whether a key may sign for everything, not for some applications alone.
func (k Key) forAll() bool { return len(k.Applications) == 0 || slices.Contains(k.Applications, "*") }

// count is how many different keys of a key's table have signed, without revoked ones.
func count(keys []Trusted, of Trusted, signed func(crypto.PublicKey) bool) (n int) {
	var seen []Trusted
	for _, k := range keys {
		if k.Table != of.Table || k.Revoked || !signed(k.Public) ||
			slices.ContainsFunc(seen, func(s Trusted) bool { return s.is(k.Public) }) {
			continue
		}
		seen = append(seen, k)
	}
	return len(seen)
}

// enough returns a key that signed, if enough keys of its table did; nil for none.
func enough(keys []Trusted, signed func(crypto.PublicKey) bool, may func(Trusted) bool) *Trusted {
	for i, k := range keys {
		if may(k) && !k.Revoked && signed(k.Public) && (k.Threshold == 0 || count(keys, k, signed) >= k.Threshold) {
			return &keys[i]
		}
	}
	return nil
}

func revoked(k Trusted) error {
	return fmt.Errorf("%w: the key %s is revoked: have the release signed with another key", client.ErrRefused, filepath.Clean(k.File))
}

// within returns a client.ErrRefused if the keys that signed an artifact are bound to
// applications and the artifact does something beside its own.
func within(keys []Trusted, signed func(crypto.PublicKey) bool, application string, r Reach) error {
	if enough(keys, signed, func(k Trusted) bool { return k.forAll() }) != nil {
		return nil
	}
	if r.Err != nil {
		return fmt.Errorf("%w: cannot tell what the artifact provides: %w", client.ErrRefused, r.Err)
	}
	if what := r.outside(application); what != "" {
		return fmt.Errorf("%w: %s, and the key that signed it is bound to applications: it may only provide and clear FILESYSTEM.%s.NAME", client.ErrRefused, what, application)
	}
	return nil
}

// by says of each key whether it made one of the signatures: of the artifact, or of the
// statement in it.
func by(artifactSigner crypto.PublicKey, st *statement.Signed) func(crypto.PublicKey) bool {
	return func(key crypto.PublicKey) bool {
		return Trusted{Public: key}.is(artifactSigner) || st != nil && st.SignedBy(key)
	}
}

// MayInstall returns a client.ErrRefused unless the signer of an artifact is one of the keys,
// may sign for the application, and may do what else the artifact does.
func MayInstall(keys []Trusted, h *mender.Header, application string) error {
	if err := MayReplace(keys, h.SignedBy, application); err != nil {
		return err
	}
	var st *statement.Signed
	if meta, _, err := artifact.ParseMetadata(h.MetaData); err == nil && meta.Statement != nil {
		st, _ = statement.Parse(meta.Statement) // the check of the statement says what is wrong
	}
	return within(keys, by(h.SignedBy, st), application, ReachOf(h))
}

// TrustWithin is Trust, and refuses an artifact that does beside its payload what its
// statement does not say, or, if keys are bound, what is not of the application alone.
func (s Signatures) TrustWithin(artifactSigner string, r Reach) func(application string, st *statement.Signed) error {
	trust := s.Trust(artifactSigner)
	return func(application string, st *statement.Signed) error {
		err := trust(application, st)
		if err == nil {
			err = r.stated(st)
		}
		if err != nil || !s.Bound {
			return err
		}
		keys, err := s.Read(s.Keys)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		var signer crypto.PublicKey
		if artifactSigner != "" {
			if signer, err = mender.LoadPublicKey([]byte(artifactSigner)); err != nil {
				return fmt.Errorf("%w: %w", ErrUsage, err)
			}
		}
		return within(keys, by(signer, st), application, r)
	}
}

// Trust returns the check that the update module makes before it reads a payload:
// whether the signers of a statement may replace the application, and whether it has
// expired. artifactSigner is the key, in PEM, that mender-app verified the artifact's
// signature with; "" under the Mender client, which does not pass the signature on.
//
// require_statement demands a statement. So does [[keys]], unless mender-app has
// verified the artifact itself. A statement must be signed by a key that may sign
// for the application, or by the artifact's signer; by as many keys as a threshold says.
// Without any key it is not checked.
func (s Signatures) Trust(artifactSigner string) func(application string, st *statement.Signed) error {
	return func(application string, st *statement.Signed) error {
		if err := s.signers(artifactSigner, application, st); err != nil {
			return err
		}
		return s.unexpired(application, st)
	}
}

func (s Signatures) signers(artifactSigner, application string, st *statement.Signed) error {
	if _, err := s.revocations(); err != nil && len(s.Keys) > 0 {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	demanded := s.RequireStatement || s.RequireUnexpired || s.Bound
	keys, err := s.Read(s.Keys)
	if s.Err != nil {
		err = s.Err
	}
	switch {
	case err != nil && demanded:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case st == nil && s.RequireStatement:
		return fmt.Errorf("%w: the artifact has no signed statement, but require_statement is set: make it with app-gen --key", client.ErrRefused)
	case st == nil && s.Bound && artifactSigner == "":
		return fmt.Errorf("%w: the artifact has no signed statement, but keys are bound to applications ([[keys]]): make it with app-gen --key", client.ErrRefused)
	}
	if artifactSigner != "" {
		if key, err := mender.LoadPublicKey([]byte(artifactSigner)); err == nil {
			if done, err := s.artifactSigner(keys, key, application, st); done || err != nil {
				return err
			}
		}
	}
	if st == nil {
		return nil
	}
	if err := s.counts(st); err != nil {
		return err
	}
	if len(keys) == 0 {
		if s.RequireStatement || s.RequireUnexpired {
			return fmt.Errorf("%w: a signed statement is required, but there is no public key to verify it: set artifact_verify_key", ErrUsage)
		}
		return nil
	}
	_, err = StatementKey(keys, application, st)
	return err
}

// Verified reports whether keys that may sign for the application have signed a statement
// that is not revoked, and enough of them.
func (s Signatures) Verified(application string, st *statement.Signed) bool {
	if s.Err != nil || s.counts(st) != nil {
		return false
	}
	keys, err := s.Read(s.Keys)
	if err != nil {
		return false
	}
	_, err = StatementKey(keys, application, st)
	return err == nil
}

// artifactSigner judges the key that signed the artifact itself; done says that nobody else
// need have signed.
func (s Signatures) artifactSigner(keys []Trusted, signer crypto.PublicKey, application string, st *statement.Signed) (done bool, err error) {
	marked, err := s.mark([]Trusted{{Key: Key{File: "that signed it"}, Public: signer}})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if marked[0].Revoked {
		return false, revoked(marked[0])
	}
	threshold, alone := 0, false
	for _, k := range keys {
		if k.is(signer) && maySign(keys, k, application) {
			threshold, alone = k.Threshold, alone || k.Threshold == 0
		}
	}
	alone = alone || threshold == 0
	switch {
	case st == nil && !alone:
		return false, fmt.Errorf("%w: the artifact has no signed statement, and %d keys must sign one (threshold of [[keys]]): make it with app-gen --key, and add signatures with app-gen sign",
			client.ErrRefused, threshold)
	case st == nil:
		return true, nil
	}
	if err := s.counts(st); err != nil {
		return false, err
	}
	return alone && st.SignedBy(signer), nil
}

// StatementKey returns a key that signed a statement and may sign for the application, if
// enough keys did. Otherwise the error is a client.ErrRefused.
func StatementKey(keys []Trusted, application string, st *statement.Signed) (*Trusted, error) {
	if k := enough(keys, st.SignedBy, func(k Trusted) bool { return maySign(keys, k, application) }); k != nil {
		return k, nil
	}
	err := fmt.Errorf("%w: %w: no trusted key signed it", client.ErrRefused, statement.ErrStatement)
	for _, k := range keys {
		if !st.SignedBy(k.Public) {
			continue
		}
		if err = MayReplace(keys, k.Public, application); err != nil {
			continue
		}
		for _, own := range keys {
			if own.is(k.Public) && maySign(keys, own, application) {
				return nil, fmt.Errorf("%w: %w: %d of the keys of [[keys]] number %d signed it, and %d must: add a signature with app-gen sign",
					client.ErrRefused, statement.ErrStatement, count(keys, own, st.SignedBy), own.Table, own.Threshold)
			}
		}
	}
	return nil, err
}

func (k Key) boundTo(application string) bool {
	return slices.ContainsFunc(k.Applications, func(pattern string) bool {
		ok, err := path.Match(pattern, application)
		return err == nil && ok
	})
}
