package render

import (
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/mender-app/mender-app/generator/manifests"
)

// What a project may take to be rendered. Charts of hundreds of objects take a second.
var (
	maxTime   = 2 * time.Minute
	maxMemory = uint64(1 << 30) // bytes, of all that the process has
)

// bounded renders. Templates can count and repeat as far as their author likes, and nothing
// stops them in the middle: whoever gets the error ends the process.
func bounded(from string, render func() error) error {
	done := make(chan error, 1)
	go func() { done <- render() }()
	late := time.After(maxTime)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	before := heap()
	refuse := func(text string) error {
		return &manifests.Error{Place: manifests.Place{File: from}, Text: text, Hint: "a template or a patch goes on without end, or repeats something very often"}
	}
	for {
		select {
		case err := <-done:
			return err
		case <-late:
			return refuse(fmt.Sprintf("it takes longer than %s to render", maxTime))
		case <-tick.C:
			if heap() > before+maxMemory {
				return refuse(fmt.Sprintf("it takes more than %d MiB of memory to render", maxMemory>>20))
			}
		}
	}
}

// heap is the memory of all objects, those that are no longer used among them.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
