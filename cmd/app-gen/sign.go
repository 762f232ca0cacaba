package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/write"
)

func signCommand() *cobra.Command {
	f := &genFlags{}
	var output string
	c := &cobra.Command{
		Use:   "sign FILE",
		Short: "add a signature to a signed artifact",
		Long: `sign adds a signature to the statement in an artifact, for devices that demand several keys
(threshold of [[keys]] in mender-app.conf). The signed bytes and the other signatures stay
unchanged. The artifact around the statement is signed anew, with this key alone. sign first
reads the whole artifact and refuses one that does not match its statement.

FILE may also be a list that app-gen revoke wrote.

` + exitText,
		Example: `  app-gen … -n shop-5 --key anna.pem
  app-gen sign shop-5.mender --key bert.pem`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.mustSign(c.Context())
			if err != nil {
				return err
			}
			if output == "" {
				output = args[0]
			}
			return addSignature(c.Context(), args[0], output, s)
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	f.keyFlags(c)
	fl.StringVarP(&output, "output-path", "o", "", "file to write (default: FILE)")
	return c
}

// keyFlags adds the options that say who signs.
func (f *genFlags) keyFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.keyFile, "key", "k", "", "PEM file of the private key that signs, or a key in a token, pkcs11:…")
	fl.StringVar(&f.signCommand, "sign-command", "", "program that signs instead of --key")
	fl.StringVar(&f.publicKey, "public-key", "", "PEM file of the public key that must match the signature of --sign-command or of a token")
}

// mustSign is signing where somebody has to sign.
func (f *genFlags) mustSign(ctx context.Context) (mender.Options, error) {
	s, err := f.signing(ctx)
	if err == nil && s.Key == nil && s.Sign == nil {
		err = &usageError{text: "nobody signs", hint: "give --key or --sign-command"}
	}
	if err != nil {
		return mender.Options{}, err
	}
	return mender.Options{Key: s.Key, Sign: s.Sign, Public: s.PublicKey()}, nil
}

// signable is a statement or a list.
type signable interface {
	AddSignature(mender.Options) (json.RawMessage, error)
}

// signed adds a signature, and refuses a second one of a key that is known.
func signed(s signable, isSigned bool, o mender.Options) (json.RawMessage, error) {
	if isSigned {
		return nil, &usageError{text: "the key has signed it already", hint: "a key counts once"}
	}
	return s.AddSignature(o)
}

func addSignature(ctx context.Context, from, to string, o mender.Options) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	first := make([]byte, 1)
	if n, err := in.ReadAt(first, 0); err != nil && n == 0 && !errors.Is(err, io.EOF) {
		return err
	}
	if first[0] == '{' {
		return addToList(ctx, in, to, o)
	}
	d, err := inspect.Artifact(ctx, from, nil, os.Getenv("TMPDIR"))
	if err != nil {
		return err
	}
	meta := d.Parsed()
	if meta.Statement == nil {
		return &usageError{text: from + ": it has no statement to sign", hint: "have its maker sign it: app-gen --key"}
	}
	s, err := statement.Parse(meta.Statement)
	if err != nil {
		return err
	}
	b, err := signed(s, o.Public != nil && s.SignedBy(o.Public), o)
	if err != nil {
		return err
	}
	text, err := withStatement(d.Metadata, b)
	if err != nil {
		return err
	}
	if o.ModTime, err = epoch(); err != nil {
		return err
	}
	return write.To(ctx, to, "", func(w io.Writer) error { return mender.ReplaceMetaData(w, in, text, o) })
}

// withStatement puts a statement into metadata. Fields that this version does not know stay.
func withStatement(metadata []byte, b json.RawMessage) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &fields); err != nil {
		return nil, err
	}
	text, err := json.Marshal(string(b))
	if err != nil {
		return nil, err
	}
	fields["statement"] = text
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func addToList(ctx context.Context, in io.Reader, to string, o mender.Options) error {
	r, err := readList(in)
	if err != nil {
		return err
	}
	b, err := signed(r, o.Public != nil && r.SignedBy(o.Public), o)
	if err != nil {
		return err
	}
	return writeList(ctx, to, b)
}

func readList(in io.Reader) (*statement.SignedRevocations, error) {
	b, err := io.ReadAll(io.LimitReader(in, artifact.MaxRevocations+1))
	if err != nil {
		return nil, err
	}
	return statement.ParseRevocations(bytes.TrimSpace(b))
}

func writeList(ctx context.Context, to string, b json.RawMessage) error {
	return write.To(ctx, to, "", func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n", b)
		return err
	})
}

