package device

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
)

// TestTrust: what each configuration asks of a statement. In the settings, @ is
// the directory with the keys shop.pub, ci.pub and other.pub.
func TestTrust(t *testing.T) {
	dir := t.TempDir()
	keys, public := map[string]ed25519.PrivateKey{}, map[string]string{}
	for _, name := range []string{"shop", "ci", "other"} {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		text, err := mender.EncodePublicKey(key.Public())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".pub"), []byte(text), 0o644))
		keys[name], public[name] = key, text
	}
	signed := func(key string) *statement.Signed {
		if key == "" {
			return nil
		}
		m := &artifact.Metadata{ApplicationName: "shop", Orchestrator: "fake", Platform: "linux/amd64"}
		b, err := statement.Sign(statement.Of(m, digest.Of(nil)), mender.Options{Key: keys[key]})
		require.NoError(t, err)
		s, err := statement.Parse(b)
		require.NoError(t, err)
		return s
	}
	const (
		bound  = "[[keys]]\nfile = \"@/shop.pub\"\napplications = [\"shop\"]\n[[keys]]\nfile = \"@/ci.pub\"\napplications = [\"ci-*\"]\n"
		plain  = "artifact_verify_keys = [\"@/shop.pub\", \"@/ci.pub\"]\n"
		demand = "require_statement = true\n"
	)
	for name, c := range map[string]struct {
		conf   string
		signed string // who signed the statement; "" for no statement
		signer string // whose signature of the artifact mender-app has verified
		code   int
		says   string // "" if it is allowed
	}{
		"nothing configured":                 {},
		"nothing configured, signed":         {signed: "other"},
		"a key, none":                        {conf: plain},
		"a key":                              {conf: plain, signed: "ci"},
		"a key, another":                     {conf: plain, signed: "other", code: ExitRefused, says: "no trusted key signed it"},
		"bound":                              {conf: bound, signed: "shop"},
		"bound, none":                        {conf: bound, code: ExitRefused, says: "no signed statement, but keys are bound to applications"},
		"bound, none, artifact verified":     {conf: bound, signer: "shop"},
		"bound to another application":       {conf: bound, signed: "ci", code: ExitRefused, says: `ci.pub may not sign for application "shop", only for ci-*`},
		"bound, by no key":                   {conf: bound, signed: "other", code: ExitRefused, says: "no trusted key signed it"},
		"bound, by who signed the artifact":  {conf: bound, signed: "other", signer: "other"},
		"bound, another signed the artifact": {conf: bound, signed: "other", signer: "shop", code: ExitRefused, says: "no trusted key signed it"},
		"required":                           {conf: demand + plain, signed: "shop"},
		"required, none":                     {conf: demand + plain, code: ExitRefused, says: "but require_statement is set"},
		"required, none, verified":           {conf: demand + plain, signer: "shop", code: ExitRefused, says: "but require_statement is set"},
		"required, another":                  {conf: demand + plain, signed: "other", code: ExitRefused, says: "no trusted key signed it"},
		"required, no key":                   {conf: demand, signed: "shop", code: ExitUsage, says: "there is no public key"},
		"required is misspelt":               {conf: "require_statement = \"yess\"", signed: "shop", code: ExitUsage, says: "neither true nor false"},
		"bound, broken":                      {conf: strings.Replace(bound, "file", "fiel = \"x\"\nfile", 1), signed: "shop", code: ExitUsage, says: "unknown setting"},
		"bound, a key that is missing":       {conf: strings.Replace(bound, "shop.pub", "gone.pub", 1), signed: "shop", code: ExitUsage, says: "gone.pub"},
		"bound, and a misspelt setting":      {conf: "artifact_verify_kye = \"x\"\n" + bound, signed: "shop", code: ExitUsage, says: "artifact_verify_kye"},
		// What does not demand a statement cuts no device off.
		"a misspelt setting":       {conf: "artifact_verify_kye = \"@/shop.pub\"", signed: "shop"},
		"a key that is missing":    {conf: "artifact_verify_key = \"@/gone.pub\"", signed: "shop"},
		"a misspelt setting, none": {conf: "artifact_verify_kye = \"@/shop.pub\""},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := load(t, "mender_conf = \"@/none\"\n"+strings.ReplaceAll(c.conf, "@", dir))
			require.NoError(t, err)
			err = config.Signatures.Trust(public[c.signer])("shop", signed(c.signed))
			require.Equal(t, c.code, ExitCode(err), "%v", err)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "\n")
			}
		})
	}
	_, err := load(t, "requires_statement = true")
	require.ErrorContains(t, err, `unknown setting "requires_statement"`)
}
