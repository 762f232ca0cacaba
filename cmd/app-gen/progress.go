package main

import (
	"os"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/mender-app/mender-app/generator/source"
)

// bars shows progress on stderr if that is a terminal.
type bars struct {
	mu       sync.Mutex
	progress *mpb.Progress // nil: not shown
	list     map[string]*mpb.Bar
	stage    string // of the newest bar
}

func newBars() *bars {
	b := &bars{list: map[string]*mpb.Bar{}}
	if term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb" {
		b.progress = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(72))
	}
	return b
}

// verbs are the words for the stages.
var verbs = map[string]string{"fetch": "fetching", "read": "reading", "encode": "encoding", "write": "writing", "apply": "applying"}

func (b *bars) event(e source.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.progress == nil {
		return
	}
	key := e.Stage + " " + e.What
	bar := b.list[key]
	if bar == nil {
		if e.Stage != b.stage { // the previous stage is done
			for _, old := range b.list {
				old.Abort(true)
			}
			b.stage = e.Stage
		}
		style := mpb.BarFillerBuilder(mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"))
		if e.Total < 0 {
			style = mpb.NopStyle()
		}
		bar = b.progress.New(max(e.Total, 0), style,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(verbs[e.Stage]+" "+shorten(e.What, 40)+" ")),
			mpb.AppendDecorators(decor.CurrentKibiByte("% .1f")),
		)
		b.list[key] = bar
	}
	bar.SetCurrent(e.Done)
}

// stop removes the bars.
func (b *bars) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.progress == nil {
		return
	}
	for _, bar := range b.list {
		bar.Abort(true)
	}
	b.progress.Wait()
	b.progress = nil
}

// shorten keeps the end of a name, which is more useful than its start.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "…" + string(r[len(r)-n+1:])
}
