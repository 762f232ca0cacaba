package submodules_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/submodules"
)

// files is a sub-module whose components are files in a directory.
type files struct{ dir string }

// Features says that LOAD needs a file: it cannot read its standard input.
func (files) Features() []string { return nil }

func (f files) Open(context.Context, string, submodules.Request) (submodules.Session, error) {
	return &call{dir: f.dir}, nil
}

// call is one call. The embedded interface stands for the verbs that are not shown.
type call struct {
	submodules.Session
	dir string
}

func (c *call) Close() error { return nil }

func (c *call) Load(_ context.Context, r submodules.LoadRequest) error {
	content, err := os.ReadFile(r.Path)
	if err != nil {
		return err
	}
	// LOAD can be killed at any instant: the file appears when it is whole.
	temp := filepath.Join(r.TempDir, "component")
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(c.dir, filepath.Base(r.URL)))
}

func (c *call) Rollout(_ context.Context, r submodules.Request) error {
	if _, err := os.Stat(filepath.Join(c.dir, "tool")); err != nil {
		// The mark becomes the exit code, 4 for a component that is not there.
		return submodules.Mark(errors.New("tool is not there"), submodules.ErrNotFound)
	}
	fmt.Println(r.App, "runs")
	return nil
}

// A program is a sub-module if its main calls Main with os.Args[1:], and exits
// with the code that Main returns.
func ExampleMain() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	download := filepath.Join(dir, "download")
	if err := os.WriteFile(download, []byte("#!/bin/sh\n"), 0o755); err != nil {
		fmt.Println(err)
		return
	}
	run := func(args ...string) int { return submodules.Main(files{dir: dir}, "files", "1.0", args) }

	fmt.Println("exit code", run("ROLLOUT", "shop", dir))
	fmt.Println("exit code", run("LOAD", "shop", "tool", download))
	fmt.Println("exit code", run("ROLLOUT", "shop", dir))
	fmt.Println("exit code", run("PROTOCOL"))
	// Output:
	// exit code 4
	// exit code 0
	// shop runs
	// exit code 0
	// {"protocol":"1.1","name":"files","version":"1.0","features":[]}
	// exit code 0
}