func revokeCommand() *cobra.Command {
	f := &genFlags{}
	var list statement.Revocations
	var keys, releases []string
	var output string
	c := &cobra.Command{
		Use:   "revoke --version N --output-path FILE",
		Short: "write a signed list of revoked keys and releases",
		Long: `revoke writes a list for app-gen --revocations, which puts it into artifacts. A device keeps
the list with the greatest version and refuses the artifacts of its keys, and its releases.
So a list must repeat the entries of earlier lists. Keys that may sign for all applications
must sign it, as many as threshold in mender-app.conf says: app-gen sign adds signatures.

` + exitText,
		Example: `  app-gen revoke --version 3 --revoked-key shop.pub -o revoked.json --key anna.pem
  app-gen … -n shop-6 --revocations revoked.json --key bert.pem`,
		RunE: func(c *cobra.Command, _ []string) error {
			if output == "" || list.Version < 1 {
				return &usageError{text: "--version and --output-path are missing", hint: "the first list has version 1, and each later one a greater version"}
			}
			o, err := f.mustSign(c.Context())
			if err != nil {
				return err
			}
			for _, file := range keys {
				public, err := readKey("--revoked-key", file, mender.LoadPublicKey)
				if err != nil {
					return err
				}
				print, err := mender.Fingerprint(public)
				if err != nil {
					return err
				}
				list.Keys = append(list.Keys, digest.Digest(print))
			}
			for _, release := range releases {
				d, err := releaseDigest(c.Context(), release)
				if err != nil {
					return err
				}
				list.Statements = append(list.Statements, d)
			}
			b, err := statement.SignRevocations(&list, o)
			if err != nil {
				return err
			}
			return writeList(c.Context(), output, b)
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.Int64Var(&list.Version, "version", 0, "version of the list, greater than that of each earlier one")
	fl.StringArrayVar(&keys, "revoked-key", nil, "PEM file of a revoked public key (repeatable)")
	fl.StringArrayVar(&releases, "revoked-release", nil, "artifact of a revoked release, or the digest of its statement from app-gen inspect --json (repeatable)")
	fl.StringVarP(&output, "output-path", "o", "", "file to write")
	f.keyFlags(c)
	return c
}

// releaseDigest is the digest of a release's statement.
func releaseDigest(ctx context.Context, release string) (digest.Digest, error) {
	if strings.HasPrefix(release, "sha256:") {
		return digest.Parse(release)
	}
	d, err := inspect.Artifact(ctx, release, nil, os.Getenv("TMPDIR"))
	if err != nil {
		return "", err
	}
	if d.Statement == nil {
		return "", &usageError{text: release + ": it has no statement", hint: "revoke the key that signed the artifact"}
	}
	return d.Statement.Digest, nil
}

// expiry reads --expires: a date, a time, or how long from now on.
func (f *genFlags) expiry() error {
	a := &f.o.Artifact
	if a.Expiry.Text == "" {
		return nil
	}
	if f.keyFile == "" && f.signCommand == "" {
		return &usageError{text: "--expires without a key: nobody would sign it", hint: "give --key or --sign-command"}
	}
	issued, err := epoch()
	if err != nil {
		return err
	}
	if issued.Unix() == 0 {
		issued = time.Now().UTC().Truncate(time.Second)
	}
	a.Expiry.Issued = issued
	if a.Expiry.Expires, err = until(a.Expiry.Text, issued); err != nil {
		return &usageError{text: "--expires: " + err.Error(), hint: "give a time to live, such as 90d or 36h, a date such as 2027-03-31, or a time such as 2027-03-31T12:00:00Z"}
	}
	if !a.Expiry.Expires.After(issued) {
		return &usageError{text: fmt.Sprintf("--expires: %s is not after now, %s", a.Expiry.Expires.Format(time.RFC3339), issued.Format(time.RFC3339))}
	}
	return nil
}

// until is the time that a text means. A date is its end, in UTC.
func until(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d).Truncate(time.Second), nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1).Add(-time.Second), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither", text)
	}
	return at.UTC().Truncate(time.Second), nil
}

// readRevocations reads --revocations.
func (f *genFlags) readRevocations() error {
	if f.revocations == "" {
		return nil
	}
	in, err := os.Open(f.revocations)
	if err != nil {
		return &usageError{text: "--revocations: " + err.Error()}
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, artifact.MaxRevocations+1))
	if err != nil {
		return err
	}
	f.o.Artifact.Revocations = bytes.TrimSpace(b)
	if _, err := statement.ParseRevocations(f.o.Artifact.Revocations); err != nil {
		return fmt.Errorf("--revocations %s: %w", f.revocations, err)
	}
	return nil
}
