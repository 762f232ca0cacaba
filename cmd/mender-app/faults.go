//go:build faults

package main

import _ "github.com/mender-app/mender-app/store/durable/faults" // for tests that kill it
