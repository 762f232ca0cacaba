package main

// files draws what docs/DELTA.md says about files and layers: where each file of a new
// image comes from.
func files() []byte {
	s := &svg{width: 864, height: 300}
	s.tips()
	s.place2(24, 300, "Old image: three layers")
	s.place2(540, 300, "New image: squashed into one")
	old := []struct {
		y    float64
		name string
	}{{66, "lib/libc.so.6"}, {100, "lib/libssl.so.3"}, {148, "opt/app-1.0/server"}, {182, "opt/app-1.0/logo.png"}, {230, "etc/app.conf"}}
	for _, f := range old {
		s.file("box", 44, f.y, f.name)
	}
	for _, y := range []float64{139, 221} {
		s.add(`<path class="grid" d="M36 %gH312"/>`, y)
	}
	made := []struct {
		y     float64
		class string
		name  string
	}{{66, "box", "lib/libc.so.6"}, {100, "main", "lib/libssl.so.3"}, {134, "main", "srv/app/2.0/server"}, {168, "box", "srv/app/2.0/logo.png"}, {202, "main", "etc/app.conf"}, {236, "new", "etc/extra.conf"}}
	for _, f := range made {
		s.file(f.class, 560, f.y, f.name)
	}
	for _, a := range []struct {
		from, to float64
		changed  bool
	}{{66, 66, false}, {100, 100, true}, {148, 134, true}, {182, 168, false}, {230, 202, true}} {
		class := "track"
		if a.changed {
			class = "learn"
		}
		s.add(`<path class="%s" marker-end="url(#tip)" d="M308 %gC420 %g 440 %g 556 %g"/>`, class, a.from+13, a.from+13, a.to+13, a.to+13)
	}
	s.text("small dim", "middle", 432, 72, "the same content: a reference")
	s.text("small accent", "middle", 432, 132, "changed: from the best old file")
	s.text("small warn", "end", 552, 253, "no old counterpart: coded as a whole")
	return s.done("Files, not layers", "Three layers of an old image become one. Files with the same content travel as references to any layer, "+
		"also where they have moved; changed files are compared with the best old file, and only what has none is coded as a whole.")
}

// addresses draws why one inserted line of source changes bytes throughout a program,
// and why they need not travel.
func addresses() []byte {
	s := &svg{width: 864, height: 346}
	s.tips()
	s.place2(24, 370, "Old program")
	s.place2(470, 370, "New program")
	type line struct {
		y          float64
		at, code   string
		now, after string
		class      string
	}
	for _, l := range []line{
		{70, "1000", "call 1400", "1000", "call 1408", "learn"},
		{104, "1004", "load x", "1004", "load x", ""},
		{138, "", "", "1008", "check x; return", "new"},
		{172, "1400", "store y", "1408", "store y", ""},
		{206, "1404", "call 1700", "140c", "call 1708", "learn"},
		{240, "table", "1400, 1404, 1700", "table", "1408, 140c, 1708", "learn"},
	} {
		if l.code != "" {
			s.instruction("box", 44, l.y, l.at, l.code)
		}
		class := "box"
		switch l.class {
		case "learn":
			class = "main"
		case "new":
			class = "new"
		}
		s.instruction(class, 490, l.y, l.now, l.after)
		if l.code == "" {
			s.text("small warn", "end", 482, l.y+17, "inserted: the only cause")
			continue
		}
		style := "track"
		if l.class == "learn" {
			style = "learn"
		}
		s.add(`<path class="%s" marker-end="url(#tip)" d="M374 %gH486"/>`, style, l.y+13)
	}
	s.text("small accent", "middle", 432, 66, "predicted: + 8")
	s.text("small accent", "middle", 432, 236, "predicted: + 8")
	s.text("dim", "middle", 432, 336, "To a tool that compares bytes, every blue line has changed. The decoder knows that 1400 went to 1408, and computes them.")
	return s.done("Addresses that moved", "An inserted instruction moves all code behind it by 8 bytes. Every call across it and every table entry behind it "+
		"has another value. The decoder knows which parts match, so it predicts these values from the old ones; only the inserted instruction travels.")
}

// place2 is a panel as high as the picture, for its title.
func (s *svg) place2(x, width float64, name string) {
	s.rect("panel", x, 20, width, float64(s.height)-70+20, 10)
	s.text("name", "start", x+20, 46, name)
}

func (s *svg) file(class string, x, y float64, name string) {
	s.rect(class, x, y, 260, 26, 4)
	s.text("code", "start", x+12, y+17, name)
}

func (s *svg) instruction(class string, x, y float64, at, code string) {
	s.text("code dim", "start", x, y+17, at)
	s.rect(class, x+60, y, 270, 26, 4)
	s.text("code", "start", x+72, y+17, code)
}

func (s *svg) tips() {
	s.add(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>`)
}
