package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/source"
)

// bars shows progress on stderr: bars if that is a terminal, otherwise a line for each
// image that takes a while.
type bars struct {
	mu       sync.Mutex
	progress *mpb.Progress // nil: no bars are shown
	lines    io.Writer     // nil: no lines are shown
	list     map[string]*mpb.Bar
	where    sync.Map // texts by bar; the bars read them while they are drawn
	stage    string   // of the newest bar
}

// noBars shows nothing.
func noBars() *bars {
	return &bars{list: map[string]*mpb.Bar{}}
}

// newBars shows bars, and nothing where there is no terminal.
func newBars() *bars {
	b := noBars()
	if term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb" {
		b.progress = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(72))
	}
	return b
}

// newBarsOrLines shows bars, or lines where there is no terminal.
func newBarsOrLines(quiet bool) *bars {
	if quiet {
		return noBars()
	}
	b := newBars()
	if b.progress == nil {
		b.lines = os.Stderr
	}
	return b
}

// longImage is the size of what is coded of an image, in bytes, from which its line is
// printed: a second's work or more.
const longImage = 4 << 20

// line prints one line when an image is begun.
func (b *bars) line(e source.Event) {
	key := e.Stage + " " + e.What
	if _, said := b.where.Load(key); said || e.Stage != "encode" || e.What == generator.AllImages || e.Total < longImage {
		return
	}
	b.where.Store(key, e.Where)
	where, _, several := strings.Cut(e.Where, ", ")
	if !several {
		where = ""
	} else {
		where = ", " + where
	}
	fmt.Fprintf(b.lines, "app-gen: encoding %s, %s%s\n", e.What, bytesText(e.Total), where)
}

// verbs are the words for the stages.
var verbs = map[string]string{"fetch": "fetching", "read": "reading", "encode": "encoding", "write": "writing", "apply": "applying", "push": "adding"}

func (b *bars) event(e source.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines != nil {
		b.line(e)
	}
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
		after := []decor.Decorator{decor.CurrentKibiByte("% .1f")}
		if e.Total > 0 {
			after = []decor.Decorator{decor.CountersKibiByte("% .0f of % .0f"), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)}
		}
		where := func(decor.Statistics) string {
			text, _ := b.where.Load(key)
			return text.(string)
		}
		b.where.Store(key, "")
		bar = b.progress.New(max(e.Total, 0), style,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(verbs[e.Stage]+" "+shorten(e.What, 40)+" ")),
			mpb.AppendDecorators(append([]decor.Decorator{decor.Any(where)}, after...)...),
		)
		b.list[key] = bar
	}
	if e.Where != "" {
		b.where.Store(key, e.Where+" ")
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
