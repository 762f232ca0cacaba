package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact/mender"
)

// addMenderFlags adds the options that mender-artifact has under the same name. Their
// defaults come from f.
func addMenderFlags(fl *pflag.FlagSet, f *genFlags, provides, depends, scripts *[]string) {
	fl.StringVar(&f.o.Artifact.Software.Name, "software-name", f.o.Artifact.Software.Name, "name of the software in the provides (default: the application's name)")
	fl.StringVar(&f.o.Artifact.Software.Version, "software-version", f.o.Artifact.Software.Version, "version of the software in the provides (default: the artifact's name)")
	fl.StringVar(&f.o.Artifact.Software.Filesystem, "software-filesystem", f.o.Artifact.Software.Filesystem, "first word of the provides' key")
	fl.StringArrayVar(provides, "provides", nil, "KEY:VALUE the artifact provides (repeatable)")
	fl.StringArrayVar(depends, "depends", nil, "KEY:VALUE the artifact depends on (repeatable; one of several values of a key is enough)")
	fl.StringArrayVar(scripts, "script", nil, "state script that the Mender client runs, with a name such as ArtifactInstall_Enter_00 (repeatable)")
	fl.StringVarP(&f.keyFile, "key", "k", f.keyFile, "private key to sign with, RSA or ECDSA P-256 (Ed25519 only for mender-app install): a PEM file, or the URI of a key in a PKCS #11 token, pkcs11:…")
	fl.StringVar(&f.compression, "compression", f.compression, "of the artifact: none, gzip, lzma or zstd (zstd needs mender-artifact 3.10 and the C++ client); the payload is compressed in any case")
}

// readScripts reads state scripts.
func readScripts(paths []string) (scripts []mender.Script, err error) {
	for _, path := range paths {
		s := mender.Script{Name: filepath.Base(path)}
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--script: %w", err)
		}
		s.Data, err = io.ReadAll(io.LimitReader(f, mender.MaxScript+1))
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("--script %s: %w", path, err)
		}
		if err := s.Check(); err != nil {
			return nil, &usageError{text: "--script " + path + ": " + err.Error()}
		}
		if slices.ContainsFunc(scripts, func(o mender.Script) bool { return o.Name == s.Name }) {
			return nil, &usageError{text: fmt.Sprintf("--script %s: there are two scripts called %s", path, s.Name)}
		}
		scripts = append(scripts, s)
	}
	return scripts, nil
}

// passthrough reads the options after --, which the shell app-gen passed on to
// mender-artifact. The last value of an option counts, as there.
func (f *genFlags) passthrough(args []string) error {
	if len(args) == 0 {
		return nil
	}
	fl := pflag.NewFlagSet("mender-artifact", pflag.ContinueOnError)
	fl.Usage = func() {}
	var provides, depends, scripts, types []string
	addMenderFlags(fl, f, &provides, &depends, &scripts)
	args = longer(args, map[string]string{"-p": "--provides", "-d": "--depends", "-c": "--device-type", "-s": "--script"})
	fl.SetNormalizeFunc(alias)
	var none string
	fl.StringArrayVarP(&types, "device-type", "t", nil, "")
	fl.StringVarP(&f.o.Artifact.Name, "artifact-name", "n", f.o.Artifact.Name, "")
	fl.StringVarP(&f.o.Build.Output, "output-path", "o", f.o.Build.Output, "")
	fl.StringArrayVarP(&f.o.Artifact.DependsNames, "artifact-name-depends", "N", nil, "")
	fl.StringArrayVarP(&f.o.Artifact.DependsGroups, "depends-groups", "G", nil, "")
	fl.StringVarP(&f.o.Artifact.Group, "provides-group", "g", "", "")
	fl.StringArrayVar(&f.o.Artifact.Clears, "clears-provides", nil, "")
	fl.BoolVar(&f.o.Artifact.Software.NoVersion, "no-default-software-version", false, "")
	fl.BoolVar(&f.o.Artifact.Software.NoClears, "no-default-clears-provides", false, "")
	fl.StringVarP(&none, "version", "v", "3", "")
	if err := fl.Parse(args); err != nil {
		return &usageError{text: "after --: " + err.Error(), hint: "app-gen writes the artifact itself and knows only some of mender-artifact's options, see app-gen --help"}
	}
	f.provides = append(f.provides, provides...)
	f.depends = append(f.depends, depends...)
	f.scripts = append(f.scripts, scripts...)
	f.o.Artifact.DeviceTypes = append(f.o.Artifact.DeviceTypes, types...)
	if fl.NArg() > 0 {
		return &usageError{text: fmt.Sprintf("after --: unexpected argument %q", fl.Arg(0))}
	}
	if none != "3" {
		return &usageError{text: "after --: only version 3 of the format is written"}
	}
	return nil
}

// longer replaces short options of mender-artifact with the long ones if app-gen uses
// the letter for another option.
func longer(args []string, names map[string]string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		for short, long := range names {
			switch {
			case a == short:
				out[i] = long
			case strings.HasPrefix(a, short+"="):
				out[i] = long + strings.TrimPrefix(a, short)
			case strings.HasPrefix(a, short) && !strings.HasPrefix(a, "--"):
				out[i] = long + "=" + strings.TrimPrefix(a, short)
			}
		}
	}
	return out
}
