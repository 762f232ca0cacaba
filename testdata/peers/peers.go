// Package peers finds programs that no package has, such as the C++ Mender client. Who
// wants the tests that need them builds them from their sources.
package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable names the environment variable with the directory of the programs.
const Variable = "MENDER_APP_PEERS"

// Find returns the absolute path of a program: in the directory that MENDER_APP_PEERS
// names, else on PATH. The error says what to do.
func Find(name string) (string, error) {
	if path, err := Own(name); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("needs %s on PATH or in the directory that %s names", name, Variable)
}

// Own is Find without PATH, for a newer version of a program that a package has.
func Own(name string) (string, error) {
	if dir := os.Getenv(Variable); dir != "" {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("needs %s in the directory that %s names", name, Variable)
}
