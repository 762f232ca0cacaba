package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact/similar"
)

// configFile has options of app-gen, in the working directory. Its keys are the long
// names of the options.
const configFile = "app-gen.toml"

// maxConfigFile bounds the file, in bytes.
const maxConfigFile = 1 << 20

// readConfig sets the options that are in the configuration file but not on the
// command line. It reports whether the file exists.
func readConfig(fl *pflag.FlagSet) (bool, error) {
	b, err := readConfigFile()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	bad := func(text, hint string) (bool, error) {
		return true, &usageError{text: configFile + ": " + text, hint: hint}
	}
	if err != nil {
		return bad(err.Error(), "")
	}
	var options map[string]any
	if _, err := toml.Decode(string(b), &options); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return true, &usageError{text: fmt.Sprintf("%s:%d: %s", configFile, at.Position.Line, at.Message), hint: "it is a TOML file with a line OPTION = VALUE for each option"}
		}
		return bad(err.Error(), "")
	}
	known := append(configurable(fl), compatibleTypes)
	var unknown, meant []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
			if w := similar.Word(name, known); w != "" {
				meant = append(meant, w)
			}
		}
	}
	if len(unknown) > 0 {
		hint := "its keys are the long options of app-gen --help, without --"
		if len(meant) > 0 {
			hint = "did you mean " + strings.Join(meant, " and ") + "?"
		}
		return bad("there is no option "+strings.Join(unknown, ", "), hint)
	}
	// The command line wins: lists from the file are not appended.
	var given []string
	fl.Visit(func(f *pflag.Flag) { given = append(given, f.Name) })
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if slices.Contains(given, fl.Lookup(name).Name) {
			continue
		}
		values, err := configValues(fl.Lookup(name), options[name])
		if err != nil {
			return bad(name+": "+err.Error(), "")
		}
		for _, v := range values {
			if err := fl.Set(name, v); err != nil {
				return bad(name+": "+err.Error(), "")
			}
		}
	}
	return true, nil
}

func readConfigFile() ([]byte, error) {
	f, err := os.Open(configFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("is not a file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err == nil && len(b) > maxConfigFile {
		err = fmt.Errorf("is larger than %d bytes", maxConfigFile)
	}
	return b, err
}

// configurable lists the options that the configuration file may have.
func configurable(fl *pflag.FlagSet) (list []string) {
	fl.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			list = append(list, f.Name)
		}
	})
	return list
}

// configValues returns the option's values for a key, in the form of the command
// line.
func configValues(f *pflag.Flag, value any) ([]string, error) {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	_, repeatable := f.Value.(pflag.SliceValue)
	if isList && !repeatable {
		return nil, errors.New("the option takes one value, not a list")
	}
	var values []string
	for _, v := range list {
		switch f.Value.Type() {
		case "bool":
			if _, ok := v.(bool); !ok {
				return nil, errors.New("the option is true or false")
			}
		case "int":
			if _, ok := v.(int64); !ok {
				return nil, errors.New("the option is a number")
			}
		default:
			if _, ok := v.(string); !ok {
				return nil, errors.New(`the option is a text in quotes, such as "…"`)
			}
		}
		values = append(values, fmt.Sprint(v))
	}
	return values, nil
}
