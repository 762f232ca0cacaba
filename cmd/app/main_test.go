package main

import (
	"testing"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

func TestMain(m *testing.M) { devicetest.Main(m, nil) }

func TestScripts(t *testing.T) { devicetest.Run(t, "testdata/script") }
